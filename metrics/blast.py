"""Whether a fault hurt only those that it was meant to hurt."""

from __future__ import annotations

from chaos.faults.base import Attack, all_faults
from chaos.history import Event
from metrics.attempts import Attempt
from metrics.verdict import Case, Finding, Verdict

CHECK = "blast-radius"

TAKEN_DOWN = ("RESTARTING", "RESCHEDULING", "RESIZING", "SHUTTING_DOWN")
"""States of the controller in which it ends the processes of a group itself."""


def check(case: Case) -> Finding:
    """Nobody died by a fault but those that it hit: no training process before its group was taken down, and no node.

    A fault that hits a node hits every rank on it.
    """
    expected = "no process and no node dies by the faults but those that they hit"
    fired = case.history.select("fault.fired")
    if not fired:
        return Finding(CHECK, Verdict.UNKNOWN, expected, "no fault fired")
    if case.history.first("residue.checked") is None:
        return Finding(CHECK, Verdict.UNKNOWN, expected, "nobody watched the processes to their end")
    if why := _untold(case):
        return Finding(CHECK, Verdict.UNKNOWN, expected, why)
    hurt = [_told(event) for attempt in case.attempts for event in _hurt(case, attempt, fired)]
    hurt += [f"node {name} died, and no fault had hit it" for name in _dead_nodes(case, fired)]
    watched = sum(len(attempt.starts) for attempt in case.attempts)
    seen = "; ".join(hurt) or f"{watched} training processes, none hurt but where faults hit"
    evidence = {"hurt": hurt} if hurt else {}
    return Finding(CHECK, Verdict.FAIL if hurt else Verdict.PASS, expected, seen, evidence=evidence)


def _untold(case: Case) -> str:
    """What of the processes cannot be told apart from a group taken down; empty when all can."""
    if not any(attempt.starts for attempt in case.attempts):
        return "no training process was seen"
    open_ended = [a.number for a in case.attempts if a.exits and _taken_down_ns(case, a) is None]
    return f"when the group of attempt {open_ended[0]} was taken down is not known" if open_ended else ""


def _taken_down_ns(case: Case, attempt: Attempt) -> int | None:
    """When the controller began to end the processes of an attempt; None where no event tells."""
    shutdowns = case.history.select("attempt.shutdown", attempt=attempt.number)
    changes = case.history.select("controller.state", attempt=attempt.number)
    ends = [*shutdowns, *(change for change in changes if change.data["to"] in TAKEN_DOWN)]
    return min((event.wall_ns for event in ends), default=None)


def _dead_nodes(case: Case, fired: list[Event]) -> list[str]:
    """The nodes that died after the first fault and that no fault hit; Ray also remembers those of an earlier run."""
    hit = {str(event.data.get("node")) for event in fired if _hits_node(event)}
    died = [e for e in case.history.select("cluster.node.dead") if e.wall_ns >= fired[0].wall_ns]
    return sorted({str(event.data["name"]) for event in died} - hit)


def _hurt(case: Case, attempt: Attempt, fired: list[Event]) -> list[Event]:
    """The ends of processes of an attempt that no fault hit, from before the controller took the group down."""
    mine = [event for event in fired if event.attempt == attempt.number]
    hit = {event.rank for event in mine}
    lost = {attempt.starts[e.rank].node for e in mine if _hits_node(e) and e.rank in attempt.starts}
    hit |= {rank for rank, start in attempt.starts.items() if start.node in lost}
    border = _taken_down_ns(case, attempt) or 0
    return [end for rank, end in sorted(attempt.exits.items()) if rank not in hit and end.wall_ns < border]


def _hits_node(event: Event) -> bool:
    fault = all_faults().get(str(event.data.get("fault")))
    return fault is not None and issubclass(fault, Attack) and fault.on_node


def _told(end: Event) -> str:
    how = f" ({end.data['cause']})" if end.data.get("cause") else ""
    return f"rank {end.rank} of attempt {end.attempt} ended{how}, and no fault had hit it"
