"""Whom a fault hurt beside its target, from the ends of processes and the deaths of nodes."""

from __future__ import annotations

import pytest

from chaos.history import Event
from metrics.blast import check
from metrics.verdict import Verdict
from tests.capacity import on_nodes
from tests.histories import Run, faulty, healthy
from tests.stories import MS, Hit

KILLED = healthy()


def ended(run: Run, rank: int, after_ms: int, attempt: int = 0, cause: str = "SIGABRT") -> Run:
    """With the end of that rank's process so long after the first fault, instead of the one that was told."""
    (fired, *_) = run.select("fault.fired")
    at = fired.wall_ns + after_ms * MS
    data = {"pid": 1, "start": 1, "seen": "at once", "cause": cause}
    end = Event(kind="process.exit", wall_ns=at, mono_ns=0, node="n", pid=1, attempt=attempt, rank=rank, data=data)
    return run.drop("process.exit", rank=rank, attempt=attempt).add(end)


def died(run: Run, name: str, after_ms: int) -> Run:
    (fired, *_) = run.select("fault.fired")
    at = fired.wall_ns + after_ms * MS
    return run.add(Event(kind="cluster.node.dead", wall_ns=at, mono_ns=0, node="n", pid=1, data={"name": name}))


@pytest.mark.parametrize(
    "run",
    [
        KILLED,
        healthy(kills=((1, 6), (0, 10))),
        faulty((Hit(1, 6), Hit(0, 6))),
        faulty((Hit(1, 6, fault="delay"),)),
        faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 10),)),
        faulty((Hit(1, 6),), gives_up=True),
    ],
    ids=["a kill", "two kills", "two at once", "a disturbance", "elastic", "the job gives up"],
)
def test_the_ends_that_a_healthy_run_has_hurt_nobody(run: Run) -> None:
    finding = check(run.case())
    assert finding.verdict is Verdict.PASS, finding.seen
    assert "none hurt but where faults hit" in finding.seen


def test_a_peer_that_dies_before_its_group_is_taken_down_was_hurt() -> None:
    finding = check(ended(KILLED, 0, after_ms=100).case())
    assert finding.verdict is Verdict.FAIL
    assert finding.seen == "rank 0 of attempt 0 ended (SIGABRT), and no fault had hit it"


def test_a_peer_that_dies_while_its_group_is_taken_down_was_not() -> None:
    assert check(ended(KILLED, 0, after_ms=400).case()).verdict is Verdict.PASS


def test_a_rank_that_dies_in_an_attempt_that_no_fault_hit_was_hurt() -> None:
    finding = check(ended(KILLED, 1, after_ms=4_500, attempt=1).case())
    assert finding.verdict is Verdict.FAIL
    assert "rank 1 of attempt 1" in finding.seen


def test_a_fault_that_hits_a_node_hits_every_rank_on_it() -> None:
    alone = on_nodes(ended(KILLED, 0, after_ms=100)).change("fault.fired", fault="drop-node", node="w0")
    assert check(alone.change("worker.start", node="n1").case()).verdict is Verdict.PASS
    apart = alone.change("worker.start", {"rank": 0}, node="n0").change("worker.start", {"rank": 1}, node="n1")
    assert check(apart.case()).verdict is Verdict.FAIL


def test_a_node_that_no_fault_hit_and_that_dies_was_hurt() -> None:
    run = KILLED.change("fault.fired", fault="drop-node", node="w1")
    assert check(died(run, "w1", 500).case()).verdict is Verdict.PASS
    assert check(died(run, "w0", -500).case()).verdict is Verdict.PASS, "Ray remembers the nodes of an earlier run"
    finding = check(died(run, "w0", 500).case())
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, "node w0 died, and no fault had hit it")


def test_a_fault_on_a_process_spares_its_node() -> None:
    assert check(died(KILLED, "w1", 500).case()).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (healthy(kills=()), "no fault fired"),
        (KILLED.drop("residue.checked"), "nobody watched the processes to their end"),
        (KILLED.drop("worker.start"), "no training process was seen"),
        (
            KILLED.drop("attempt.shutdown", attempt=0).drop("controller.state", attempt=0),
            "when the group of attempt 0 was taken down is not known",
        ),
    ],
)
def test_what_nobody_saw_is_unknown(run: Run, words: str) -> None:
    finding = check(run.case())
    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, words)
