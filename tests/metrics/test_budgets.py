"""Restarts: one for each attempt that faults hit, from nothing else, within the budget; and the errors told."""

from __future__ import annotations

import pytest

from metrics.budgets import (
    budgets,
    check,
    check_failed,
    check_named,
    check_preemptions,
    check_worlds,
    failed_starts,
    reasons,
)
from metrics.expectations import UNDISTURBED, fails, restarts
from metrics.verdict import Verdict
from tests.capacity import failing, happened, preempted, resized, through, worlds
from tests.histories import Run, faulty, healthy
from tests.stories import MS, Hit

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
    told = {"restarts": len(kills), "budget": 3, "decisions": ["RETRY"] * len(kills)}
    assert finding.evidence == {**told, "classes": ["failure"] * len(kills), "failed_starts": 0}


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


# Classes of restarts

TWICE = healthy(kills=((1, 6), (0, 10)))
"""Two restarts because of failures."""


def test_each_new_beginning_has_the_reason_that_the_controller_acted_on() -> None:
    assert reasons(TWICE.case()) == ["failure", "failure"]
    assert reasons(resized(TWICE, 1).case()) == ["failure", "resize"]
    assert reasons(preempted(TWICE).case()) == ["preemption", "failure"]
    assert reasons(preempted(resized(TWICE), 1).case()) == ["resize", "preemption"]
    assert reasons(healthy(kills=()).case()) == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [("PreemptionError", "preemption"), ("", "preemption"), ("WorkerGroupError", "failure")],
)
def test_a_preemption_that_ends_in_another_error_is_charged_as_that_error(error: str, reason: str) -> None:
    assert reasons(preempted(healthy(), error=error).case()) == [reason]


def test_a_worker_that_died_with_a_node_taken_away_is_a_preemption_without_any_notice() -> None:
    assert reasons(healthy().change("controller.state", {"to": "RESTARTING"}, preempted=True).case()) == ["preemption"]


def test_an_unseen_preemption_is_told_by_its_error() -> None:
    run = through(healthy(), 0, "RUNNING", "RESTARTING", "SCHEDULING", error="PreemptionError")
    assert reasons(run.case()) == ["preemption"]


def test_a_restart_without_an_error_told_is_a_failure() -> None:
    assert reasons(through(healthy(), 0, "RUNNING", "RESTARTING", "SCHEDULING", error="").case()) == ["failure"]


def test_a_resize_that_first_fails_to_start_is_still_one() -> None:
    assert reasons(failing(resized(healthy()), times=2).case()) == ["resize"]


def test_a_resize_is_no_restart() -> None:
    run = resized(TWICE, 1)
    finding = check(run.case())
    assert (finding.verdict, finding.evidence["restarts"]) == (Verdict.PASS, 1)
    assert finding.seen == "1 restart, 1 resize; the controller decided RETRY"
    assert finding.evidence["classes"] == ["failure", "resize"]
    assert check(run.case(), times=2).verdict is Verdict.FAIL


def test_a_resize_of_which_the_controller_told_nothing_is_a_restart_too_many() -> None:
    run = resized(TWICE, 1).drop("controller.state", to="RESIZING")
    assert check(run.case()).verdict is Verdict.FAIL


def test_a_preemption_costs_a_restart_and_nothing_of_the_budget_of_failures() -> None:
    run = preempted(healthy(max_failures=0))
    finding = check(run.case())
    assert finding.verdict is Verdict.PASS
    assert finding.expected == (
        "1 restart, one for each attempt that faults hit, of 0 allowed, and any number of preemptions"
    )
    assert finding.seen == "1 restart (0 failures, 1 preemption); the controller decided RETRY"
    assert finding.evidence["preemption_budget"] == -1


def test_a_failure_beside_a_preemption_is_still_charged() -> None:
    for budget, verdict in ((0, Verdict.FAIL), (1, Verdict.PASS)):
        run = preempted(healthy(kills=((1, 6), (0, 10)), max_failures=budget))
        finding = check(run.case())
        assert finding.verdict is verdict
        assert finding.seen == "2 restarts (1 failure, 1 preemption); the controller decided RETRY 2 times"


@pytest.mark.parametrize(
    ("budget", "verdict"), [(0, Verdict.FAIL), (1, Verdict.PASS), (-1, Verdict.PASS), (None, Verdict.PASS)]
)
def test_preemptions_have_a_budget_of_their_own(budget: int | None, verdict: Verdict) -> None:
    run = preempted(healthy()).change("controller.start", max_preemption_failures=budget)
    assert check(run.case()).verdict is verdict


@pytest.mark.parametrize("times", [1, 3])
def test_failed_starts_are_no_restarts_whatever_was_decided_about_them(times: int) -> None:
    finding = check(failing(healthy(), times=times).case())
    assert (finding.verdict, finding.evidence["failed_starts"]) == (Verdict.PASS, times)
    starts = "1 failed start" if times == 1 else "3 failed starts"
    assert finding.seen == f"1 restart, {starts}; the controller decided RETRY {times + 1} times"


def test_a_first_group_that_fails_to_start_is_a_failed_start() -> None:
    assert len(failed_starts(failing(healthy(kills=()), attempt=0).case())) == 1
    assert check(failing(healthy(), attempt=0).case()).verdict is Verdict.PASS


def test_a_group_that_broke_in_the_rendezvous_had_started() -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase="rendezvous"),))
    assert failed_starts(run.case()) == []
    assert len(failed_starts(failing(run, attempt=2).case())) == 1


def test_a_failed_start_that_was_not_decided_to_be_tried_again_is_a_decision_missing() -> None:
    assert check(failing(healthy()).drop("controller.decision", attempt=0).case()).verdict is Verdict.FAIL
    assert check(failing(healthy()).again("controller.decision").case()).verdict is Verdict.FAIL


# A job that waits

STUCK = healthy().until("controller.state", attempt=0, to="SCHEDULING")
"""The group was given up, and no other came."""


def looked_at(run: Run) -> Run:
    return run.add(happened("probe.waiting", run.events[-1].wall_ns + MS, seconds=9.0, cpu_share=0.1, states=0))


def test_a_restart_that_the_job_still_waits_for_is_none() -> None:
    finding = check(looked_at(STUCK).case(), times=0)
    assert finding.verdict is Verdict.PASS
    assert finding.seen == "0 restarts, one more still waited for; the controller decided RETRY"
    assert check(looked_at(STUCK).case(), times=1).verdict is Verdict.FAIL
    assert check(looked_at(STUCK).case()).verdict is Verdict.FAIL


def test_a_restart_under_way_when_nobody_saw_the_job_wait_is_no_wait() -> None:
    assert check(STUCK.case(), times=0).verdict is Verdict.FAIL


@pytest.mark.parametrize("run", [looked_at(healthy(kills=())), looked_at(healthy())])
def test_a_look_alone_changes_nothing(run: Run) -> None:
    assert check(run.case()).verdict is Verdict.PASS
    more = run.again("controller.state", kind="controller.decision", decision="RETRY")
    assert check(more.case()).verdict is Verdict.FAIL


# Preemptions and world sizes


@pytest.mark.parametrize(
    ("run", "times", "verdict", "seen"),
    [
        (preempted(TWICE), 1, Verdict.PASS, "1 of 2 new beginnings"),
        (preempted(preempted(TWICE), 1), 2, Verdict.PASS, "2 of 2 new beginnings"),
        (preempted(TWICE), 2, Verdict.FAIL, "1 of 2 new beginnings"),
        (healthy(), 1, Verdict.FAIL, "0 of 1 new beginning"),
        (preempted(healthy()), 0, Verdict.FAIL, "1 of 1 new beginning"),
        (healthy(), 0, Verdict.PASS, "0 of 1 new beginning"),
    ],
)
def test_preemptions_are_counted_exactly(run: Run, times: int, verdict: Verdict, seen: str) -> None:
    finding = check_preemptions(run.case(), times=times)
    assert (finding.verdict, finding.seen) == (verdict, seen)


@pytest.mark.parametrize("kind", ["controller.state", "worker.start"])
@pytest.mark.parametrize("times", [0, 1])
def test_without_the_controllers_states_or_any_worker_preemptions_are_unknown(kind: str, times: int) -> None:
    assert check_preemptions(preempted(healthy()).drop(kind).case(), times=times).verdict is Verdict.UNKNOWN


ELASTIC = worlds(resized(TWICE, 1), 3, 2, 3)


def test_the_world_sizes_of_the_attempts_pass_in_their_order() -> None:
    finding = check_worlds(ELASTIC.case(), worlds=(3, 2, 3))
    assert (finding.verdict, finding.expected) == (Verdict.PASS, "attempts of 3, 2, 3 workers")
    assert finding.seen == "3, 2 after a failure, 3 after a resize"
    assert finding.evidence == {"world_sizes": [3, 2, 3], "classes": ["failure", "resize"]}


def test_an_elastic_job_that_shrinks_and_grows_costs_one_restart() -> None:
    case = faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 10),)).case()
    assert check_worlds(case, worlds=(3, 2, 3)).verdict is Verdict.PASS
    assert check(case).verdict is Verdict.PASS
    assert check(case).seen == "1 restart, 1 resize; the controller decided RETRY"


@pytest.mark.parametrize("wanted", [(3, 2), (3, 3, 2), (2, 3, 2), (3, 2, 3, 3), (3, 2, 2)])
def test_other_sizes_or_another_order_fail(wanted: tuple[int, ...]) -> None:
    assert check_worlds(ELASTIC.case(), worlds=wanted).verdict is Verdict.FAIL


def test_a_restart_at_the_same_size_is_a_size_of_its_own() -> None:
    assert check_worlds(healthy().case(), worlds=(2, 2)).verdict is Verdict.PASS
    assert check_worlds(healthy().case(), worlds=(2,)).verdict is Verdict.FAIL


@pytest.mark.parametrize("run", [ELASTIC.drop("attempt.start", attempt=1), ELASTIC.drop("worker.start")])
def test_without_the_start_of_every_attempt_the_sizes_are_unknown(run: Run) -> None:
    assert check_worlds(run.case(), worlds=(3, 2, 3)).verdict is Verdict.UNKNOWN


# Budgets


def spent(run: Run) -> dict[str, int]:
    return {budget.name: budget.spent for budget in budgets(run.case())}


def test_every_error_is_charged_to_the_budget_of_its_class() -> None:
    nothing = {"max_failures": 0, "max_preemption_failures": 0, "controller_failure_limit": 0}
    assert spent(healthy(kills=())) == nothing
    assert spent(healthy()) == {**nothing, "max_failures": 1}
    assert spent(preempted(healthy())) == {**nothing, "max_preemption_failures": 1}
    assert spent(failing(healthy(kills=()), attempt=0)) == {**nothing, "controller_failure_limit": 1}
    change = ("controller.state", {"to": "RESTARTING"})
    assert spent(healthy().change(*change, preempted=True)) == {**nothing, "max_preemption_failures": 1}
    assert spent(healthy().change(*change, error="ControllerError")) == {**nothing, "controller_failure_limit": 1}


def test_a_job_that_starts_again_more_often_than_its_controller_may_fails() -> None:
    run = failing(healthy(), attempt=0)
    for limit, verdict in ((0, Verdict.FAIL), (1, Verdict.PASS), (-1, Verdict.PASS)):
        assert check(run.change("controller.start", controller_failure_limit=limit).case()).verdict is verdict


def test_a_budget_that_was_not_told_is_not_known() -> None:
    assert [budget.allowed for budget in budgets(healthy().drop("controller.start").case())] == [None] * 3
    assert [budget.holds for budget in budgets(healthy().drop("controller.start").case())] == [False] * 3
