"""Restarts: one for each attempt that faults hit, from nothing else, within the budget; and the errors told."""

from __future__ import annotations

import pytest

from metrics.budgets import check, check_failed, check_named
from metrics.expectations import UNDISTURBED, fails, restarts
from metrics.verdict import Verdict
from tests.histories import Run, faulty, healthy
from tests.stories import Hit

AGAIN = Hit(1, phase="first-step", fault="exit")
LOOP = faulty(
    (Hit(1, 5, fault="exit"),),
    (AGAIN,),
    (AGAIN,),
    max_failures=2,
    control=False,
    gives_up=True,
    expects=restarts(times=2) & fails(error="WorkerGroupError"),
)
"""A worker that crashes at every start until the budget is gone."""


@pytest.mark.parametrize("kills", [((1, 6),), ((1, 2),), ((1, 6), (0, 10)), ((1, 6), (0, 6), (1, 9))])
def test_one_restart_for_each_attempt_that_was_hit_passes(kills: tuple[tuple[int, int], ...]) -> None:
    finding = check(healthy(kills=kills).case())
    assert finding.verdict is Verdict.PASS
    assert finding.evidence == {"restarts": len(kills), "budget": 3, "decisions": ["RETRY"] * len(kills)}


@pytest.mark.parametrize("second", [Hit(0, 6), Hit(0, phase="teardown")])
def test_two_faults_in_one_attempt_cost_one_restart(second: Hit) -> None:
    finding = check(faulty((Hit(1, 6), second)).case())
    assert (finding.verdict, finding.evidence["restarts"]) == (Verdict.PASS, 1)
    assert finding.expected == "1 restart, one for each attempt that faults hit, of 3 allowed"


@pytest.mark.parametrize("phase", ["rendezvous", "restore", "first-step"])
def test_a_fault_while_the_job_comes_back_costs_a_restart_of_its_own(phase: str) -> None:
    finding = check(faulty((Hit(1, 6),), (Hit(0, phase=phase),)).case())
    assert (finding.verdict, finding.evidence["restarts"]) == (Verdict.PASS, 2)


def test_a_fault_that_breaks_nothing_costs_no_restart() -> None:
    finding = check(faulty((Hit(1, 6, fault="delay"),), expects=UNDISTURBED).case())
    assert (finding.verdict, finding.evidence["restarts"]) == (Verdict.PASS, 0)
    assert finding.seen == "0 restarts; the controller decided nothing"


def test_a_restart_because_of_a_fault_that_breaks_nothing_is_a_false_alarm() -> None:
    finding = check(healthy().change("fault.fired", fault="delay").case())
    assert (finding.verdict, finding.expected.split(",")[0]) == (Verdict.FAIL, "0 restarts")


@pytest.mark.parametrize(("times", "verdict"), [(1, Verdict.FAIL), (2, Verdict.PASS), (3, Verdict.FAIL)])
def test_a_number_of_restarts_is_met_exactly(times: int, verdict: Verdict) -> None:
    finding = check(healthy(kills=((1, 6), (0, 10))).case(), times=times)
    assert finding.verdict is verdict
    assert finding.expected == f"{times} restart{'s' if times > 1 else ''}, of 3 allowed"


def test_a_crash_loop_restarts_until_the_budget_is_gone() -> None:
    finding = check(LOOP.case(), times=2)
    assert finding.verdict is Verdict.PASS
    assert finding.seen == "2 restarts; the controller decided RETRY 2 times, RAISE"
    assert check(LOOP.case()).verdict is Verdict.FAIL  # three attempts were hit


def test_an_endless_budget_is_said_in_words() -> None:
    finding = check(healthy(max_failures=-1).case())
    assert (finding.verdict, "of any number allowed" in finding.expected) == (Verdict.PASS, True)


RED = [
    (healthy(kills=((1, 6), (0, 10))).drop("fault.fired", injection="kill-1"), "2 restarts"),  # an extra restart
    (healthy().change("controller.decision", decision="RAISE"), "the controller decided RAISE"),
    (healthy().again("controller.decision"), "the controller decided RETRY 2 times"),
    (healthy().drop("controller.decision"), "the controller decided nothing"),
    (healthy().until("process.exit", attempt=0, rank=0), "0 restarts"),
    (healthy().again("fault.fired", attempt=1), "1 restart;"),
]


@pytest.mark.parametrize(("run", "words"), RED)
def test_restarts_that_do_not_match_the_faults_fail(run: Run, words: str) -> None:
    finding = check(run.case())
    assert finding.verdict is Verdict.FAIL
    assert words in finding.seen


@pytest.mark.parametrize("times", [None, 2])
def test_more_restarts_than_the_budget_allows_fail(times: int | None) -> None:
    run = healthy(kills=((1, 6), (0, 10)), max_failures=1)
    assert check(run.case(), times=times).verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", ["controller.start", "worker.start"])
@pytest.mark.parametrize("times", [None, 0, 1])
def test_without_the_controllers_word_or_any_worker_the_answer_is_unknown(kind: str, times: int | None) -> None:
    assert check(healthy().drop(kind).case(), times=times).verdict is Verdict.UNKNOWN


def test_an_unseen_controller_leaves_the_budget_unknown() -> None:
    assert "of an unknown number allowed" in check(healthy().drop("controller.start").case()).expected


def test_a_job_that_ends_in_the_error_expected_passes() -> None:
    finding = check_failed(LOOP.case(), error="WorkerGroupError")
    assert (finding.verdict, finding.seen) == (Verdict.PASS, "ERRORED with WorkerGroupError, exit code 1")


NOT_FAILED = [
    (LOOP, "ControllerError", "ERRORED with WorkerGroupError, exit code 1"),
    (LOOP.change("workload.exit", code=0), "WorkerGroupError", "ERRORED with WorkerGroupError, exit code 0"),
    (LOOP.change("workload.exit", code=None), "WorkerGroupError", "the training script did not end"),
    (LOOP.drop("controller.state", to="ERRORED"), "WorkerGroupError", "SHUTTING_DOWN with WorkerGroupError"),
    (healthy(), "WorkerGroupError", "RESTARTING with WorkerGroupError, exit code 0"),
    (healthy(kills=()), "WorkerGroupError", "exit code 0, and no error of the controller"),
]


@pytest.mark.parametrize(("run", "error", "words"), NOT_FAILED)
def test_a_job_that_ends_well_or_otherwise_has_not_failed_as_expected(run: Run, error: str, words: str) -> None:
    finding = check_failed(run.case(), error=error)
    assert finding.verdict is Verdict.FAIL
    assert words in finding.seen


def test_whether_a_job_failed_whose_end_nobody_saw_is_unknown() -> None:
    assert check_failed(LOOP.drop("workload.exit").case(), error="WorkerGroupError").verdict is Verdict.UNKNOWN


RAISED = faulty((Hit(1, 6, fault="exception"),))


def test_the_error_of_the_rank_that_was_hit_passes_with_its_message() -> None:
    finding = check_named(RAISED.case(), error="InjectedError")
    assert (finding.verdict, finding.seen) == (Verdict.PASS, "rank 1: InjectedError")
    assert finding.evidence == {"messages": ["told"]}


def test_one_of_several_ranks_that_were_hit_is_enough() -> None:
    run = faulty((Hit(1, 6, fault="exception"), Hit(0, 6)))
    assert check_named(run.case(), error="InjectedError").verdict is Verdict.PASS


NOT_NAMED = [
    (RAISED, "MemoryError", "rank 1: InjectedError"),
    (RAISED, "RuntimeError", "rank 1: InjectedError"),  # that of its peer
    (healthy(), "InjectedError", "rank 1: WorkerHealthCheckFailedError"),
    (RAISED.change("worker.error", {"rank": 1}, error="RayTaskError"), "InjectedError", "rank 1: RayTaskError"),
]


@pytest.mark.parametrize(("run", "error", "words"), NOT_NAMED)
def test_another_error_than_the_one_expected_fails(run: Run, error: str, words: str) -> None:
    finding = check_named(run.case(), error=error)
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, words)


@pytest.mark.parametrize(
    "run",
    [
        RAISED.drop("worker.error"),
        RAISED.drop("worker.error", rank=1),
        RAISED.drop("fault.fired"),
        RAISED.change("worker.error", {"rank": 1}, attempt=1),
    ],
)
def test_without_an_error_of_a_rank_that_was_hit_the_answer_is_unknown(run: Run) -> None:
    assert check_named(run.case(), error="InjectedError").verdict is Verdict.UNKNOWN
