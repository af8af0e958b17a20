"""Whether two worker groups of one job ever trained at the same time: no process of an older one may go on."""

from __future__ import annotations

import itertools
from typing import Any

from chaos.history import Event
from metrics.attempts import Attempt
from metrics.verdict import Case, Finding, Verdict


def check(case: Case) -> Finding:
    """No rank of an attempt completes a step once the next attempt has begun, by the wall clock.

    A process that is still there but makes no step is told, and fails nothing: it holds memory, and writes nothing.
    """
    name, expected = "one-group", "no process of an older group completes a step after the start of a newer one"
    if why := _unseen(case.attempts):
        return Finding(name, Verdict.UNKNOWN, expected, why)
    pairs = list(itertools.pairwise(case.attempts))
    late = [event for old, new in pairs for event in late_steps(old, new)]
    evidence = {"late_steps": [_told(event) for event in late[:20]], "lingering": [_lingering(*pair) for pair in pairs]}
    seen = f"{len(case.attempts)} groups, {_shown(late)}; {_shown_lingering(pairs)}"
    return Finding(name, Verdict.FAIL if late else Verdict.PASS, expected, seen, evidence=evidence)


def _unseen(attempts: list[Attempt]) -> str:
    """What of the groups cannot be told; empty when nothing is missing."""
    if len(attempts) < 2:
        return "there were no two groups"
    if silent := [attempt.number for attempt in attempts[1:] if attempt.start is None]:
        return f"the start of attempt {silent[0]} was not recorded"
    if not any(attempt.steps for attempt in attempts):
        return "no step was seen"
    return "" if any(attempt.steps for attempt in attempts[:-1]) else "no step of an older group was seen"


def late_steps(old: Attempt, new: Attempt) -> list[Event]:
    """Steps that ranks of the older attempt completed after the newer one had begun, in order."""
    begin = new.start.wall_ns if new.start else 0
    steps = (event for events in old.steps.values() for event in events)
    return sorted((e for e in steps if e.wall_ns > begin), key=lambda e: e.wall_ns)


def lingering(old: Attempt, new: Attempt) -> dict[int, float | None]:
    """By rank, for how many seconds its process outlived the newer group's start; None where no exit was seen."""
    begin = new.start.wall_ns if new.start else 0
    unseen: dict[int, float | None] = dict.fromkeys(sorted(old.starts.keys() - old.exits.keys()))
    late = {rank: (end.wall_ns - begin) / 1e9 for rank, end in sorted(old.exits.items()) if end.wall_ns > begin}
    return unseen | late


def _lingering(old: Attempt, new: Attempt) -> dict[str, Any]:
    return {"attempt": old.number, "into": new.number, "seconds": {str(r): s for r, s in lingering(old, new).items()}}


def _told(event: Event) -> dict[str, Any]:
    return {"attempt": event.attempt, "rank": event.rank, "step": event.step, "wall_ns": event.wall_ns}


def _shown(late: list[Event]) -> str:
    if not late:
        return "no late step"
    first = late[0]
    return f"{len(late)} late steps, first step {first.step} of rank {first.rank} in attempt {first.attempt}"


def _shown_lingering(pairs: list[tuple[Attempt, Attempt]]) -> str:
    """The process that lingered longest; one whose exit nobody saw goes before all others."""
    found = [(seconds, rank, old, new) for old, new in pairs for rank, seconds in lingering(old, new).items()]
    if not found:
        return "each older process was gone by then"
    seconds, rank, old, new = max(found, key=lambda each: float("inf") if each[0] is None else each[0])
    how = "was still there at the end" if seconds is None else f"was there for {seconds:.1f} s of attempt {new.number}"
    return f"rank {rank} of attempt {old.number} {how}"
