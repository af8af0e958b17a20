"""Closed forms of checkpointing: how often to save, and which share of the time makes progress.

All times in seconds. A *period* is work followed by one checkpoint, so it holds the stall of the checkpoint; failures
come at random with a mean time between them (MTBF), and each costs downtime, a restore, and the work since the last
checkpoint. Sources are named with each function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from metrics.plan.quantities import DAY_S, YEAR_S, PlanError, require, require_positive

LONGEST_S = 7 * DAY_S
"""No phase of a recovery and no stall of a checkpoint is taken to be longer: a sign of a wrong unit."""

SMALL = 0.01
"""Below it the principal branch of Lambert's function is summed as a series around its branch point, -1/e."""

SERIES = (1.0, -1 / 3, 11 / 72, -43 / 540, 769 / 17280, -221 / 8505, 680863 / 43545600)
"""Coefficients of 1 + W0 by powers of sqrt(2 (1 + e z)), from the first on (Corless et al., 1996)."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a failure and a checkpoint cost a job, in seconds, and how often it fails.

    ``checkpoint_s``: how long training stands still for one checkpoint. ``restore_s``: loading one, during which the
    job may fail again. ``downtime_s``: from the failure to the beginning of the load. ``mtbf_s``: of the whole job.
    Raises PlanError for numbers that are negative, or in a wrong unit.
    """

    checkpoint_s: float
    restore_s: float
    downtime_s: float
    mtbf_s: float

    def __post_init__(self) -> None:
        require_positive("checkpoint_s", self.checkpoint_s, LONGEST_S, "the stall of one checkpoint, in seconds")
        require("restore_s", self.restore_s, 0, LONGEST_S, "loading a checkpoint, in seconds")
        require("downtime_s", self.downtime_s, 0, LONGEST_S, "from a failure to the load, in seconds")
        require_positive("mtbf_s", self.mtbf_s, 1e4 * YEAR_S, "between two failures of the whole job, in seconds")

    @property
    def recovery_s(self) -> float:
        """Downtime and restore."""
        return self.downtime_s + self.restore_s


def young_s(costs: Costs) -> float:
    """Young's period (1974): sqrt(2 mu C) of work, and the checkpoint."""
    return math.sqrt(2 * costs.mtbf_s * costs.checkpoint_s) + costs.checkpoint_s


def daly_s(costs: Costs) -> float:
    """Daly's first-order period (2006): as Young's, with downtime and restore in the time between failures."""
    return math.sqrt(2 * (costs.mtbf_s + costs.recovery_s) * costs.checkpoint_s) + costs.checkpoint_s


def daly_higher_s(costs: Costs) -> float:
    """Daly's higher-order period (2006): his work interval, and the checkpoint; the MTBF of work where C >= 2 mu."""
    ratio = costs.checkpoint_s / (2 * costs.mtbf_s)
    if ratio >= 1:
        return costs.mtbf_s + costs.checkpoint_s
    return 2 * costs.mtbf_s * math.sqrt(ratio) * (1 + math.sqrt(ratio) / 3 + ratio / 9)


def rfo_s(costs: Costs) -> float:
    """The first-order optimum that counts failures in downtime and restore (RFO; Aupy, Robert and Vivien, 2013).

    Raises PlanError when the job fails faster than it recovers: there is no such period.
    """
    return math.sqrt(2 * left_s(costs) * costs.checkpoint_s)


def left_s(costs: Costs) -> float:
    """What downtime and restore leave of the time between two failures.

    Raises PlanError when that is nothing: the job makes no progress.
    """
    left = costs.mtbf_s - costs.recovery_s
    if left <= 0:
        raise PlanError(
            f"the job makes no progress: it fails every {costs.mtbf_s:,.0f} s, and downtime and restore take "
            f"{costs.recovery_s:,.0f} s; recover faster, use fewer GPUs, or let only a part of them restart"
        )
    return left


def optimum_s(costs: Costs) -> float:
    """The period of the highest efficiency: C + mu (1 + W0(-exp(-C/mu - 1))), exact for exponential failures."""
    return costs.checkpoint_s + costs.mtbf_s * _above_branch(costs.checkpoint_s / costs.mtbf_s)


def _above_branch(ratio: float) -> float:
    """1 + W0(-exp(-ratio - 1)), W0 being the principal branch of Lambert's function.

    For a small ratio the argument comes close to the branch point -1/e, where its rounding alone would cost half of
    the digits: there the series in sqrt(2 (1 - exp(-ratio))), which is computed without cancellation, has them all.
    """
    root = math.sqrt(-2 * math.expm1(-ratio))
    if root < SMALL:
        return sum(factor * root**power for power, factor in enumerate(SERIES, 1))
    from scipy.special import lambertw

    return 1 + float(lambertw(-math.exp(-ratio - 1)).real)


def efficiency(costs: Costs, period_s: float) -> float:
    """The share of the time that is work which is kept; exact for exponential failures, also during the restore.

    (T - C) / ((mu + D) exp(R/mu) (exp(T/mu) - 1)), from Bouguerra et al. Raises PlanError for a period that the
    checkpoint alone fills.
    """
    _require_period(costs, period_s)
    kept = math.exp(-(costs.restore_s + period_s) / costs.mtbf_s) / -math.expm1(-period_s / costs.mtbf_s)
    return (period_s - costs.checkpoint_s) / (costs.mtbf_s + costs.downtime_s) * kept


def waste(costs: Costs, period_s: float) -> float:
    """The first-order share of the time that is lost: C/T + (1 - C/T) (D + R + T/2) / mu; above 1 it says nothing.

    Raises PlanError for a period that the checkpoint alone fills.
    """
    _require_period(costs, period_s)
    saving = costs.checkpoint_s / period_s
    return saving + (1 - saving) * (costs.recovery_s + period_s / 2) / costs.mtbf_s


def least_waste(costs: Costs) -> float:
    """The least of the short form C/T + T/(2 mu), at T = sqrt(2 mu C): sqrt(2 C / mu)."""
    return math.sqrt(2 * costs.checkpoint_s / costs.mtbf_s)


def _require_period(costs: Costs, period_s: float) -> None:
    require_positive("period_s", period_s, 1e4 * YEAR_S, "from one checkpoint to the next, in seconds")
    if period_s <= costs.checkpoint_s:
        raise PlanError(
            f"period_s={period_s:g} leaves no time to work beside a checkpoint of {costs.checkpoint_s:g} s: "
            "take a longer period"
        )


@dataclass(frozen=True)
class Expected:
    """An expected ETTR. ``clamped``: the formula gave less than nothing, and 0 stands for it."""

    ettr: float
    clamped: bool = False


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """A job as Meta's formula sees it. ``queue_s``: how long a restart waits for its machines."""

    machines: int
    per_machine_day: float
    overhead_s: float
    interval_s: float
    stall_s: float = 0.0
    queue_s: float = 0.0

    def __post_init__(self) -> None:
        require("machines", self.machines, 1, 1e7)
        require("per_machine_day", self.per_machine_day, 0, DAY_S, "failures of one machine in a day, such as 0.0065")
        require_positive("interval_s", self.interval_s, YEAR_S, "between two checkpoints, in seconds")
        for name in ("overhead_s", "stall_s", "queue_s"):
            require(name, getattr(self, name), 0, LONGEST_S, "in seconds")


def meta_ettr(job: Restarts) -> Expected:
    """Meta's expected ETTR (Kokolis et al., HPCA 2025), first order: failures during the recovery do not count.

    (1 - N r (u0 + P/2)) / ((1 + w/P) (1 + N r q)). It falls below nothing where a job fails faster than it recovers:
    then 0 is given, and ``clamped``.
    """
    per_second = job.machines * job.per_machine_day / DAY_S
    kept = 1 - per_second * (job.overhead_s + job.interval_s / 2)
    value = kept / ((1 + job.stall_s / job.interval_s) * (1 + per_second * job.queue_s))
    return Expected(max(0.0, value), clamped=value < 0)


def meta_interval_s(machines: int, per_machine_day: float, stall_s: float) -> float:
    """The interval of the highest expected ETTR by Meta's formula: sqrt(2 w / (N r))."""
    require_positive("per_machine_day", per_machine_day, 1, "failures of one machine in a day, such as 0.0065")
    require_positive("stall_s", stall_s, LONGEST_S, "the stall of one checkpoint, in seconds")
    return math.sqrt(2 * stall_s * DAY_S / (machines * per_machine_day))
