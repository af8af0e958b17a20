"""A job that waits: what its controller costs meanwhile, and whether Ctrl-C ends it."""

from __future__ import annotations

import pytest

from metrics.verdict import Verdict
from metrics.waiting import check_deaf, check_idle, check_interruptible
from tests.capacity import happened, waiting
from tests.histories import Run, healthy
from tests.stories import MS


@pytest.mark.parametrize(
    ("share", "cpu", "verdict"),
    [
        (0.1, 0.5, Verdict.PASS),
        (0.5, 0.5, Verdict.PASS),
        (0.0, 0.0, Verdict.PASS),
        (0.51, 0.5, Verdict.FAIL),
        (0.98, 0.5, Verdict.FAIL),
        (1.2, 1.0, Verdict.FAIL),
    ],
)
def test_the_share_of_a_core_is_bounded(share: float, cpu: float, verdict: Verdict) -> None:
    finding = check_idle(waiting(share).case(), cpu=cpu)
    assert finding.verdict is verdict
    assert finding.expected == f"while it waits, the controller uses at most {cpu:g} of one core"
    assert finding.seen == f"{share:.2f} of one core over 30.0 s, 4 changes of state"
    assert finding.evidence == {"waits": [{"seconds": 30.0, "cpu_share": share, "states": 4}]}


def test_the_worst_of_several_looks_counts() -> None:
    run = waiting(0.1)
    end = run.select("probe.waiting")[0].wall_ns
    run = run.add(happened("probe.waiting", end + 5_000 * MS, seconds=5.0, cpu_share=0.9, states=0))
    finding = check_idle(run.case(), cpu=0.5)
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, "0.90 of one core over 5.0 s, 0 changes of state")


@pytest.mark.parametrize("run", [healthy(), waiting(None)])
def test_without_a_look_at_the_controller_the_answer_is_unknown(run: Run) -> None:
    assert check_idle(run.case(), cpu=0.5).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_look_at_a_job_that_trained_tells_nothing_of_waiting(share: float) -> None:
    run = waiting(share)
    begin = run.select("probe.waiting")[0].wall_ns - 30_000 * MS
    run = run.add(happened("controller.state", begin, 0, **{"from": "SCHEDULING", "to": "RUNNING"}))
    finding = check_idle(run.case(), cpu=0.5)
    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, "the job trained, or its controller was gone")


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(3.0, Verdict.PASS), (20.0, Verdict.PASS), (20.1, Verdict.FAIL), (55.0, Verdict.FAIL)]
)
def test_the_script_ends_in_time(seconds: float, verdict: Verdict) -> None:
    finding = check_interruptible(waiting(interrupted_s=seconds).case(), within=20)
    assert (finding.verdict, finding.seen) == (verdict, f"ended {seconds:.1f} s after SIGINT")
    assert finding.evidence == {"signal": "SIGINT", "seconds": seconds}


def test_a_script_that_had_to_be_killed_is_not_interruptible() -> None:
    finding = check_interruptible(waiting(interrupted_s=None).case(), within=20)
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, "SIGINT did not end it: it had to be killed after 20 s")


def test_a_script_that_was_killed_before_the_bound_is_unknown() -> None:
    run = waiting(interrupted_s=None).change("workload.interrupted", waited_s=30.0)
    assert check_interruptible(run.case(), within=45).verdict is Verdict.UNKNOWN
    assert check_interruptible(run.case(), within=30).verdict is Verdict.FAIL


def test_without_an_interruption_the_answer_is_unknown() -> None:
    assert check_interruptible(healthy().case(), within=20).verdict is Verdict.UNKNOWN


def test_a_script_that_no_signal_ends_is_deaf_and_what_it_burnt_is_told() -> None:
    finding = check_deaf(waiting(0.98, interrupted_s=None).case())
    assert finding.verdict is Verdict.PASS
    assert finding.seen == "SIGINT did not end it; while it waited the controller used 0.98 of one core"


def test_what_a_deaf_script_burnt_need_not_be_known() -> None:
    finding = check_deaf(waiting(None, interrupted_s=None).case())
    assert (finding.verdict, finding.seen.split(" used ")[1]) == (Verdict.PASS, "an unknown share")


def test_whether_a_script_is_deaf_that_nobody_saw_waiting_is_unknown() -> None:
    finding = check_deaf(waiting(interrupted_s=None).drop("probe.waiting").case())
    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, "nobody saw the job wait")


def test_a_script_that_the_signal_ended_is_not_deaf() -> None:
    finding = check_deaf(waiting(interrupted_s=3.0).case())
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, "ended 3.0 s after SIGINT")


def test_whether_a_script_is_deaf_that_nobody_interrupted_is_unknown() -> None:
    assert check_deaf(healthy().case()).verdict is Verdict.UNKNOWN
