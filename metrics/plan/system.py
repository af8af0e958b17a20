"""What is simulated: a job on a fleet of machines, how its failures go, and what is kept in reserve."""

from __future__ import annotations

from dataclasses import dataclass, field

from metrics.plan.distributions import Constant, Distribution
from metrics.plan.hazard import Burst, Hazard, Replay
from metrics.plan.quantities import DAY_S, YEAR_S, PlanError, require, require_positive

AT_ONCE, A_DAY = Constant(0.0), Constant(DAY_S)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of failure.

    ``share``: of all failures. ``detect``: from the failure to the job's reaction. ``machines``: that it takes away
    at once, 0 where the same ones go on, many for a rack. ``repair``: how long these are away, all together.
    """

    name: str = "machine"
    share: float = 1.0
    detect: Distribution = AT_ONCE
    machines: int = 0
    repair: Distribution = A_DAY

    def __post_init__(self) -> None:
        require_positive(f"share of {self.name}", self.share, 1, "a share of all failures")
        require(f"machines of {self.name}", self.machines, 0, 1e6)


@dataclass(frozen=True, kw_only=True)
class System:
    """A job and its fleet.

    ``machines``: that the job wants; ``least``: with which it goes on, more slowly, instead of waiting for repairs;
    ``spares``: beside them. It takes machines back when it restarts. ``restart``: from the reaction to the load of
    the checkpoint; ``restore``: the load, in which it can fail again. ``period_s`` holds one checkpoint.
    ``max_failures``: restarts after which the next failure ends the job; None for any number.
    """

    machines: int
    hazard: Hazard
    checkpoint_s: float
    period_s: float
    horizon_s: float
    restart: Distribution = AT_ONCE
    restore: Distribution = AT_ONCE
    kinds: tuple[Kind, ...] = (Kind(),)
    spares: int = 0
    least: int | None = None
    burst: Burst = field(default_factory=Burst)
    max_failures: int | None = None

    def __post_init__(self) -> None:
        require("machines", self.machines, 1, 1e7)
        require("spares", self.spares, 0, 1e7)
        require("least", self.smallest, 1, self.machines, "machines with which the job still goes on")
        require("checkpoint_s", self.checkpoint_s, 0, YEAR_S, "in seconds")
        require_positive("period_s", self.period_s, 1e4 * YEAR_S, "from one checkpoint to the next, in seconds")
        require_positive("horizon_s", self.horizon_s, 100 * YEAR_S, "how long the fleet is looked at, in seconds")
        if self.period_s <= self.checkpoint_s:
            raise PlanError(f"period_s={self.period_s:g} leaves no time to work beside a checkpoint")
        if isinstance(self.hazard, Replay) and self.horizon_s > self.hazard.trace.end_s:
            covered = f"the record of failures ends after {self.hazard.trace.end_s / DAY_S:.1f} days"
            raise PlanError(f"horizon_s={self.horizon_s:g}: {covered}; take a shorter horizon")
        total = sum(kind.share for kind in self.kinds)
        if abs(total - 1) > 1e-6:
            raise PlanError(f"the shares of the kinds of failures sum to {total:g}: they must sum to 1")

    @property
    def smallest(self) -> int:
        """The least number of machines with which the job goes on."""
        return self.machines if self.least is None else self.least

    @property
    def fleet(self) -> int:
        """All machines."""
        return self.machines + self.spares
