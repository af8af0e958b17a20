"""Who noticed the loss of a node, and when: the peers, Ray's node health check, Ray Train's controller.

And what the job made of it: starts that failed for want of capacity, and how old a change of capacity was when the job
at last asked for a group of the new size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from chaos.history import Event, History
from metrics.attempts import Attempt
from metrics.budgets import counted, failed_starts
from metrics.verdict import Case, Finding, Verdict

LOSING = ("drop-node", "drain-node", "freeze-node")
"""Faults that cost a node: it is killed at once, killed at the end of a notice, or given up by Ray."""

KILLING_NS = 2_000_000_000
"""How long before its end the killing of a node may have begun, where no fault of its own tells."""

LAYERS = {"peers": "peers", "ray": "Ray's node health", "controller": "controller"}
"""Who can notice, in words."""

CONTROLLER_S = 0.001
"""Resolution of the controller's own events; it looks once a poll."""


@dataclass(frozen=True)
class Loss:
    """A node that was lost. ``at_ns``: when it was gone. ``since_ns``: from when on anybody could know of it."""

    node: str
    address: str
    since_ns: int
    at_ns: int

    def seconds(self, notice: Event | None) -> float | None:
        """From the loss to a notice; negative for one that came before it, as a drain does."""
        return None if notice is None else (notice.wall_ns - self.at_ns) / 1e9


def losses(case: Case) -> list[Loss]:
    """Every loss of a node, in order: told by the harness, which killed it, else by the fault alone."""
    history = case.history
    fired = [e for e in history.select("fault.fired") if e.data.get("fault") in LOSING]
    killed = [_killed(history, lost, _cause(lost, fired)) for lost in history.select("cluster.node.lost")]
    untold = [_untold(history, event) for event in fired]
    return sorted((loss for loss in (*killed, *untold) if loss), key=lambda loss: loss.at_ns)


def _cause(lost: Event, fired: list[Event]) -> Event | None:
    """The fault that a node was killed by: the latest before, on that node."""
    mine = [e for e in fired if e.data.get("node") == lost.data["name"] and e.wall_ns <= lost.wall_ns]
    return mine[-1] if mine else None


def _killed(history: History, lost: Event, cause: Event | None) -> Loss | None:
    """The loss of a node that was killed; None where Ray had been made to give it up before."""
    if cause is not None and cause.data["fault"] == "freeze-node":
        return None
    name, began = lost.data["name"], cause.wall_ns if cause else 0
    earlier = [e for e in _of_node(history, "cluster.node.lost", name) if began <= e.wall_ns < lost.wall_ns]
    if cause is None or earlier:  # a fault that comes again: only its first time is told by its firing
        ups = [e.wall_ns for e in _of_node(history, "cluster.node.up", name) if e.wall_ns < lost.wall_ns]
        began = max(lost.wall_ns - KILLING_NS, *ups, 0)
    return Loss(name, lost.data["address"], began, lost.wall_ns)


def _untold(history: History, fired: Event) -> Loss | None:
    """The loss by a fault that kills no node, or of which no kill was recorded; a notice alone is none."""
    fault, node = fired.data["fault"], str(fired.data.get("node", ""))
    told = any(e.wall_ns >= fired.wall_ns for e in _of_node(history, "cluster.node.lost", node))
    if fault == "drain-node" or (fault == "drop-node" and told):
        return None
    return Loss(node, _address(history, node), fired.wall_ns, fired.wall_ns)


def _of_node(history: History, kind: str, name: str) -> list[Event]:
    return [e for e in history.select(kind) if e.data.get("name") == name]


def _address(history: History, name: str) -> str:
    told = [e.data["address"] for kind in ("start", "up") for e in _of_node(history, f"cluster.node.{kind}", name)]
    return str(told[-1]) if told else ""


def notices(case: Case, loss: Loss) -> dict[str, Event | None]:
    """By layer, the event by which it told of a loss; None where it never did."""
    dead = _of_node(case.history, "cluster.node.dead", loss.node)
    return {"peers": _by_peers(case, loss), "ray": _first(dead, loss), "controller": _by_controller(case, loss)}


def _first(events: Iterable[Event], loss: Loss) -> Event | None:
    return next((e for e in events if e.wall_ns >= loss.since_ns), None)


def _by_peers(case: Case, loss: Loss) -> Event | None:
    """The first error, as the controller heard it, of a rank that lives on elsewhere than on the lost node."""
    groups = [a for a in case.attempts if a.start is not None and a.start.wall_ns <= loss.at_ns]
    if not groups:
        return None
    dead = {rank for rank, start in groups[-1].starts.items() if start.node == loss.address}
    errors = case.history.select("worker.error", attempt=groups[-1].number)
    return _first((e for e in errors if dead and e.rank not in dead), loss)


def _by_controller(case: Case, loss: Loss) -> Event | None:
    changes = case.history.select("controller.state")
    pairs = itertools.zip_longest(changes, changes[1:])
    return _first((event for event, after in pairs if _reacts(event, after)), loss)


def _reacts(change: Event, after: Event | None) -> bool:
    """Whether the controller gives up what it was doing; a job that ends well does not."""
    if change.data["to"] == "SHUTTING_DOWN":
        return after is not None and bool(after.data["to"] == "ERRORED")
    return bool(change.data["from"] == "RUNNING" or change.data["to"] == "RESCHEDULING")


def check(case: Case, within: float) -> Finding:
    """Ray and the controller noticed each loss of a node within so many seconds; what the peers told is shown."""
    name, expected = "layers", f"Ray and the controller notice the loss of a node within {within:g} s"
    if why := _blind(case):
        return Finding(name, Verdict.UNKNOWN, expected, why)
    found = [(loss, notices(case, loss)) for loss in losses(case)]
    verdicts = {verdict for loss, told in found for verdict in _verdicts(case, loss, told, within)}
    worst = next(v for v in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS) if v in verdicts)
    seen = "; ".join((f"{loss.node}: " if len(found) > 1 else "") + _shown(loss, told) for loss, told in found)
    evidence = {"losses": [_told(case, loss, told) for loss, told in found]}
    return Finding(name, worst, expected, seen, evidence=evidence)


def _blind(case: Case) -> str:
    """What is missing to judge by; empty when nothing is."""
    history = case.history
    if not losses(case):
        return "no node was lost"
    if not history.select("controller.state"):
        return "the controller was not seen"
    asked = history.select("cluster.node.alive") or history.select("cluster.node.dead")
    return "" if asked else "nobody asked Ray's GCS for its nodes"


def _verdicts(case: Case, loss: Loss, told: dict[str, Event | None], within: float) -> tuple[Verdict, Verdict]:
    """Ray's and the controller's. Silence fails only where there was time to speak, and reason to."""
    ended = case.history.first("workload.exit")
    over = (ended or case.history.events[-1]).wall_ns - loss.at_ns >= within * 1e9
    reason = _was_running(case, loss)
    ray, controller = loss.seconds(told["ray"]), loss.seconds(told["controller"])
    return _verdict(ray, within, over), _verdict(controller, within, reason and (over or ended is not None))


def _verdict(seconds: float | None, within: float, silence_counts: bool) -> Verdict:
    if seconds is None:
        return Verdict.FAIL if silence_counts else Verdict.UNKNOWN
    return Verdict.PASS if seconds <= within else Verdict.FAIL


def _was_running(case: Case, loss: Loss) -> bool:
    """Whether the controller had a running group to lose a part of."""
    before = [e for e in case.history.select("controller.state") if e.wall_ns <= loss.since_ns]
    return bool(before) and before[-1].data["to"] == "RUNNING"


def _shown(loss: Loss, told: dict[str, Event | None]) -> str:
    return ", ".join(f"{LAYERS[layer]} {_when(loss.seconds(notice))}" for layer, notice in told.items())


def _when(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    return f"{seconds:.1f} s" if seconds >= 0 else f"{-seconds:.1f} s before"


def _told(case: Case, loss: Loss, told: dict[str, Event | None]) -> dict[str, Any]:
    """Seconds by layer, and what each is exact to."""
    ray = told["ray"]
    ray_s = ray.data["resolution_ms"] / 1000 if ray and "resolution_ms" in ray.data else None
    return {
        "node": loss.node,
        "seconds": {layer: loss.seconds(notice) for layer, notice in told.items()},
        "resolution_s": {"peers": case.record.poll_s, "ray": ray_s, "controller": CONTROLLER_S},
    }


@dataclass(frozen=True)
class Resize:
    """A group of another size than the one before; and the change of capacity that it answers, where one was seen."""

    before: Attempt
    after: Attempt
    change: Event | None

    @property
    def seconds(self) -> float | None:
        """How old the change was when the group was asked for."""
        if self.change is None or self.after.schedule is None:
            return None
        return (self.after.schedule.wall_ns - self.change.wall_ns) / 1e9

    @property
    def told(self) -> dict[str, Any]:
        """As evidence."""
        change = {"change": self.change.kind, "node": self.change.data.get("name")} if self.change else {}
        sizes = {"attempt": self.after.number, "from": self.before.world_size, "to": self.after.world_size}
        return {**sizes, **change, "seconds": self.seconds}

    def __str__(self) -> str:
        sizes = f"{self.before.world_size} -> {self.after.world_size} workers"
        if self.change is None or self.seconds is None:
            return f"{sizes} without a change of capacity seen"
        node, became = self.change.data.get("name"), self.change.kind.rsplit(".")[-1]
        return f"{sizes} {self.seconds:.1f} s after {node} was {became}"


def resizes(case: Case) -> list[Resize]:
    """Every change of the group's size from one attempt to the next, whatever its reason."""
    pairs = itertools.pairwise(attempt for attempt in case.attempts if attempt.world_size)
    return [Resize(a, b, _answered(case, a, b)) for a, b in pairs if a.world_size != b.world_size]


def _answered(case: Case, before: Attempt, after: Attempt) -> Event | None:
    """The first fitting change of capacity after the older group was asked for and before the newer one was."""
    begin, end = before.schedule or before.start, after.schedule
    if begin is None or end is None:
        return None
    lost = ("cluster.node.lost", "cluster.node.dead")
    kinds = ("cluster.node.up",) if after.world_size > before.world_size else lost
    return next((e for e in case.history if e.kind in kinds and begin.wall_ns <= e.wall_ns <= end.wall_ns), None)


def check_rescheduling(case: Case, times: int) -> Finding:
    """No more than so many groups failed to start; how stale capacity was that resizes answered is shown."""
    name, expected = "rescheduling", f"at most {counted(times, 'failed start')}"
    if not case.history.select("controller.state"):
        return Finding(name, Verdict.UNKNOWN, expected, "the controller was not seen")
    failed, sized = failed_starts(case), resizes(case)
    seen = "; ".join([counted(len(failed), "failed start"), *map(str, sized)])
    errors = [str(event.data.get("error", "")) for event in failed]
    evidence = {"failed_starts": errors, "resizes": [resize.told for resize in sized]}
    verdict = Verdict.PASS if len(failed) <= times else Verdict.FAIL
    return Finding(name, verdict, expected, seen, evidence=evidence)
