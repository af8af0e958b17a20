"""Never two groups at once: a late step of an older group is red, a process that only lingers is told."""

from __future__ import annotations

import pytest

from metrics.groups import check
from metrics.verdict import Finding, Verdict
from tests.capacity import resized
from tests.histories import Run, healthy

TWICE = healthy(kills=((1, 6), (0, 10)))


def found(run: Run) -> Finding:
    return check(run.case())


def start_ns(run: Run, attempt: int) -> int:
    return run.select("attempt.start", attempt=attempt)[0].wall_ns


def late(run: Run, attempt: int, ms: float, rank: int = 0) -> Run:
    """That rank of an attempt completes one more step, so long after the start of the next attempt."""
    at_ns = start_ns(run, attempt + 1) + int(ms * 1e6)
    last = run.select("step.end", attempt=attempt, rank=rank)[-1]
    return run.again("step.end", {"attempt": attempt, "rank": rank}, wall_ns=at_ns, step=(last.step or 0) + 1)


def outlives(run: Run, attempt: int, seconds: float, rank: int = 0) -> Run:
    """The process of a rank exits so long after the start of the next attempt."""
    at_ns = start_ns(run, attempt + 1) + int(seconds * 1e9)
    return run.change("process.exit", {"attempt": attempt, "rank": rank}, wall_ns=at_ns)


@pytest.mark.parametrize("run", [healthy(), TWICE, resized(healthy())])
def test_groups_that_follow_each_other_pass(run: Run) -> None:
    finding = found(run)
    assert finding.verdict is Verdict.PASS
    assert finding.seen.endswith("groups, no late step; each older process was gone by then")
    assert finding.evidence["late_steps"] == []
    assert all(told["seconds"] == {} for told in finding.evidence["lingering"])


@pytest.mark.parametrize("ms", [0.001, 5, 500, 60_000])
@pytest.mark.parametrize("attempt", [0, 1])
def test_a_step_of_an_older_group_after_a_newer_ones_start_is_red(attempt: int, ms: float) -> None:
    finding = found(late(TWICE, attempt, ms))
    assert finding.verdict is Verdict.FAIL
    step = (7, 11)[attempt]
    assert f"1 late steps, first step {step} of rank 0 in attempt {attempt}" in finding.seen
    assert [told["step"] for told in finding.evidence["late_steps"]] == [step]


def test_a_step_right_at_the_start_of_the_newer_group_is_none() -> None:
    assert found(late(TWICE, 0, 0)).verdict is Verdict.PASS


def test_all_late_steps_are_counted_and_the_first_is_told() -> None:
    finding = found(late(late(late(TWICE, 1, 9), 0, 7), 0, 5, rank=1))
    assert "3 late steps, first step 7 of rank 1 in attempt 0" in finding.seen


def test_a_process_that_lingers_without_a_step_is_told_and_not_red() -> None:
    finding = found(outlives(healthy(), 0, 3.2))
    assert finding.verdict is Verdict.PASS
    assert finding.seen == "2 groups, no late step; rank 0 of attempt 0 was there for 3.2 s of attempt 1"
    assert finding.evidence["lingering"] == [{"attempt": 0, "into": 1, "seconds": {"0": 3.2}}]


def test_the_longest_lingering_is_told() -> None:
    finding = found(outlives(outlives(TWICE, 0, 1.0), 1, 2.5, rank=1))
    assert finding.seen.endswith("rank 1 of attempt 1 was there for 2.5 s of attempt 2")


def test_a_process_whose_exit_nobody_saw_was_there_at_the_end() -> None:
    finding = found(outlives(TWICE, 0, 9.0).drop("process.exit", attempt=1, rank=1))
    assert finding.verdict is Verdict.PASS
    assert finding.seen.endswith("rank 1 of attempt 1 was still there at the end")
    assert finding.evidence["lingering"][1]["seconds"] == {"1": None}


BLIND = [
    (healthy(kills=()), "there were no two groups"),
    (healthy().drop("attempt.start", attempt=1), "the start of attempt 1 was not recorded"),
    (TWICE.drop("attempt.start", attempt=2), "the start of attempt 2 was not recorded"),
    (healthy().drop("worker.start"), "there were no two groups"),
    (healthy().drop("step.end"), "no step was seen"),
    (healthy().drop("step.end", attempt=0), "no step of an older group was seen"),
]


@pytest.mark.parametrize(("run", "words"), BLIND)
def test_without_two_groups_that_were_seen_the_answer_is_unknown(run: Run, words: str) -> None:
    finding = found(run)
    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, words)


def test_the_start_of_the_first_group_is_not_needed() -> None:
    assert found(healthy().drop("attempt.start", attempt=0)).verdict is Verdict.PASS
