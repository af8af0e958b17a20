"""When the next failure comes: at random, early in a fleet's life or late, in bursts, or as a record has it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from metrics.plan.quantities import YEAR_S, require, require_positive, require_share
from metrics.plan.trace import Trace

if TYPE_CHECKING:
    from metrics.plan.distributions import Random, Seconds

GRID = 20_001
"""Points at which the hazard of a fleet's life is tabulated."""

ROUNDING_S = 1e-6
"""By so much a time may miss that of a failure in a record and still be taken for it."""


class Hazard(Protocol):
    """When failures come."""

    def ahead(self, random: Random, now: Seconds, running: Seconds) -> Seconds:
        """Seconds from now to the next failure of each replica; infinite where none comes.

        ``now``: seconds since the fleet began. ``running``: the share of its machines that run.
        """


@dataclass(frozen=True)
class Steady:
    """Failures without memory (Poisson). ``mtbf_s``: with all machines running."""

    mtbf_s: float

    def ahead(self, random: Random, now: Seconds, running: Seconds) -> Seconds:
        """Exponential times, longer where fewer machines run."""
        return random.standard_exponential(len(now)) * (self.mtbf_s / running)


@dataclass(frozen=True, kw_only=True)
class Bathtub:
    """More failures while a fleet is new, and when it wears out; the MTBF is that of the time between.

    ``infant``: how many times more failures there are at first, on top, fading with ``infant_s`` as its time constant.
    ``wear_s``: after so long the hazard has doubled, growing with the square of the age; 0 for none.
    """

    mtbf_s: float
    infant: float = 0.0
    infant_s: float = 0.0
    wear_s: float = 0.0
    until_s: float = YEAR_S

    def __post_init__(self) -> None:
        require_positive("mtbf_s", self.mtbf_s, 1e4 * YEAR_S)
        require("infant", self.infant, 0, 1000, "how many times more failures there are at first")
        require("infant_s", self.infant_s, 0, 100 * YEAR_S, "in seconds")
        require("wear_s", self.wear_s, 0, 1000 * YEAR_S, "in seconds")

    def ahead(self, random: Random, now: Seconds, running: Seconds) -> Seconds:
        """Times by inverting the cumulative hazard, which is tabulated once for the whole life."""
        ages, cumulative = self.table
        goal = np.interp(now, ages, cumulative) + random.standard_exponential(len(now)) * (self.mtbf_s / running)
        found: Seconds = np.interp(goal, cumulative, ages, right=np.inf) - now
        return found

    @functools.cached_property
    def table(self) -> tuple[Seconds, Seconds]:
        """Ages, denser at first, and the cumulative hazard there, in seconds of the steady one."""
        ages = self.until_s * np.linspace(0, 1, GRID) ** 2
        return ages, self.cumulative(ages)

    def cumulative(self, age: Seconds) -> Seconds:
        """The integral of the hazard up to an age, in units of the steady hazard: seconds."""
        early = -self.infant * self.infant_s * np.expm1(-age / self.infant_s) if self.infant_s else 0.0
        late = age**3 / (3 * self.wear_s**2) if self.wear_s else 0.0
        whole: Seconds = age + early + late
        return whole


@dataclass(frozen=True)
class Replay:
    """Failures at the times of a record, for every replica the same; those in a downtime hit nobody."""

    trace: Trace

    def ahead(self, random: Random, now: Seconds, running: Seconds) -> Seconds:
        """To the next failure of the record."""
        times, _ = self._failures
        return times[np.searchsorted(times, now + ROUNDING_S)] - now

    def machines(self, now: Seconds) -> NDArray[np.int64]:
        """How many machines the failure took that the record has for now; 0 where it has none."""
        times, taken = self._failures
        found: NDArray[np.int64] = taken[np.searchsorted(times, now - ROUNDING_S)]
        return found

    @functools.cached_property
    def _failures(self) -> tuple[Seconds, NDArray[np.int64]]:
        """The times, those that are the same being one failure, and the machines taken; infinity at the end."""
        times, places = np.unique(self.trace.times_s, return_inverse=True)
        taken = np.bincount(places, weights=self.trace.machines).astype(np.int64)
        return np.append(times, np.inf), np.append(taken, 0)


@dataclass(frozen=True)
class Burst:
    """Failures that bring others: with that probability one more follows soon after the restart.

    ``within_s``: after how long, on average, exponentially. They come on top of what the MTBF tells.
    """

    probability: float = 0.0
    within_s: float = 600.0

    def __post_init__(self) -> None:
        require_share("probability", self.probability)
        require("probability", self.probability, 0, 0.95, "so that bursts end")
        require_positive("within_s", self.within_s, YEAR_S, "in seconds")
