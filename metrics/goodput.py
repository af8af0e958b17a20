"""Where the life of a training job went: productive time, and every other second in a bucket with a name.

The life reaches from the start of the training script to its end. It is cut at events into contiguous parts, each of
one bucket, so the buckets sum to it exactly, in nanoseconds. A step counts for the whole job when its slowest rank has
completed it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from chaos.history import Event
from metrics.attempts import Attempt
from metrics.recovery import SLACK, STARTING, breaks, hit, resized, step_times
from metrics.verdict import Case, Finding, Verdict, per_case

BUCKETS = {
    "startup": "start of the script -> data or checkpoint first touched",
    "productive": "steps that were completed for the first time",
    "replayed": "steps done again, and the one that was cut short",
    "stalled": "what a fault added to steps that it disturbed, beyond the median step",
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


@per_case
def goodput(case: Case) -> Goodput | None:
    """The life of a run's training script; None where its start, its end or every step is unknown."""
    start, end = case.history.first("workload.start"), case.history.first("workload.exit")
    if start is None or end is None or not any(attempt.complete for attempt in case.attempts) or _dark(case):
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


def _dark(case: Case) -> bool:
    """Whether the steps of some attempt are in the dark: its size, or all steps of one of its ranks, are not told."""
    ended = hit(case) | resized(case)
    made = [attempt for attempt in case.attempts if any(attempt.steps.values())]
    return any(not a.world_size or not (a.complete or a.number in ended) for a in made)


def _life(case: Case) -> Iterator[tuple[Attempt, str, int | None]]:
    """The borders of all attempts, in order."""
    furthest, saves, disturbed = 0, _saves(case), _disturbed(case)
    times = [seconds for attempt in case.attempts for _, seconds in step_times(attempt)]
    usual_ns = int(statistics.median(times) * 1e9) if times else 0
    for number, attempt in enumerate(case.attempts):
        for border in _arrival(attempt, first=number == 0):
            yield attempt, *border
        for border in _steps(attempt, saves, furthest, Pace(usual_ns, disturbed)):
            yield attempt, *border
        furthest = max([furthest, *attempt.complete])
        if number < len(case.attempts) - 1 or attempt.number in hit(case):
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


@dataclass(frozen=True)
class Pace:
    """The median step, in nanoseconds, and the times during which faults disturbed steps."""

    usual_ns: int
    disturbed: list[tuple[int, int]]

    def ends(self, begin_ns: int, end_ns: int) -> int | None:
        """When a step would have ended that a fault stretched; None for a step that none did."""
        stretched = end_ns - begin_ns > SLACK * self.usual_ns > 0
        touched = any(begin < end_ns and end > begin_ns for begin, end in self.disturbed)
        return begin_ns + self.usual_ns if stretched and touched else None


def _disturbed(case: Case) -> list[tuple[int, int]]:
    """From each firing of a fault to its end, where it has one."""
    ends = {e.data["injection"]: e for kind in ("fault.ended", "fault.healed") for e in case.history.select(kind)}
    fired = case.history.select("fault.fired")
    return [(e.wall_ns, max(e.wall_ns + 1, ends.get(e.data["injection"], e).wall_ns)) for e in fired]


def _steps(attempt: Attempt, saves: dict[tuple[int, int], int], furthest: int, pace: Pace) -> Iterator[Border]:
    """Step by step: the save that came before, the wait for data, the step itself."""
    waits, begin_ns = _waits(attempt), 0
    for step, end_ns in attempt.complete.items():
        done = "productive" if step > furthest else "replayed"
        yield "save_stall", saves.get((attempt.number, step - 1))
        if begin_ns and (undisturbed := pace.ends(begin_ns, end_ns)):
            yield done, undisturbed
            yield "stalled", end_ns  # also where a rank stood still before it asked for data
        yield "data_wait", waits.get(step)
        yield done, end_ns
        begin_ns = end_ns
    yield "save_stall", saves.get((attempt.number, max(attempt.complete, default=0)))


def _departure(case: Case, attempt: Attempt) -> Iterator[Border]:
    """From the last step that all ranks completed to the controller's leaving RUNNING."""
    told = case.history.select("controller.state", attempt=attempt.number)
    up_ns = attempt.start.wall_ns if attempt.start else 0
    left = next((event for event in told if event.data["to"] not in STARTING and event.wall_ns >= up_ns), None)
    fired = [e for e in case.history.select("fault.fired", attempt=attempt.number) if breaks(e)]
    yield _doing(attempt), fired[0].wall_ns if fired else None
    yield "detection", left.wall_ns if left else None


def _doing(attempt: Attempt) -> str:
    """What an attempt was at when a fault hit it."""
    if attempt.complete or attempt.restore_ends:
        return "replayed"
    return "restore" if attempt.restore_begins else "restart" if attempt.number else "startup"


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
