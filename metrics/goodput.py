"""Where the life of a training job went: productive time, and every other second in a bucket with a name.

The life reaches from the start of the training script to its end. It is cut at events into contiguous parts, each of
one bucket, so the buckets sum to it exactly, in nanoseconds. A step counts for the whole job when its slowest rank has
completed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from chaos.history import Event
from metrics.attempts import Attempt
from metrics.recovery import STARTING, breaks
from metrics.verdict import Case, Finding, Verdict

BUCKETS = {
    "startup": "start of the script -> data or checkpoint first touched",
    "productive": "steps that were completed for the first time",
    "replayed": "steps done again, and the one that was cut short",
    "save_stall": "end of a step -> its checkpoint handed over by every rank",
    "data_wait": "end of a step or save -> the program tells of its next samples",
    "detection": "fault, or last step -> controller acts on it",
    "restart": "-> checkpoint first touched: teardown, start, rendezvous, setup",
    "restore": "-> checkpoint loaded on every rank",
    "idle": "waiting for capacity; after the last step",
}
"""The buckets, with what each spans."""


@dataclass(frozen=True)
class Part:
    """A part of the job's life in one bucket; times in nanoseconds since the epoch.

    ``ranks``: how many ranks the job has, or had last.
    """

    bucket: str
    begin_ns: int
    end_ns: int
    ranks: int


@dataclass(frozen=True)
class Goodput:
    """The life of a training job, part by part."""

    parts: tuple[Part, ...]

    @property
    def wall_ns(self) -> int:
        """Length of the life, in nanoseconds."""
        return self.parts[-1].end_ns - self.parts[0].begin_ns if self.parts else 0

    def ns(self, bucket: str) -> int:
        """Nanoseconds in a bucket."""
        return sum(part.end_ns - part.begin_ns for part in self.parts if part.bucket == bucket)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds in each bucket."""
        return {bucket: self.ns(bucket) / 1e9 for bucket in BUCKETS}

    @property
    def share(self) -> float:
        """Effective training time ratio (ETTR): productive time / wall-clock time."""
        return self.ns("productive") / self.wall_ns if self.wall_ns else 0.0

    @property
    def rank_seconds_lost(self) -> float:
        """Seconds that were not productive, each as often as there were ranks."""
        return sum((p.end_ns - p.begin_ns) * p.ranks for p in self.parts if p.bucket != "productive") / 1e9


Border = tuple[str, int | None]
"""A bucket, and where its part ends; None where no event tells, so that the next part takes its time."""


def goodput(case: Case) -> Goodput | None:
    """The life of a run's training script; None where its start, its end or every step is unknown."""
    start, end = case.history.first("workload.start"), case.history.first("workload.exit")
    if start is None or end is None or not any(attempt.complete for attempt in case.attempts):
        return None
    parts: list[Part] = []
    at, ranks = start.wall_ns, 0
    for attempt, bucket, border in _life(case):
        ranks = attempt.world_size or ranks
        if border is not None and at < border <= end.wall_ns:
            parts.append(Part(bucket, at, border, ranks))
            at = border
    if at < end.wall_ns:
        parts.append(Part("idle", at, end.wall_ns, ranks))
    return Goodput(tuple(parts))


def _life(case: Case) -> Iterator[tuple[Attempt, str, int | None]]:
    """The borders of all attempts, in order."""
    furthest, saves = 0, _saves(case)
    for number, attempt in enumerate(case.attempts):
        complete = attempt.complete
        for border in _arrival(attempt, first=number == 0):
            yield attempt, *border
        for border in _steps(attempt, complete, saves, furthest):
            yield attempt, *border
        furthest = max([furthest, *complete])
        if number < len(case.attempts) - 1:
            for border in _departure(case, attempt):
                yield attempt, *border


def _arrival(attempt: Attempt, first: bool) -> Iterator[Border]:
    """From the beginning of a group to its first step."""
    coming = "startup" if first else "restart"
    if not first and attempt.schedule and attempt.start:
        latency = attempt.start.data.get("placement_ms")
        yield coming, attempt.schedule.wall_ns
        yield "idle", attempt.schedule.wall_ns + int(float(latency) * 1e6) if latency is not None else None
    yield coming, attempt.group_ready.wall_ns if attempt.group_ready else None
    touched = (attempt.restore_begins or attempt.data_begins).values()
    yield coming, max((event.wall_ns for event in touched), default=None)
    yield "restore", max((event.wall_ns for event in attempt.restore_ends.values()), default=None)


def _steps(
    attempt: Attempt, complete: dict[int, int], saves: dict[tuple[int, int], int], furthest: int
) -> Iterator[Border]:
    """Step by step: the save that came before, the wait for data, the step itself."""
    waits = _waits(attempt)
    for step, end_ns in complete.items():
        yield "save_stall", saves.get((attempt.number, step - 1))
        yield "data_wait", waits.get(step)
        yield "productive" if step > furthest else "replayed", end_ns
    yield "save_stall", saves.get((attempt.number, max(complete, default=0)))


def _departure(case: Case, attempt: Attempt) -> Iterator[Border]:
    """From the last step that all ranks completed to the controller's leaving RUNNING."""
    told = case.history.select("controller.state", attempt=attempt.number)
    left = next((event for event in told if event.data["to"] not in STARTING), None)
    fired = [e for e in case.history.select("fault.fired", attempt=attempt.number) if breaks(e)]
    yield "replayed", fired[0].wall_ns if fired else None
    yield "detection", left.wall_ns if left else None


def _waits(attempt: Attempt) -> dict[int, int]:
    """When the slowest rank told of its first samples of each step."""
    told: dict[int, int] = {}
    for event in (event for events in attempt.steps.values() for event in events):
        if begun := event.data.get("data_ns"):
            told[event.step or 0] = max(told.get(event.step or 0, 0), int(begun))
    return told


def _saves(case: Case) -> dict[tuple[int, int], int]:
    """When the slowest rank had handed over the checkpoint of a step, by attempt and step."""
    saved = set(map(_place, case.history.select("checkpoint.transfer.begin")))
    found: dict[tuple[int, int], int] = {}
    for event in case.history.select("report.end"):
        if (place := _place(event)) in saved:
            found[place] = max(found.get(place, 0), event.wall_ns)
    return found


def _place(event: Event) -> tuple[int, int]:
    return event.attempt or 0, event.step or 0


def check(case: Case, share: float) -> Finding:
    """At least that share of the job's life was productive."""
    expected = f"at least {share:g} of the job's life is productive (ETTR)"
    found = goodput(case)
    if found is None:
        seen = "the start or the end of the training script, or every step, is unknown"
        return Finding("goodput", Verdict.UNKNOWN, expected, seen)
    verdict = Verdict.PASS if found.share >= share else Verdict.FAIL
    seen = f"{found.share:.3f} of {found.wall_ns / 1e9:.1f} s: {told(found.seconds.items())}"
    evidence = {"seconds": found.seconds, "rank_seconds_lost": found.rank_seconds_lost}
    return Finding("goodput", verdict, expected, seen, evidence=evidence)


def told(seconds: Iterable[tuple[str, float]]) -> str:
    """The buckets that hold something, the largest first, as a sentence."""
    full = sorted(((s, bucket) for bucket, s in seconds if s), reverse=True)
    return ", ".join(f"{bucket.replace('_', ' ')} {s:.1f}" for s, bucket in full)
