"""The record of a run: what it lost, what it took, and where the time went."""

from __future__ import annotations

import msgspec
import pytest

from chaos.history import Event
from metrics.publish import CHECKS
from metrics.recovery import PHASES
from metrics.summary import SCHEMA, Summary, TimeRecord, summarize, time_record
from tests.histories import PHASE_MS, STEP_MS, Run, healthy


def summary(run: Run) -> Summary:
    return summarize(run.case(), run.judged())


def test_the_record_repeats_what_was_asked_and_what_came_of_it():
    found = summary(healthy())
    assert (found.schema, found.run, found.scenario, found.seed) == (SCHEMA, "0badcafe", "kill-worker", 7)
    assert (found.verdict, found.exit_code, found.reason) == ("pass", 0, "every check passed")
    assert (found.workers, found.steps, found.restarts) == (2, 12, 1)
    assert found.repeat == "aftershock run kill-worker"
    assert [check.name for check in found.checks] == [name for name, _ in CHECKS if name != "checkpoints"]


def test_a_recovery_is_told_with_what_it_cost():
    (recovery,) = summary(healthy(kills=((1, 7),))).recoveries
    assert (recovery.injection, recovery.fault, recovery.rank, recovery.step) == ("kill-0", "kill", 1, 7)
    assert (recovery.step_before, recovery.resume_step, recovery.lost_steps) == (7, 4, 3)
    assert recovery.lost_samples == 3 * 8
    assert recovery.missing == ""


def test_the_phases_of_a_recovery_sum_to_its_total():
    (recovery,) = summary(healthy()).recoveries
    assert [phase.name for phase in recovery.phases] == list(PHASES)
    assert sum(phase.seconds for phase in recovery.phases) == pytest.approx(recovery.total_s, abs=1e-3)
    assert recovery.total_s == pytest.approx((sum(PHASE_MS.values()) + 3 * STEP_MS) / 1e3)
    assert all(phase.resolution for phase in recovery.phases)


def test_samples_of_a_step_that_only_one_rank_finished_are_lost_as_well():
    (recovery,) = summary(healthy(kills=((1, 7),)).drop("step.end", attempt=0, rank=1, step=7)).recoveries
    assert (recovery.lost_steps, recovery.lost_samples) == (2, 8 + 8 + 4)


def test_what_a_job_lost_that_never_resumed_is_not_known():
    (recovery,) = summary(healthy().until("fault.confirmed")).recoveries
    assert (recovery.resume_step, recovery.lost_steps, recovery.lost_samples) == (None, None, None)
    assert recovery.missing == "detect"


def test_each_of_two_recoveries_is_told_by_its_own_fault():
    first, second = summary(healthy(kills=((1, 6), (0, 11)))).recoveries
    assert (first.rank, first.step, first.lost_samples) == (1, 6, 16)
    assert (second.rank, second.step, second.lost_samples) == (0, 11, 24)


def assert_sums(time: TimeRecord) -> None:
    parts = time.cluster_start_s + time.workload_s + time.control_s + time.harness_s
    assert parts == pytest.approx(time.wall_s, abs=1e-3)


def test_the_parts_of_the_wall_clock_sum_to_it():
    time = time_record(healthy().case())
    assert_sums(time)
    assert time.cluster_start_s == pytest.approx(4.0)
    assert time.control_s == pytest.approx(0.9 + 2.04 + 0.25 + 1.2 + 12 * 0.2 + 0.15 + 0.3, abs=1e-3)
    assert 0 < time.harness_share < 1


def test_a_run_without_control_spent_no_time_on_one():
    time = time_record(healthy(control=False).case())
    assert_sums(time)
    assert time.control_s == 0.0


def test_the_wall_clock_runs_from_the_process_start_to_the_end_of_judging():
    run = healthy()
    end = run.events[-1]
    judged = Event(kind="run.judged", wall_ns=end.wall_ns + 5_000_000_000, mono_ns=1, node="harness", pid=1)
    before, after = time_record(run.case()), time_record(run.add(judged).case())
    assert after.wall_s - before.wall_s == pytest.approx(5.0, abs=1e-3)
    assert before.wall_s == pytest.approx((end.wall_ns - run.events[0].wall_ns) / 1e9 + 1.5, abs=1e-3)
    assert_sums(after)


@pytest.mark.parametrize("kind", ["run.start", "run.end"])
def test_a_cut_history_has_no_time_accounts(kind: str):
    time = time_record(healthy().drop(kind).case())
    assert (time.wall_s, time.harness_s, time.harness_share) == (0.0, 0.0, 0.0)


def test_the_record_survives_json():
    found = summary(healthy(kills=((1, 6), (0, 10))))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Summary) == found
