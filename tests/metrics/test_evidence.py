"""The fault itself, and whether the history is whole."""

from __future__ import annotations

import pytest

from metrics.evidence import check_fault, check_history
from metrics.verdict import Verdict
from tests.histories import Run, healthy

TWO = ((1, 6), (0, 10))


def test_a_fault_that_fired_at_its_step_and_was_seen_passes():
    finding = check_fault(healthy().case())
    assert finding.verdict is Verdict.PASS
    assert finding.expected == "kill rank 1 right after step 6"
    assert finding.seen == "process left the process table 50.0 ms after the fault fired"
    assert finding.evidence["kill-0"]["after_ms"] == 50.0


def test_two_faults_at_their_steps_pass():
    finding = check_fault(healthy(kills=TWO).case())
    assert finding.verdict is Verdict.PASS
    assert finding.seen.startswith("2 of 2 at their steps")


RED = [
    (healthy().change("fault.fired", step=7), "kill-0 fired in rank 1 after step 7"),
    (healthy().change("fault.fired", rank=0), "kill-0 fired in rank 0 after step 6"),
    (healthy().again("fault.fired"), "kill-0 fired 2 times"),
    (healthy(kills=TWO).again("fault.fired", {"injection": "kill-1"}), "kill-1 fired 2 times"),
    (healthy().again("fault.fired", step=11), "kill-0 fired 2 times"),
]


@pytest.mark.parametrize(("run", "words"), RED)
def test_a_fault_at_the_wrong_place_or_twice_fails(run: Run, words: str):
    finding = check_fault(run.case())
    assert finding.verdict is Verdict.FAIL
    assert words in finding.seen


BLIND = [
    (healthy().drop("fault.fired"), "0 of 1 fired"),
    (healthy(kills=TWO).drop("fault.fired", injection="kill-1"), "1 of 2 fired"),
    (healthy(kills=()), "the scenario injects nothing"),
    (healthy().drop("fault.confirmed"), "no effect was seen of kill-0"),
    (healthy(kills=TWO).drop("fault.confirmed", injection="kill-1"), "no effect was seen of kill-1"),
]


@pytest.mark.parametrize(("run", "words"), BLIND)
def test_a_fault_without_evidence_is_unknown(run: Run, words: str):
    finding = check_fault(run.case())
    assert finding.verdict is Verdict.UNKNOWN
    assert words in finding.seen


def test_a_firing_of_an_injection_nobody_asked_for_fails():
    finding = check_fault(healthy().change("fault.fired", injection="stray").case())
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, "stray fired 1 times, nobody asked for it")


def test_a_whole_history_passes_with_its_number_of_events():
    run = healthy()
    finding = check_history(run.case())
    assert (finding.verdict, finding.seen) == (Verdict.PASS, f"{len(run.events)} events")


@pytest.mark.parametrize("kind", ["run.start", "run.healed", "run.end"])
def test_a_history_without_its_beginning_or_end_is_unknown(kind: str):
    finding = check_history(healthy().drop(kind).case())
    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, f"no {kind}: the history was cut")


def test_a_mistake_of_the_agent_makes_the_history_unknown():
    run = healthy().again("run.start", kind="agent.error", error="Session.end: KeyError()")
    finding = check_history(run.case())
    assert finding.verdict is Verdict.UNKNOWN
    assert "the agent failed 1 times, first: Session.end: KeyError()" in finding.seen


def test_unreadable_lines_are_counted_and_make_the_history_unknown():
    finding = check_history(healthy().case(unreadable=3))
    assert finding.verdict is Verdict.UNKNOWN
    assert "3 unreadable lines" in finding.seen
