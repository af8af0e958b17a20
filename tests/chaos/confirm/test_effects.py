"""Confirming: the very effect that a fault promises, on the very process, in time; nothing else counts."""

from __future__ import annotations

import pytest

from chaos.faults.base import find_fault

SECOND = 10**9
START = 1000 * SECOND


def test_what_is_confirmed_is_told_where_and_after_what_time(observe, fired, gone, told) -> None:
    watch = observe(kill={})
    watch(fired("kill"))
    assert told == []
    watch(gone(after=0.25, cause="SIGKILL"))
    (confirmed,) = told
    assert (confirmed.kind, confirmed.attempt, confirmed.rank, confirmed.step) == ("fault.confirmed", 0, 1, 3)
    assert confirmed.data == {
        "injection": "kill-0",
        "evidence": "process 7 left the process table, ended by SIGKILL",
        "after_ms": 250.0,
        "seen": "at once",
    }


@pytest.mark.parametrize(
    ("fault", "values", "cause", "evidence"),
    [
        ("kill", {}, "SIGKILL", "process 7 left the process table, ended by SIGKILL"),
        ("abort", {}, "SIGABRT", "process 7 left the process table, ended by SIGABRT"),
        ("segfault", {}, "SIGSEGV", "process 7 left the process table, ended by SIGSEGV"),
        ("exit", {"code": 0}, "exit code 0", "process 7 left the process table, exit code 0"),
        ("exit", {"code": 3}, "exit code 3", "process 7 left the process table, exit code 3"),
        ("kill", {}, "", "process 7 left the process table"),
    ],
)
def test_an_exit_with_the_cause_that_the_fault_names_confirms_it(
    observe, fired, gone, told, fault, values, cause, evidence
) -> None:
    watch = observe(**{fault: values})
    watch(fired(fault))
    watch(gone(cause=cause))
    assert [event.data["evidence"] for event in told] == [evidence]


@pytest.mark.parametrize(
    ("fault", "values", "cause"),
    [
        ("kill", {}, "SIGTERM"),
        ("kill", {}, "exit code 9"),
        ("segfault", {}, "SIGKILL"),
        ("abort", {}, "exit code 134"),
        ("exit", {"code": 3}, "exit code 1"),
        ("exit", {"code": 9}, "SIGKILL"),
    ],
)
def test_an_exit_with_another_cause_confirms_nothing(observe, fired, gone, told, fault, values, cause) -> None:
    watch = observe(**{fault: values})
    watch(fired(fault))
    watch(gone(cause=cause))
    assert told == []


@pytest.mark.parametrize(
    ("after", "seen", "confirmed"),
    [(10.0, "at once", 1), (10.001, "at once", 0), (30.0, "late", 1)],
    ids=["at the bound", "beyond the bound", "found gone later"],
)
def test_a_process_that_outlives_its_fault_did_not_die_of_it(
    observe, fired, gone, told, after, seen, confirmed
) -> None:
    watch = observe(kill={})
    watch(fired("kill"))
    watch(gone(after=after, seen=seen))
    assert len(told) == confirmed


def test_a_fault_that_takes_its_time_has_more_of_it(observe, fired, gone, told) -> None:
    watch = observe(oom={})
    watch(fired("oom"))
    watch(gone(after=find_fault("oom").within_s, cause="SIGKILL"))
    assert len(told) == 1


def test_the_exit_of_another_process_confirms_nothing(observe, fired, gone, told) -> None:
    watch = observe(kill={})
    watch(fired("kill", pid=7))
    watch(gone(pid=8))
    assert told == []


def test_what_has_not_fired_is_not_confirmed(observe, gone, told) -> None:
    observe(kill={})(gone())
    assert told == []


def test_a_fault_that_is_not_of_the_plan_is_passed_over(observe, fired, gone, told) -> None:
    watch = observe(kill={})
    watch(fired("abort"))
    watch(gone())
    assert told == []


def test_one_exit_confirms_one_fault_once(observe, fired, gone, told) -> None:
    watch = observe(kill={}, abort={})
    watch(fired("kill", pid=7))
    watch(fired("abort", pid=8))
    for pid in (7, 7, 8):
        watch(gone(pid=pid))
    assert [event.data["injection"] for event in told] == ["kill-0", "abort-0"]


@pytest.mark.parametrize(("fault", "error"), [("exception", "InjectedError"), ("memory-limit", "MemoryError")])
def test_the_error_of_the_rank_that_was_hit_confirms_it(observe, fired, event, told, fault, error) -> None:
    watch = observe(**{fault: {}})
    watch(fired(fault))
    watch(event("worker.error", wall=START + SECOND, attempt=0, rank=1, data={"error": error}))
    (confirmed,) = told
    assert confirmed.data["evidence"] == f"the controller received {error} from rank 1"
    assert confirmed.data["after_ms"] == 1000.0


@pytest.mark.parametrize(
    ("attempt", "rank", "error"),
    [(0, 0, "InjectedError"), (1, 1, "InjectedError"), (0, 1, "ValueError"), (0, 1, "InjectedErrors")],
    ids=["another rank", "another attempt", "another type", "a longer name"],
)
def test_another_error_confirms_nothing(observe, fired, event, told, attempt, rank, error) -> None:
    watch = observe(exception={})
    watch(fired("exception"))
    watch(event("worker.error", wall=START + SECOND, attempt=attempt, rank=rank, data={"error": error}))
    assert told == []


@pytest.mark.parametrize(("seconds", "confirmed"), [(5.0, 1), (5.2, 1), (4.999, 0)])
@pytest.mark.parametrize("fault", ["delay", "gil-call"])
def test_a_disturbance_that_lasted_its_full_time_is_confirmed(
    observe, fired, event, told, fault, seconds, confirmed
) -> None:
    watch = observe(**{fault: {"seconds": 5.0}})
    watch(fired(fault))
    watch(event("fault.ended", attempt=0, rank=1, data={"injection": f"{fault}-0", "seconds": seconds}))
    assert [event.data["evidence"] for event in told] == [
        f"rank 1 stood there for {seconds:.2f} s, and went on"
    ] * confirmed


def test_the_end_of_another_disturbance_confirms_nothing(observe, fired, event, told) -> None:
    watch = observe(delay={"seconds": 5.0})
    watch(fired("delay"))
    watch(event("fault.ended", attempt=0, rank=1, data={"injection": "delay-1", "seconds": 9.0}))
    assert told == []
