"""A fleet simulated many times at once: all replicas go from failure to failure in step, as columns of arrays.

Between two failures nothing has to be simulated: how many checkpoints fit, what was kept and what was lost follow from
the length alone. So the cost grows with the number of failures, not with that of machines, steps or checkpoints.

One round: time to the next failure (restore, work, checkpoints, lost work) -> downtime, machines to repair -> wait for
capacity -> restart with the machines there are. A failure in the downtime hits nobody, as in the closed forms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.plan.hazard import Replay
from metrics.plan.quantities import require

if TYPE_CHECKING:
    from metrics.plan.distributions import Random, Seconds
    from metrics.plan.system import Kind, System

BATCH = 4096
"""Replicas that go together: few enough for the processor's cache, many enough to hide the interpreter."""

SLOTS = 8
"""Repairs that are remembered for each replica at first; more are added when all are under way."""

BUCKETS = {
    "productive": "work that was kept",
    "saving": "training stood still for a checkpoint",
    "lost": "work since the last checkpoint, done again later",
    "downtime": "failure -> load of the checkpoint begins",
    "restore": "load of the checkpoint, also when a failure cut it short",
    "waiting": "fewer machines were there than the job needs",
    "shrunk": "what the missing machines of an elastic job would have kept",
}
"""Where the time goes; the buckets sum to the horizon. ``shrunk`` is the part of working time that was not there."""


class Sample(msgspec.Struct, frozen=True):
    """What became of each replica: seconds by bucket, and failures."""

    seconds: dict[str, NDArray[np.float64]]
    failures: NDArray[np.int64]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation comes to.

    ``ettr``: the mean over the replicas, and ``error``: its standard error; ``low``, ``median``, ``high``: the 5th,
    50th and 95th percentile of the replicas. ``failures``: their mean number in a replica, ``most_failures`` the 99th
    percentile. ``survived``: the share of replicas within the budget of failures; None without a budget.
    ``shares``: the mean share of the time in each bucket.
    """

    replicas: int
    seed: int
    horizon_s: float
    ettr: float
    error: float
    low: float
    median: float
    high: float
    failures: float
    most_failures: float
    survived: float | None
    shares: dict[str, float]


def simulate(system: System, replicas: int = 1000, seed: int = 0) -> Outcome:
    """Simulate a fleet so often, and sum up; the same seed gives the same outcome.

    Raises PlanError for a number of replicas that is none.
    """
    return summarize(system, sample(system, replicas, seed), seed)


def sample(system: System, replicas: int, seed: int) -> Sample:
    """What became of each replica.

    Raises PlanError for a number of replicas that is none.
    """
    require("replicas", replicas, 2, 1e7, "how often the fleet is simulated")
    sizes = [min(BATCH, replicas - begin) for begin in range(0, replicas, BATCH)]
    seeds = np.random.SeedSequence(seed).spawn(len(sizes))
    parts = [_batch(system, count, np.random.default_rng(own)) for count, own in zip(sizes, seeds, strict=True)]
    seconds = {bucket: np.concatenate([part.seconds[bucket] for part in parts]) for bucket in BUCKETS}
    return Sample(seconds, np.concatenate([part.failures for part in parts]))


def summarize(system: System, found: Sample, seed: int) -> Outcome:
    """Means, errors and percentiles of a sample."""
    count, horizon_s = len(found.failures), system.horizon_s
    ettr = found.seconds["productive"] / horizon_s
    low, median, high = np.percentile(ettr, (5, 50, 95))
    budget = system.max_failures
    return Outcome(
        replicas=count,
        seed=seed,
        horizon_s=horizon_s,
        ettr=float(ettr.mean()),
        error=float(ettr.std(ddof=1) / math.sqrt(count)),
        low=float(low),
        median=float(median),
        high=float(high),
        failures=float(found.failures.mean()),
        most_failures=float(np.percentile(found.failures, 99)),
        survived=None if budget is None else float((found.failures <= budget).mean()),
        shares={bucket: float(seconds.mean() / horizon_s) for bucket, seconds in found.seconds.items()},
    )


def _batch(system: System, count: int, random: Random) -> Sample:
    """Some replicas, from the beginning to the horizon."""
    replicas = _Replicas(system, count, random)
    while replicas.alive:
        replicas.round()
    return Sample(replicas.seconds, replicas.failures)


class _Replicas:
    """Replicas under way. Those that have reached the horizon go on in step, with durations of nothing."""

    def __init__(self, system: System, count: int, random: Random) -> None:
        self.system, self.random = system, random
        self.now = np.zeros(count)
        self.running = np.full(count, float(system.machines))
        self.loading: Seconds | float = 0.0
        self.following = np.zeros(count, dtype=bool)
        self.seconds = {bucket: np.zeros(count) for bucket in BUCKETS}
        self.failures = np.zeros(count, dtype=np.int64)
        self.repairs = _Repairs(count)

    @property
    def alive(self) -> bool:
        """Whether some replica has not reached the horizon."""
        return bool((self.now < self.system.horizon_s).any())

    def round(self) -> None:
        """From one failure to the next restart."""
        share = self.running / self.system.machines
        ahead = self.system.hazard.ahead(self.random, self.now, share)
        if self.system.burst.probability:
            soon = self.random.exponential(self.system.burst.within_s, len(ahead))
            ahead = np.where(self.following, np.minimum(soon, ahead), ahead)
        left = self.system.horizon_s - self.now
        failed = ahead < left
        self._train(np.minimum(ahead, left), failed, share)
        self.failures += failed
        self._restart(failed)

    def _train(self, length: Seconds, failed: NDArray[np.bool_], share: Seconds) -> None:
        """Restore, then period after period; what follows the last checkpoint is lost to a failure."""
        system = self.system
        self.now += length
        loading = np.minimum(length, self.loading)
        self.seconds["restore"] += loading
        length = length - loading
        rest = length % system.period_s
        periods = (length - rest) / system.period_s
        unsaved = np.where(failed, 0.0, np.minimum(rest, system.period_s - system.checkpoint_s))
        worked = periods * (system.period_s - system.checkpoint_s) + unsaved
        lost = np.where(failed, rest, 0.0)
        self.seconds["lost"] += lost
        self.seconds["saving"] += length - worked - lost
        self.seconds["productive"] += worked * share
        if system.smallest < system.machines:
            self.seconds["shrunk"] += worked * (1 - share)

    def _restart(self, failed: NDArray[np.bool_]) -> None:
        """Downtime, repairs and the wait for capacity of those that have failed; the machines with which they go on."""
        system = self.system
        down = self._down(failed)
        self._pass("downtime", np.where(failed, down, 0.0))
        if self.repairs.any:
            away = self._wait(failed)
            there = np.clip(system.fleet - away, system.smallest, system.machines)
            self.running = np.where(failed, there, self.running)
        loading = np.where(failed, system.restore.draw(self.random, len(failed)), 0.0)
        self.loading = loading
        if system.burst.probability:
            self.following = failed & (self.random.random(len(failed)) < system.burst.probability)

    def _wait(self, failed: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Wait where too few machines are left; how many are away afterwards."""
        away, bearable = self.repairs.away(self.now), self.system.fleet - self.system.smallest
        (rows,) = np.nonzero(failed & (away > bearable))
        if len(rows):
            length = np.zeros(len(failed))
            length[rows], away[rows] = self.repairs.wait(rows, self.now[rows], bearable)
            self._pass("waiting", length)
        return away

    def _down(self, failed: NDArray[np.bool_]) -> Seconds | float:
        """How long each is down, by the kind of its failure; its machines go to repair at once."""
        system, count = self.system, len(failed)
        down = system.restart.draw(self.random, count)
        for kind, rows in self._kinds(failed):
            down = down + np.where(rows, kind.detect.draw(self.random, count), 0.0)
            taken = self._taken(kind.machines)
            if np.any(taken):
                back = self.now + kind.repair.draw(self.random, count)
                self.repairs.send(self.now, np.where(rows, back, -np.inf), taken)
        return down

    def _kinds(self, failed: NDArray[np.bool_]) -> Iterator[tuple[Kind, NDArray[np.bool_]]]:
        """The kinds of failures, each with those that it has hit."""
        kinds = self.system.kinds
        if len(kinds) == 1:
            yield kinds[0], failed
            return
        bounds = np.cumsum([kind.share for kind in kinds])
        drawn = np.searchsorted(bounds, self.random.random(len(failed)) * bounds[-1], side="right")
        for place, kind in enumerate(kinds):
            yield kind, failed & (drawn == place)

    def _taken(self, machines: int) -> NDArray[np.int64]:
        """How many machines a failure takes away: by its kind, or by the record; never more than there are."""
        hazard = self.system.hazard
        wanted = hazard.machines(self.now) if isinstance(hazard, Replay) else np.int64(machines)
        return np.minimum(wanted, self.running.astype(np.int64)) if np.any(wanted) else np.zeros(1, dtype=np.int64)

    def _pass(self, bucket: str, length: Seconds) -> None:
        """Let time pass, up to the horizon."""
        length = np.minimum(length, self.system.horizon_s - self.now)
        self.seconds[bucket] += length
        self.now += length


class _Repairs:
    """Machines that are away: slot by slot, for each replica, when they are back and how many."""

    def __init__(self, count: int) -> None:
        self.back = np.full((SLOTS, count), -np.inf)
        self.many = np.zeros((SLOTS, count), dtype=np.int32)
        self.next = 0
        self.any = False

    def send(self, now: Seconds, back: Seconds, many: NDArray[np.int64]) -> None:
        """Machines go to repair until then; minus infinity for those that have nothing to send."""
        self.any = True
        slot = self._free(now)
        self.back[slot], self.many[slot] = back, many

    def _free(self, now: Seconds) -> int:
        """A slot that no replica needs any more."""
        slots = len(self.back)
        for place in range(self.next, self.next + slots):
            if (self.back[place % slots] <= now).all():
                self.next = (place + 1) % slots
                return place % slots
        self.back = np.concatenate([self.back, np.full_like(self.back, -np.inf)])
        self.many = np.concatenate([self.many, np.zeros_like(self.many)])
        self.next = slots + 1
        return slots

    def away(self, now: Seconds) -> NDArray[np.int32]:
        """How many machines of each replica are away."""
        found: NDArray[np.int32] = np.einsum("sr,sr->r", self.back > now, self.many)
        return found

    def wait(self, rows: NDArray[np.intp], now: Seconds, bearable: int) -> tuple[Seconds, NDArray[np.int32]]:
        """Seconds until at most so many are away, in replicas where more are; and how many are away then."""
        back = self.back[:, rows]
        order = np.argsort(back, axis=0)
        back = np.take_along_axis(back, order, axis=0)
        away = np.take_along_axis(self.many[:, rows], order, axis=0) * (back > now)
        left = away.sum(axis=0) - np.cumsum(away, axis=0)
        first = (left <= bearable).argmax(axis=0), np.arange(len(rows))
        return back[first] - now, left[first]
