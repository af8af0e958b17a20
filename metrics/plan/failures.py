"""How often a job fails, how many failures its budget must allow, and how many machines must stand by."""

from __future__ import annotations

import math
from collections.abc import Callable

from metrics.plan.quantities import DAY_S, YEAR_S, PlanError, require, require_positive

SMALL_GPUS = 1024
"""Up to here jobs are known not to follow the MTTF formula: measured 7.9 h where it gives 28.85 (Kokolis et al.)."""

CERTAIN = 1 - 1e-12
"""No finite budget gives more: a probability beyond it cannot be reached."""


def job_mtbf_s(gpus: int, per_machine_day: float, gpus_per_machine: int = 8) -> float:
    """Mean time between failures of a job that dies with any of its machines, in seconds: a day / (machines x rate).

    It assumes that machines fail independently and all alike. Small jobs do not follow it, see ``SMALL_GPUS``.
    """
    require("gpus", gpus, 1, 1e7, "GPUs of the job")
    require("gpus_per_machine", gpus_per_machine, 1, 1024)
    require_positive("per_machine_day", per_machine_day, 1, "failures of one machine in a day; 0.0065 for 6.5 in 1000")
    return DAY_S / (gpus / gpus_per_machine * per_machine_day)


def survival(expected: float, budget: int) -> float:
    """The probability of at most ``budget`` failures where so many are expected (Poisson)."""
    from scipy.special import pdtr

    _require_expected(expected)
    return float(pdtr(budget, expected)) if budget >= 0 else 0.0


def budget(expected: float, survive: float) -> int:
    """The least number of failures that is exceeded with a probability of at most 1 - ``survive`` (Poisson quantile).

    Raises PlanError for a probability that no budget reaches.
    """
    from scipy.special import pdtr, pdtrik

    _require_expected(expected)
    _require_reachable(survive)
    if expected == 0 or float(pdtr(0, expected)) >= survive:
        return 0
    return _least(lambda k: float(pdtr(k, expected)), survive, float(pdtrik(survive, expected)))


def standby(machines: int, away: float, survive: float) -> int:
    """How many of so many machines are away at once at most, with that probability (binomial quantile).

    ``away``: the share of its time that one machine is away. Raises PlanError for a probability that is not reachable.
    """
    from scipy.special import bdtr, bdtrik

    require("machines", machines, 1, 1e7)
    require("away", away, 0, 1, "the share of its time that a machine is away")
    _require_reachable(survive)
    if away in (0, 1):
        return int(away) * machines
    if float(bdtr(0, machines, away)) >= survive:
        return 0
    return _least(lambda k: float(bdtr(k, machines, away)), survive, float(bdtrik(survive, machines, away)))


def away_share(per_machine_day: float, repair_s: float) -> float:
    """The share of its time that a machine spends in repair: repair / (time between its failures + repair)."""
    require("repair_s", repair_s, 0, YEAR_S, "how long a machine is away, in seconds")
    between_s = DAY_S / per_machine_day
    return repair_s / (between_s + repair_s)


def _least(cumulative: Callable[[int], float], wanted: float, near: float) -> int:
    """The least whole number whose cumulative probability is reached, next to a real-valued solution."""
    found = max(0, math.ceil(near) - 1)
    while cumulative(found) < wanted:
        found += 1
    return found


def _require_expected(expected: float) -> None:
    require("expected", expected, 0, 1e9, "failures expected in the horizon")


def _require_reachable(survive: float) -> None:
    require("survive", survive, 0, 1, "a probability; write 0.99 for 99 per cent")
    if survive > CERTAIN:
        raise PlanError(f"survive={survive:.15g} cannot be reached by any finite number: take 0.999999 or less")
