"""A kill is confirmed by the exit of the very process that fired it, and by nothing else."""

from __future__ import annotations

import pytest

from chaos.history import HistoryWriter
from chaos.runner import CONFIRM_S, confirm_kills

SECOND = 10**9


@pytest.fixture
def run(tmp_path, event):
    """Tell the observer of events; the confirmations so far."""
    told = []
    writer = HistoryWriter(tmp_path, [told.append])
    observe = confirm_kills(writer)

    def fired(pid=7, injection="kill-0"):
        data = {"injection": injection}
        observe(event("fault.fired", wall=SECOND, pid=pid, attempt=0, rank=1, step=25, data=data))

    def gone(pid=7, after=0.01, seen="at once"):
        observe(event("process.exit", wall=SECOND + round(after * SECOND), data={"pid": pid, "seen": seen}))
        return told

    yield fired, gone
    writer.close()


def test_an_exit_right_after_the_fault_confirms_it(run):
    fired, gone = run
    fired()
    (confirmed,) = gone(after=0.25)
    assert (confirmed.kind, confirmed.attempt, confirmed.rank, confirmed.step) == ("fault.confirmed", 0, 1, 25)
    evidence = {"evidence": "process 7 left the process table", "after_ms": 250.0, "seen": "at once"}
    assert confirmed.data == {"injection": "kill-0", **evidence}


@pytest.mark.parametrize(
    ("after", "seen", "confirmed"),
    [(CONFIRM_S, "at once", 1), (CONFIRM_S + 0.001, "at once", 0), (30.0, "late", 1)],
    ids=["at the bound", "beyond the bound", "found gone later"],
)
def test_a_process_that_outlives_its_fault_did_not_die_of_it(run, after, seen, confirmed):
    fired, gone = run
    fired()
    assert len(gone(after=after, seen=seen)) == confirmed


def test_the_exit_of_another_process_confirms_nothing(run):
    fired, gone = run
    fired(pid=7)
    assert gone(pid=8) == []


def test_an_exit_without_a_fault_confirms_nothing(run):
    _, gone = run
    assert gone() == []


def test_one_exit_confirms_one_fault_once(run):
    fired, gone = run
    fired(pid=7, injection="kill-0")
    fired(pid=8, injection="kill-1")
    gone(pid=7)
    gone(pid=7)
    assert [event.data["injection"] for event in gone(pid=8)] == ["kill-0", "kill-1"]
