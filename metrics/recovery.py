"""The recovery timeline: nine contiguous phases from the fault to the step count passed, from events alone."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from chaos.history import Event
from metrics.attempts import Attempt, effective_steps
from metrics.verdict import Case, Finding, Verdict

CHECK = "recovered"

PHASES = {
    "detect": "fault fired -> controller leaves RUNNING",
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


@dataclass(frozen=True)
class Phase:
    """One phase of a recovery; times in nanoseconds since the epoch."""

    name: str
    begin_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ns - self.begin_ns) / 1e9


@dataclass(frozen=True)
class Recovery:
    """What followed one fault.

    ``before``: the last step complete on all ranks before it. ``resumed``: the step resumed from.
    ``missing``: the border that no event tells, which makes the recovery incomplete; empty when it is whole.
    """

    injection: str
    attempt: int
    fired_ns: int
    before: int
    resumed: int | None
    phases: tuple[Phase, ...]
    missing: str = ""

    @property
    def total_s(self) -> float:
        """From the fault to the end of the last phase known, in seconds; the phases sum to it exactly."""
        return (self.phases[-1].end_ns - self.fired_ns) / 1e9 if self.phases else 0.0

    @property
    def lost_steps(self) -> int | None:
        """Steps that had to be done again; None when the job did not resume."""
        return None if self.resumed is None else self.before - self.resumed


def recoveries(case: Case) -> list[Recovery]:
    """The recovery from every fault that fired, in order."""
    return [_recovery(case, fired) for fired in case.history.select("fault.fired")]


def _recovery(case: Case, fired: Event) -> Recovery:
    broken = next(a for a in case.attempts if a.number == fired.attempt)
    after = next((a for a in case.attempts if a.number > broken.number), None)
    before = broken.step_of_all
    resumed = min((s for s in after.resume_steps.values() if s is not None), default=None) if after else None
    phases: list[Phase] = []
    missing = ""
    begin = fired.wall_ns
    for name, border in _borders(case, fired, broken, after, before):
        if border is None:
            missing = name
            break
        end = max(begin, border)
        phases.append(Phase(name, begin, end))
        begin = end
    return Recovery(fired.data["injection"], broken.number, fired.wall_ns, before, resumed, tuple(phases), missing)


def _borders(
    case: Case, fired: Event, broken: Attempt, after: Attempt | None, before: int
) -> Iterable[tuple[str, int | None]]:
    """The end of each phase, in nanoseconds since the epoch; None where no event tells it."""
    left = _leaves(case, fired, "RUNNING")
    yield "detect", left.wall_ns if left else None
    preempting = left is not None and left.data["to"] == "PREEMPTING"
    restarting = _leaves(case, fired, "PREEMPTING") if preempting else left
    yield "grace", restarting.wall_ns if restarting else None
    yield "teardown", _all(broken.exits.values(), broken.world_size)
    if after is None:
        yield "schedule", None
        return
    yield "schedule", _placement_ready(after)
    yield "start", after.start.wall_ns if after.start else None
    yield "rendezvous", after.group_ready.wall_ns if after.group_ready else None
    yield from _training_borders(after, min(before + 1, case.record.steps))


def _training_borders(after: Attempt, goal: int) -> Iterable[tuple[str, int | None]]:
    restored = any(name is not None for name in after.checkpoints_given.values())
    if restored:
        yield "setup", _all(after.restore_begins.values(), after.world_size)
        yield "restore", _all(after.restore_ends.values(), after.world_size)
    else:  # nothing to restore: the setup ends where the data begin, if the workload tells
        ready = _all(after.data_begins.values(), after.world_size)
        yield "setup", ready if ready is not None else (after.group_ready.wall_ns if after.group_ready else None)
        yield "restore", 0
    reached = [e for events in after.steps.values() for e in events if e.step == goal]
    yield "replay", _all(reached, after.world_size)


def _all(events: Iterable[Event], wanted: int) -> int | None:
    """When the slowest of the ranks got there; None when one of them never did."""
    times = [event.wall_ns for event in events]
    return max(times) if times and len(times) >= wanted > 0 else None


def _placement_ready(after: Attempt) -> int | None:
    if after.schedule is None or after.start is None or after.start.data.get("placement_ms") is None:
        return None
    return after.schedule.wall_ns + int(float(after.start.data["placement_ms"]) * 1e6)


def _leaves(case: Case, fired: Event, state: str) -> Event | None:
    """The first time after the fault that the controller leaves a state."""
    changes = case.history.select("controller.state")
    return next((e for e in changes if e.wall_ns >= fired.wall_ns and e.data["from"] == state), None)


def check(case: Case) -> Finding:
    """Every fault was followed by a whole recovery within the bound, unless the next fault cut it short."""
    bound = case.record.recover_within_s
    expected = f"back past the step count from before each fault within {bound:g} s"
    found = recoveries(case)
    if not found:
        return Finding(CHECK, Verdict.UNKNOWN, expected, "no fault fired")
    evidence = {
        "recoveries": [
            {
                "injection": r.injection,
                "seconds": round(r.total_s, 3),
                "phases": {p.name: round(p.seconds, 3) for p in r.phases},
                "missing": r.missing,
            }
            for r in found
        ]
    }
    # A recovery that the next fault interrupts is judged by the one that follows it.
    if whole := [r for i, r in enumerate(found) if not r.missing or i == len(found) - 1]:
        last, slowest = whole[-1], max(whole, key=lambda r: r.total_s)
        if last.missing:
            seen = f"after {last.injection} no event ends the phase '{last.missing}'"
            return Finding(CHECK, Verdict.FAIL, expected, seen, evidence=evidence)
        worst_phase = max(slowest.phases, key=lambda p: p.seconds)
        seen = f"{slowest.total_s:.2f} s, slowest phase {worst_phase.name} {worst_phase.seconds:.2f} s"
        verdict = Verdict.PASS if slowest.total_s <= bound else Verdict.FAIL
        return Finding(CHECK, verdict, expected, seen, evidence=evidence)
    return Finding(CHECK, Verdict.UNKNOWN, expected, "no recovery could be measured", evidence=evidence)


def step_seconds(attempts: list[Attempt]) -> float | None:
    """Median time of an undisturbed step of the first attempt, in seconds; None with fewer than two steps."""
    events = effective_steps(attempts[:1]).get(0, [])
    gaps = [(b.mono_ns - a.mono_ns) / 1e9 for a, b in itertools.pairwise(events)]
    return statistics.median(gaps) if gaps else None
