"""The record of a run: what it lost, what it took, and where the time went."""

from __future__ import annotations

import msgspec
import pytest

from chaos.history import Event
from metrics.expectations import HEALTHY, UNDISTURBED, recovers
from metrics.recovery import PHASES
from metrics.summary import SCHEMA, Summary, TimeRecord, summarize, time_record
from tests.histories import Run, faulty, healthy
from tests.stories import PHASE_MS, STEP_MS, Hit


def summary(run: Run) -> Summary:
    return summarize(run.case(), run.judged())


def test_the_record_repeats_what_was_asked_and_what_came_of_it() -> None:
    found = summary(healthy())
    assert (found.schema, found.run, found.scenario, found.seed) == (SCHEMA, "0badcafe", "kill-worker", 7)
    assert (found.verdict, found.exit_code, found.reason) == ("pass", 0, "every check that applies passed")
    assert (found.workers, found.steps, found.restarts) == (2, 12, 1)
    assert found.repeat == "aftershock run kill-worker"
    assert [check.name for check in found.checks] == healthy().names
    assert found.expect == str(HEALTHY)


def test_the_record_says_what_was_expected_and_what_is_a_known_issue() -> None:
    run = healthy(expects=HEALTHY.but(recovers(within=9))).asked(known_issue="Ray 2.60 ends such a run")
    assert summary(run).expect.startswith("recovers(within=9) & restarts()")
    assert summary(run).known_issue == "Ray 2.60 ends such a run"
    assert summary(healthy()).known_issue == ""


def test_every_injection_is_told_with_the_evidence_of_its_effect() -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase="restore"),)).drop("fault.confirmed", injection="kill-1")
    first, second = summary(run).injections
    assert (first.id, first.fault, first.target, first.when) == ("kill-0", "kill", "rank 1", "at step 6")
    assert first.evidence == "process left the process table, ended by SIGKILL"
    assert (second.id, second.target, second.when) == ("kill-1", "rank 0", "in restore on attempt 1")
    assert second.evidence == ""


def test_a_disturbance_is_told_as_an_injection_without_a_recovery() -> None:
    found = summary(faulty((Hit(1, 6, fault="delay"),), expects=UNDISTURBED))
    assert [injection.fault for injection in found.injections] == ["delay"]
    assert (found.recoveries, found.restarts, found.verdict) == ([], 0, "pass")


def test_a_recovery_says_in_which_phase_the_first_fault_hit() -> None:
    first, second = summary(faulty((Hit(1, 6), Hit(0, phase="teardown")), (Hit(0, phase="restore"),))).recoveries
    assert (first.injection, first.rank, first.step, first.phase) == ("kill-0, kill-1", 1, 6, "step")
    assert (second.injection, second.rank, second.step, second.phase) == ("kill-2", 0, 4, "restore")


def test_a_recovery_is_told_with_what_it_cost() -> None:
    (recovery,) = summary(healthy(kills=((1, 7),))).recoveries
    assert (recovery.injection, recovery.fault, recovery.rank, recovery.step) == ("kill-0", "kill", 1, 7)
    assert (recovery.step_before, recovery.resume_step, recovery.lost_steps) == (7, 4, 3)
    assert recovery.lost_samples == 3 * 8
    assert recovery.missing == ""


def test_the_phases_of_a_recovery_sum_to_its_total() -> None:
    (recovery,) = summary(healthy()).recoveries
    assert [phase.name for phase in recovery.phases] == list(PHASES)
    assert sum(phase.seconds for phase in recovery.phases) == pytest.approx(recovery.total_s, abs=1e-3)
    assert recovery.total_s == pytest.approx((sum(PHASE_MS.values()) + 3 * STEP_MS) / 1e3)
    assert all(phase.resolution for phase in recovery.phases)


def test_samples_of_a_step_that_only_one_rank_finished_are_lost_as_well() -> None:
    (recovery,) = summary(healthy(kills=((1, 7),)).drop("step.end", attempt=0, rank=1, step=7)).recoveries
    assert (recovery.lost_steps, recovery.lost_samples) == (2, 8 + 8 + 4)


def test_what_a_job_lost_that_never_resumed_is_not_known() -> None:
    (recovery,) = summary(healthy().until("fault.confirmed")).recoveries
    assert (recovery.resume_step, recovery.lost_steps, recovery.lost_samples) == (None, None, None)
    assert recovery.missing == "detect"


def test_each_of_two_recoveries_is_told_by_its_own_fault() -> None:
    first, second = summary(healthy(kills=((1, 6), (0, 11)))).recoveries
    assert (first.rank, first.step, first.lost_samples) == (1, 6, 16)
    assert (second.rank, second.step, second.lost_samples) == (0, 11, 24)


def assert_sums(time: TimeRecord) -> None:
    parts = time.cluster_start_s + time.workload_s + time.control_s + time.harness_s
    assert parts == pytest.approx(time.wall_s, abs=1e-3)


def test_the_parts_of_the_wall_clock_sum_to_it() -> None:
    time = time_record(healthy().case())
    assert_sums(time)
    assert time.cluster_start_s == pytest.approx(4.0)
    assert time.control_s == pytest.approx(0.9 + 2.04 + 0.25 + 1.2 + 12 * 0.2 + 0.15 + 0.3, abs=1e-3)
    assert 0 < time.harness_share < 1


def test_a_group_that_was_hit_before_its_first_step_lost_nothing_of_its_own() -> None:
    first, second = summary(faulty((Hit(1, 6),), (Hit(0, phase="restore"),))).recoveries
    assert (first.lost_steps, first.lost_samples) == (2, 16)
    assert (second.lost_steps, second.lost_samples) == (0, 0)


def test_a_run_without_control_spent_no_time_on_one() -> None:
    time = time_record(healthy(control=False).case())
    assert_sums(time)
    assert time.control_s == 0.0


def test_a_control_run_that_another_run_made_costs_this_one_nothing() -> None:
    run = healthy()
    shared = run.again("run.healed", ms=-1, kind="control.shared", **{"from": "/runs/other"})
    time = time_record(shared.case())
    assert_sums(time)
    assert time.control_s == 0.0
    assert time.wall_s == time_record(run.case()).wall_s


def test_the_wall_clock_runs_from_the_process_start_to_the_end_of_judging() -> None:
    run = healthy()
    end = run.events[-1]
    judged = Event(kind="run.judged", wall_ns=end.wall_ns + 5_000_000_000, mono_ns=1, node="harness", pid=1)
    before, after = time_record(run.case()), time_record(run.add(judged).case())
    assert after.wall_s - before.wall_s == pytest.approx(5.0, abs=1e-3)
    assert before.wall_s == pytest.approx((end.wall_ns - run.events[0].wall_ns) / 1e9 + 1.5, abs=1e-3)
    assert_sums(after)


@pytest.mark.parametrize("kind", ["run.start", "run.end"])
def test_a_cut_history_has_no_time_accounts(kind: str) -> None:
    time = time_record(healthy().drop(kind).case())
    assert (time.wall_s, time.harness_s, time.harness_share) == (0.0, 0.0, 0.0)


def test_the_record_survives_json() -> None:
    found = summary(healthy(kills=((1, 6), (0, 10))))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Summary) == found
