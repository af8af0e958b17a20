"""The plan of a fleet: what failures leave of its time, how often to save, what to keep in reserve, what would help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from metrics.plan.failures import SMALL_GPUS, away_share, budget, standby, survival
from metrics.plan.formulas import (
    Costs,
    Restarts,
    daly_higher_s,
    daly_s,
    efficiency,
    left_s,
    meta_ettr,
    optimum_s,
    rfo_s,
    young_s,
)
from metrics.plan.quantities import DAY_S, YEAR_S, require, require_positive, require_share

BEST_PUBLISHED = 0.97
"""The best credible ETTR that was published: ByteRobust, 9,600 GPUs, three months."""


class Input(msgspec.Struct, frozen=True):
    """A number that a plan goes by, in seconds, and where it comes from: given, measured, or assumed."""

    seconds: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What a plan is made for.

    ``mtbf``: of the whole job. ``from_rate``: whether it was computed from the rate of single machines. ``horizon_s``,
    ``survive``: how long the job must last, with which probability. ``max_failures``: the budget that it has, if any.
    ``repair_s``: how long a machine is away that has failed. ``period_s``: how often it saves now, if told.
    Raises PlanError for numbers that are out of range, and for a job that fails faster than it recovers.
    """

    gpus: int
    mtbf: Input
    checkpoint: Input
    restore: Input
    downtime: Input
    gpus_per_machine: int = 8
    from_rate: bool = True
    horizon_s: float = 30 * DAY_S
    survive: float = 0.99
    max_failures: int | None = None
    repair_s: float = DAY_S
    period_s: float | None = None

    def __post_init__(self) -> None:
        require("gpus", self.gpus, 1, 1e7, "GPUs of the job")
        require("gpus_per_machine", self.gpus_per_machine, 1, 1024)
        require_positive("horizon_s", self.horizon_s, 100 * YEAR_S, "how long the job must last, in seconds")
        require_share("survive", self.survive)
        require("repair_s", self.repair_s, 0, YEAR_S, "how long a machine is away, in seconds")
        if self.max_failures is not None:
            require("max_failures", self.max_failures, 0, 1e9, "restarts that the job is allowed")
        left_s(self.costs)

    @property
    def machines(self) -> int:
        """Machines that hold the GPUs, the last one perhaps in part."""
        return -(-self.gpus // self.gpus_per_machine)

    @property
    def costs(self) -> Costs:
        """What the closed forms take."""
        return Costs(
            checkpoint_s=self.checkpoint.seconds,
            restore_s=self.restore.seconds,
            downtime_s=self.downtime.seconds,
            mtbf_s=self.mtbf.seconds,
        )

    @property
    def per_machine_day(self) -> float:
        """Failures of one machine in a day."""
        return DAY_S / (self.machines * self.mtbf.seconds)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A way to choose the period, and the exact ETTR with it. ``period_s`` holds the checkpoint itself."""

    name: str
    period_s: float
    ettr: float
    meaning: str


class Knob(msgspec.Struct, frozen=True, kw_only=True):
    """What one improvement would bring, the period chosen anew. ``gpus``: as many GPUs more would do the same work."""

    name: str
    ettr: float
    gain: float
    gpus: float


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How many failures the job must be allowed.

    ``expected``: in the horizon. ``max_failures``: the least with which it lives through the horizon with the
    probability ``survive``; ``dies``: the probability that it still does not. ``given``: the budget that it has,
    and ``given_dies``; None where none was told.
    """

    horizon_s: float
    expected: float
    survive: float
    max_failures: int
    dies: float
    given: int | None
    given_dies: float | None


class Reserve(msgspec.Struct, frozen=True, kw_only=True):
    """How many machines must stand by. ``away``: the share of its time that one machine is in repair."""

    repair_s: float
    away: float
    survive: float
    spares: int


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a fleet.

    ``inputs``: what it goes by, by name. ``periods``: ways to choose the checkpoint period; ``best``: the exact
    optimum. ``gpus_worth``: as many GPUs that never fail would do the same work; ``lost_gpu_hours``: in a day.
    ``meta_ettr``: Meta's expected ETTR at the best period. ``notes``: what to know before it is believed.
    """

    gpus: int
    machines: int
    per_machine_day: float
    inputs: dict[str, Input]
    periods: list[Choice]
    best: Choice
    gpus_worth: float
    lost_gpu_hours: float
    meta_ettr: float
    knobs: list[Knob]
    budget: Budget
    reserve: Reserve
    notes: list[str]


def plan(fleet: Fleet) -> FleetPlan:
    """Plan a fleet.

    Raises PlanError for a survival that no budget reaches.
    """
    periods = _periods(fleet)
    best = next(choice for choice in periods if choice.name == OPTIMUM)
    expected = meta_ettr(_as_meta_sees_it(fleet, best))
    return FleetPlan(
        gpus=fleet.gpus,
        machines=fleet.machines,
        per_machine_day=fleet.per_machine_day,
        inputs={name: getattr(fleet, name) for name in ("mtbf", "checkpoint", "downtime", "restore")},
        periods=periods,
        best=best,
        gpus_worth=best.ettr * fleet.gpus,
        lost_gpu_hours=(1 - best.ettr) * fleet.gpus * 24,
        meta_ettr=expected.ettr,
        knobs=_knobs(fleet, best),
        budget=_budget(fleet),
        reserve=_reserve(fleet),
        notes=_notes(fleet, best, expected.clamped),
    )


OPTIMUM = "exact optimum"

RULES = {
    "Young": (young_s, "sqrt(2 mu C) + C"),
    "Daly": (daly_s, "sqrt(2 (mu + D + R) C) + C"),
    "Daly, higher order": (daly_higher_s, "three terms of a series in C / 2 mu"),
    "RFO": (rfo_s, "sqrt(2 (mu - D - R) C)"),
    OPTIMUM: (optimum_s, "C + mu (1 + W0(-exp(-C/mu - 1)))"),
}
"""Ways to choose the period, with their formulas; mu is the MTBF, C the checkpoint, D the downtime, R the restore."""


def _periods(fleet: Fleet) -> list[Choice]:
    costs = fleet.costs
    chosen = [_choice(costs, name, rule(costs), meaning) for name, (rule, meaning) in RULES.items()]
    if fleet.period_s is not None:
        ettr = efficiency(costs, fleet.period_s)
        chosen.append(Choice(name="yours", period_s=fleet.period_s, ettr=ettr, meaning="as given"))
    return chosen


def _choice(costs: Costs, name: str, period_s: float, meaning: str) -> Choice:
    """A period by a rule; its ETTR is 0 where a first-order one has become shorter than its checkpoint."""
    ettr = efficiency(costs, period_s) if period_s > costs.checkpoint_s else 0.0
    return Choice(name=name, period_s=period_s, ettr=ettr, meaning=meaning)


def _knobs(fleet: Fleet, best: Choice) -> list[Knob]:
    costs = fleet.costs
    halved = {name: getattr(costs, name) / 2 for name in ("checkpoint_s", "downtime_s", "restore_s")}
    doubled = {"mtbf_s": 2 * costs.mtbf_s}
    turned: dict[str, dict[str, float]] = {
        "checkpoint halved": {"checkpoint_s": halved["checkpoint_s"]},
        "downtime halved": {"downtime_s": halved["downtime_s"]},
        "restore halved": {"restore_s": halved["restore_s"]},
        "MTBF doubled": doubled,
        "all of these": halved | doubled,
    }
    return [_knob(fleet, best, name, changes) for name, changes in turned.items()]


def _knob(fleet: Fleet, best: Choice, name: str, changes: dict[str, float]) -> Knob:
    values: dict[str, Any] = {**vars(fleet.costs), **changes}
    better = Costs(**values)
    ettr = efficiency(better, optimum_s(better))
    return Knob(name=name, ettr=ettr, gain=ettr - best.ettr, gpus=fleet.gpus * (ettr / best.ettr - 1))


def _budget(fleet: Fleet) -> Budget:
    expected = fleet.horizon_s / fleet.mtbf.seconds
    needed, given = budget(expected, fleet.survive), fleet.max_failures
    return Budget(
        horizon_s=fleet.horizon_s,
        expected=expected,
        survive=fleet.survive,
        max_failures=needed,
        dies=1 - survival(expected, needed),
        given=given,
        given_dies=None if given is None else 1 - survival(expected, given),
    )


def _reserve(fleet: Fleet) -> Reserve:
    away = away_share(fleet.per_machine_day, fleet.repair_s)
    spares = standby(fleet.machines, away, fleet.survive)
    return Reserve(repair_s=fleet.repair_s, away=away, survive=fleet.survive, spares=spares)


def _as_meta_sees_it(fleet: Fleet, best: Choice) -> Restarts:
    return Restarts(
        machines=fleet.machines,
        per_machine_day=fleet.per_machine_day,
        overhead_s=fleet.costs.recovery_s,
        interval_s=best.period_s - fleet.checkpoint.seconds,
        stall_s=fleet.checkpoint.seconds,
    )


def _notes(fleet: Fleet, best: Choice, clamped: bool) -> list[str]:
    """What to know before the plan is believed."""
    notes = []
    if fleet.from_rate and fleet.gpus <= SMALL_GPUS:
        notes.append(
            "small jobs do not follow the rate of machines: one of 1,024 GPUs was measured to fail every 7.9 h where "
            "RSC-1's rate gives 28.85 h; give --mtbf-h if you know better"
        )
    if clamped:
        notes.append("Meta's expected ETTR falls below nothing here and is told as 0: its first order does not hold")
    if best.ettr > BEST_PUBLISHED:
        notes.append(
            "better than the best ETTR that was credibly published, 97 % (ByteRobust, 9,600 GPUs, 3 months): are the "
            "costs complete, slow steps and waiting for machines included?"
        )
    return notes
