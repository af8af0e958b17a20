"""Synthetic runs on nodes that come and go: ``healthy()``, and what the harness and the controller tell of it."""

from __future__ import annotations

import itertools
from typing import Any

from chaos.history import Event
from tests.histories import Run, healthy
from tests.stories import BEGIN_NS, MS

ADDRESSES = {"w0": "127.9.9.11", "w1": "127.9.9.12"}
"""Rank n runs on node wn."""


def happened(kind: str, wall_ns: int, attempt: int | None = None, rank: int | None = None, **data: Any) -> Event:
    mono = wall_ns - BEGIN_NS + 1_000
    return Event(kind=kind, wall_ns=wall_ns, mono_ns=mono, node="harness", pid=9, attempt=attempt, rank=rank, data=data)


def through(run: Run, attempt: int, *states: str, error: str = "WorkerGroupError") -> Run:
    """The controller goes through other states between two attempts, each a millisecond after the one before."""
    begin = run.select("controller.state", attempt=attempt, to="RESTARTING")[0].wall_ns
    run = run.drop("controller.state", attempt=attempt, to="RESTARTING")
    run = run.drop("controller.state", **{"attempt": attempt, "from": "RESTARTING"})
    for place, (before, after) in enumerate(itertools.pairwise(states)):
        told = {"error": error, "message": "told"} if after == "RESTARTING" and error else {}
        state = happened("controller.state", begin + place * MS, attempt, **{"from": before, "to": after}, **told)
        run = run.add(state)
    return run


def resized(run: Run, attempt: int = 0) -> Run:
    """The group is taken down to be started in another size: no error, no decision, no fault."""
    run = run.drop("fault.fired", attempt=attempt).drop("controller.decision", attempt=attempt)
    return through(run, attempt, "RUNNING", "RESIZING", "SCHEDULING")


def preempted(run: Run, attempt: int = 0, error: str = "PreemptionError") -> Run:
    """The group is given up because a node was to be taken away."""
    return through(run, attempt, "RUNNING", "PREEMPTING", "RESTARTING", "SCHEDULING", error=error)


def failing(run: Run, attempt: int = 1, times: int = 1) -> Run:
    """The group of that attempt comes up only after some that did not."""
    base = run.select("schedule.begin", attempt=attempt)[0].wall_ns - 100 * MS
    for place in range(times):
        at_ns, last = base + 10 * place * MS, max(0, attempt - 1)
        failed = {"error": "ControllerError", "message": "no placement group in time"}
        run = run.add(
            happened("schedule.begin", at_ns, attempt, workers=2),
            happened("controller.decision", at_ns + MS, attempt - 1, decision="RETRY"),
            happened(
                "controller.state", at_ns + 2 * MS, last, **{"from": "SCHEDULING", "to": "RESCHEDULING"}, **failed
            ),
            happened("controller.state", at_ns + 3 * MS, last, **{"from": "RESCHEDULING", "to": "SCHEDULING"}),
        )
    return run


def worlds(run: Run, *sizes: int) -> Run:
    """The attempts have these world sizes."""
    for attempt, size in enumerate(sizes):
        run = run.change("attempt.start", {"attempt": attempt}, world_size=size)
    return run


def fired_ns(run: Run) -> int:
    return run.select("fault.fired")[0].wall_ns


def on_nodes(run: Run) -> Run:
    """Told which node each rank is on, and that Ray's GCS holds all for alive."""
    for rank, (name, address) in enumerate(ADDRESSES.items()):
        run = run.change("worker.start", {"rank": rank}, node=address)
        up = happened("cluster.node.up", BEGIN_NS + 3000 * MS, name=name, address=address)
        run = run.add(up, happened("cluster.node.alive", BEGIN_NS + 3500 * MS, name=name, node_id="aa"))
    return run


def without_node(fault: str = "drop-node", lost_ms: float | None = 100, dead_ms: float | None = 900) -> Run:
    """Node w1 is hit after step 6; it is gone, and Ray's GCS knows it, so many milliseconds later; None for never.

    Rank 0 fails 298 ms after the fault, and the controller acts after 300 ms.
    """
    run = on_nodes(healthy()).change("fault.fired", fault=fault)
    if lost_ms is not None:
        run = run.add(node("lost", fired_ns(run) + lost_ms * MS))
    if dead_ms is not None:
        run = run.add(node("dead", fired_ns(run) + dead_ms * MS))
    return run


def node(what: str, wall_ns: float, name: str = "w1", **data: Any) -> Event:
    told = {"address": ADDRESSES[name]} if what in ("lost", "up") else {"node_id": "bb", "resolution_ms": 50}
    return happened(f"cluster.node.{what}", int(wall_ns), name=name, **told, **data)


def waiting(cpu_share: float | None = 0.1, interrupted_s: float | None = 3.0) -> Run:
    """A job that waited for capacity for 30 s, and was then interrupted."""
    run = through(healthy(), 0, "RUNNING", "RESTARTING", "SCHEDULING")
    begin = run.select("controller.state", attempt=0, to="SCHEDULING")[0].wall_ns
    return run.add(
        happened("probe.waiting", begin + 30_100 * MS, seconds=30.0, cpu_share=cpu_share, states=4),
        happened("workload.interrupted", begin + 40_000 * MS, signal="SIGINT", seconds=interrupted_s),
    )
