"""The recovery timeline: nine contiguous phases from the fault to the step count passed, from events alone."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from chaos.faults.base import all_faults
from chaos.history import Event
from metrics.attempts import Attempt
from metrics.verdict import Case, Finding, Verdict, per_case

CHECK = "recovered"

STARTING = ("INITIALIZING", "SCHEDULING", "RUNNING")
"""States of a controller that knows of no fault."""

PHASES = {
    "detect": "fault fired -> controller acts on it",
    "grace": "PREEMPTING -> RESTARTING",
    "teardown": "-> last process of the old group gone",
    "schedule": "-> placement group ready",
    "start": "-> workers ready",
    "rendezvous": "-> process group set up",
    "setup": "-> restore begins",
    "restore": "-> checkpoint loaded on every rank",
    "replay": "-> step count from before the fault passed",
}

RESOLUTION_S = {
    "detect": "event of the controller (1 ms); it looks once a poll",
    "grace": "event of the controller (1 ms)",
    "teardown": "process exit by pidfd (5 ms)",
    "schedule": "the placement group's own latency (1 ms)",
    "start": "event of the controller (1 ms)",
    "rendezvous": "event of the controller (1 ms)",
    "setup": "first file of the checkpoint opened (1 ms)",
    "restore": "the workload's own word, else the last file opened (a lower bound)",
    "replay": "event of the process itself (1 ms)",
}


SLACK, CALM = 1.5, 3
"""Steps are as before again when so many in a row take no longer than so many times the median."""


class Border(NamedTuple):
    """The end of a phase, in nanoseconds since the epoch, and the rank that got there last, where it takes them all."""

    at_ns: int
    rank: int | None = None


@dataclass(frozen=True)
class Phase:
    """One phase of a recovery; times in nanoseconds since the epoch. ``rank``: the slowest one, where ranks end it."""

    name: str
    begin_ns: int
    end_ns: int
    rank: int | None = None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ns - self.begin_ns) / 1e9


@dataclass(frozen=True)
class Recovery:
    """What followed the faults that hit one attempt; the first of them starts the clock.

    ``before``: the last step complete on all ranks before it. ``resumed``: the step resumed from.
    ``missing``: the border that no event tells, which makes the recovery incomplete; empty when it is whole.
    ``reached``: whether a following attempt passed the furthest step count from before the fault, on every rank.
    ``cause``: the error that the controller acted on, with the first that a rank told. ``stepped_ns``: when every rank
    had completed a step again. ``usual_ns``: when steps took their usual time again, see ``_usual_again``.
    """

    fired: tuple[Event, ...]
    attempt: int
    before: int
    resumed: int | None
    phases: tuple[Phase, ...]
    missing: str = ""
    reached: bool = False
    cause: str = ""
    stepped_ns: int | None = None
    usual_ns: int | None = None

    def since_s(self, at_ns: int | None) -> float | None:
        """Seconds from the fault to then; None for a time that never came."""
        return None if at_ns is None else (at_ns - self.fired_ns) / 1e9

    @property
    def injection(self) -> str:
        """The injections that it recovers from."""
        return ", ".join(str(event.data.get("injection")) for event in self.fired)

    @property
    def fired_ns(self) -> int:
        """When the first of them fired, in nanoseconds since the epoch."""
        return self.fired[0].wall_ns

    @property
    def total_s(self) -> float:
        """From the fault to the end of the last phase known, in seconds; the phases sum to it exactly."""
        return (self.phases[-1].end_ns - self.fired_ns) / 1e9 if self.phases else 0.0

    @property
    def lost_steps(self) -> int | None:
        """Steps that had to be done again; None when the job did not resume."""
        return None if self.resumed is None else self.before - self.resumed


def breaks(event: Event) -> bool:
    """Whether the fault of an event is one that a job must restart because of; an unknown fault counts as one."""
    fault = all_faults().get(str(event.data.get("fault")))
    return fault is None or fault.breaks


@per_case
def incidents(case: Case) -> list[tuple[Event, ...]]:
    """The firings of breaking faults, grouped by the attempt that they hit: each group costs one restart."""
    by_attempt: dict[int, list[Event]] = {}
    for event in case.history.select("fault.fired"):
        if breaks(event):
            by_attempt.setdefault(event.attempt or 0, []).append(event)
    return [tuple(events) for _, events in sorted(by_attempt.items())]


@per_case
def resized(case: Case) -> set[int]:
    """Attempts that the controller ended to change the world size, no fault having broken them: no incidents."""
    told = {e.attempt or 0 for e in case.history.select("controller.state") if e.data["to"] == "RESIZING"}
    return told - hit(case)


def hit(case: Case) -> set[int]:
    """Attempts that faults have broken."""
    return {events[0].attempt or 0 for events in incidents(case)}


def cut_short(case: Case) -> set[int]:
    """Attempts that a fault or a resize ended before their first step: what they lack, the next attempt must supply."""
    ended = hit(case) | resized(case)
    return {attempt.number for attempt in case.attempts if attempt.number in ended and not any(attempt.steps.values())}


@per_case
def recoveries(case: Case) -> list[Recovery]:
    """The recovery from every attempt that faults have hit, in order."""
    return [_recovery(case, fired) for fired in incidents(case)]


def _recovery(case: Case, fired: tuple[Event, ...]) -> Recovery:
    number = fired[0].attempt or 0
    broken = next((a for a in case.attempts if a.number == number), Attempt(number))
    back = _comebacks(case, number)
    furthest = max((a.step_of_all for a in case.attempts if a.number <= number), default=0)
    goal = min(furthest + 1, case.record.steps)
    phases: list[Phase] = []
    missing = ""
    begin = fired[0].wall_ns
    for name, border in _borders(case, fired[0], broken, back, goal):
        if border is None:
            missing = name
            break
        end = max(begin, border.at_ns)
        phases.append(Phase(name, begin, end, border.rank))
        begin = end
    return Recovery(
        fired=fired,
        attempt=number,
        before=broken.step_of_all,
        resumed=min((s for s in back[0].resume_steps.values() if s is not None), default=None) if back else None,
        phases=tuple(phases),
        missing=missing,
        reached=any(attempt.step_of_all >= goal for attempt in back),
        cause=_cause(case, fired[0]),
        stepped_ns=next((min(done.values()) for attempt in back if (done := attempt.complete)), None),
        usual_ns=_usual_again(case.attempts, number, back),
    )


def _cause(case: Case, fired: Event) -> str:
    """The error that the controller acted on, and the first one that a rank told it in that attempt."""
    left = _change(case, fired, lambda event: event.data["to"] not in STARTING or bool(event.data.get("error")))
    if left is None or not left.data.get("error"):
        return ""
    errors = case.history.select("worker.error", attempt=fired.attempt)
    told = next((error for error in errors if fired.wall_ns <= error.wall_ns <= left.wall_ns), None)
    return str(left.data["error"]) + (f": rank {told.rank} {told.data['error']}" if told else "")


def _usual_again(attempts: list[Attempt], number: int, back: list[Attempt]) -> int | None:
    """When three steps in a row first took no longer than half as long again as the median step before the fault.

    None when they never did, when too few steps tell, or when the group came back in another size, whose steps take
    another time.
    """
    size = next((attempt.world_size for attempt in attempts if attempt.number == number), 0)
    before = [attempt for attempt in attempts if attempt.number <= number and attempt.world_size == size]
    usual = [seconds for attempt in before for _, seconds in step_times(attempt)]
    after = next((attempt for attempt in back if attempt.complete), None)
    if len(usual) < CALM or after is None or after.world_size != size:
        return None
    calm = 0
    for end_ns, seconds in step_times(after):
        calm = calm + 1 if seconds <= SLACK * statistics.median(usual) else 0
        if calm == CALM:
            return end_ns
    return None


def step_times(attempt: Attempt) -> list[tuple[int, float]]:
    """When each step but the first was complete on all ranks, and the seconds since the one before."""
    return [(end, (end - begin) / 1e9) for begin, end in itertools.pairwise(attempt.complete.values())]


def _comebacks(case: Case, number: int) -> list[Attempt]:
    """The attempts in which the job comes back: the next one, and as long as those are resized, the ones after."""
    later = [attempt for attempt in case.attempts if attempt.number > number]
    changed = resized(case)
    final = next((place for place, attempt in enumerate(later) if attempt.number not in changed), len(later))
    return later[: final + 1]


def _borders(
    case: Case, fired: Event, broken: Attempt, back: list[Attempt], goal: int
) -> Iterable[tuple[str, Border | None]]:
    """The end of each phase; None where no event tells it."""
    left = _change(case, fired, lambda e: e.data["to"] not in STARTING)
    yield "detect", _at(left)
    preempting = left is not None and left.data["to"] == "PREEMPTING"
    restarting = _change(case, fired, lambda e: e.data["from"] == "PREEMPTING") if preempting else left
    yield "grace", _at(restarting)
    yield "teardown", _all(broken.exits.values(), broken.world_size)
    if not back:
        yield "schedule", None
        return
    after = back[0]
    yield "schedule", _placement_ready(after)
    yield "start", _at(after.start)
    yield "rendezvous", _at(after.group_ready)
    loaded = [_loaded(attempt) for attempt in back]
    setup, restore = next((borders for borders in loaded if None not in borders), loaded[0])
    yield "setup", setup
    yield "restore", restore
    passed = (_passed(attempt, goal) for attempt in back)
    yield "replay", next((border for border in passed if border is not None), None)


def _at(event: Event | None) -> Border | None:
    return Border(event.wall_ns) if event else None


def _loaded(after: Attempt) -> tuple[Border | None, Border | None]:
    """The ends of ``setup`` and ``restore`` in one attempt."""
    if any(name is not None for name in after.checkpoints_given.values()):
        begun, ended = after.restore_begins.values(), after.restore_ends.values()
        return _all(begun, after.world_size), _all(ended, after.world_size)
    # Nothing to restore: the setup ends where the data begin, if the workload tells.
    ready = _all(after.data_begins.values(), after.world_size)
    return ready if ready is not None else _at(after.group_ready), Border(0)


def _passed(after: Attempt, goal: int) -> Border | None:
    """When the last rank of an attempt had completed the step that ends the recovery."""
    return _all((e for events in after.steps.values() for e in events if e.step == goal), after.world_size)


def _all(events: Iterable[Event], wanted: int) -> Border | None:
    """When the slowest of the ranks got there; None when one of them never did."""
    found = sorted(events, key=lambda event: event.wall_ns)
    ranks = {event.rank for event in found}
    return Border(found[-1].wall_ns, found[-1].rank) if len(ranks) >= wanted > 0 else None


def _placement_ready(after: Attempt) -> Border | None:
    if after.schedule is None or after.start is None or after.start.data.get("placement_ms") is None:
        return None
    return Border(after.schedule.wall_ns + int(float(after.start.data["placement_ms"]) * 1e6))


def _change(case: Case, fired: Event, fits: Callable[[Event], bool]) -> Event | None:
    """The controller's first fitting change of state after the fault, in the attempt that the fault hit."""
    changes = case.history.select("controller.state", attempt=fired.attempt)
    return next((e for e in changes if e.wall_ns >= fired.wall_ns and fits(e)), None)


def check(case: Case, bound: float = 120.0) -> Finding:
    """Every fault was followed by a whole recovery within the bound, unless the next fault cut it short."""
    expected = f"back past the step count from before each fault within {bound:g} s"
    found = recoveries(case)
    if not found:
        return Finding(CHECK, Verdict.UNKNOWN, expected, "no fault fired")
    evidence = {"recoveries": [_told(recovery) for recovery in found]}
    # A recovery that the next fault cuts short is judged by the one that follows it.
    judged = [r for r in found if r is found[-1] or r.reached or not r.missing]
    if broken := next((r for r in judged if r.missing), None):
        over = case.history.first("workload.exit") is not None
        verdict = Verdict.FAIL if over and not broken.reached else Verdict.UNKNOWN
        seen = f"after {broken.injection} no event ends the phase '{broken.missing}'"
        return Finding(CHECK, verdict, expected, seen, evidence=evidence)
    slowest = max(judged, key=lambda r: r.total_s)
    longest = max(slowest.phases, key=lambda p: p.seconds)
    last = f", rank {longest.rank} last" if longest.rank is not None else ""
    seen = f"{slowest.total_s:.2f} s, slowest phase {longest.name} {longest.seconds:.2f} s{last}"
    verdict = Verdict.PASS if slowest.total_s <= bound else Verdict.FAIL
    return Finding(CHECK, verdict, expected, seen, evidence=evidence)


def _told(recovery: Recovery) -> dict[str, object]:
    return {
        "injection": recovery.injection,
        "seconds": round(recovery.total_s, 3),
        "phases": {phase.name: round(phase.seconds, 3) for phase in recovery.phases},
        "cause": recovery.cause,
        "missing": recovery.missing,
    }


def quick_step_seconds(attempts: list[Attempt]) -> float | None:
    """Time of a quick step, in seconds: the lower quartile over all attempts; None when no two steps follow."""
    gaps = [
        (after.mono_ns - before.mono_ns) / 1e9
        for attempt in attempts
        for before, after in itertools.pairwise(attempt.steps.get(0, []))
    ]
    return statistics.quantiles(gaps, n=4, method="inclusive")[0] if len(gaps) > 1 else next(iter(gaps), None)
