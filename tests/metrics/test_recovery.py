"""The recovery timeline: phases that touch, sum to the total, and name the border that nobody saw."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.expectations import UNDISTURBED
from metrics.recovery import PHASES, RESOLUTION_S, Recovery, check, incidents, quick_step_seconds, recoveries
from metrics.verdict import Verdict
from tests.histories import Run, faulty, healthy
from tests.stories import EARLY, MS, PHASE_MS, STEP_MS, Hit


def only(run: Run) -> Recovery:
    (found,) = recoveries(run.case())
    return found


def lasting_ns(recovery: Recovery) -> dict[str, int]:
    return {phase.name: phase.end_ns - phase.begin_ns for phase in recovery.phases}


def assert_contiguous(recovery: Recovery) -> None:
    begin = recovery.fired_ns
    for phase in recovery.phases:
        assert phase.begin_ns == begin
        assert phase.end_ns >= begin
        begin = phase.end_ns
    total_ns = recovery.phases[-1].end_ns - recovery.fired_ns
    assert sum(lasting_ns(recovery).values()) == total_ns
    assert sum(phase.seconds for phase in recovery.phases) == pytest.approx(recovery.total_s, abs=1e-3)


def test_every_phase_lasts_to_the_nanosecond_what_its_borders_say() -> None:
    wanted = {name: ms * 1_000_000 for name, ms in PHASE_MS.items()}
    assert lasting_ns(only(healthy())) == {**wanted, "replay": 3 * STEP_MS * 1_000_000}


def test_phases_are_contiguous_and_sum_to_the_total() -> None:
    recovery = only(healthy())
    assert_contiguous(recovery)
    assert list(lasting_ns(recovery)) == list(PHASES)
    assert recovery.total_s == pytest.approx((sum(PHASE_MS.values()) + 3 * STEP_MS) / 1e3)


def test_every_phase_states_its_resolution() -> None:
    assert PHASES.keys() == RESOLUTION_S.keys()


def test_lost_steps_are_the_last_step_of_all_minus_the_resume_step() -> None:
    recovery = only(healthy(kills=((1, 7),)))
    assert (recovery.before, recovery.resumed, recovery.lost_steps) == (7, 4, 3)


def test_without_a_checkpoint_nothing_is_restored_and_setup_ends_with_the_data() -> None:
    recovery = only(healthy(kills=((1, 2),)))
    assert_contiguous(recovery)
    assert (recovery.resumed, recovery.lost_steps) == (0, 2)
    assert lasting_ns(recovery)["setup"] == PHASE_MS["setup"] * 1_000_000
    assert lasting_ns(recovery)["restore"] == 0


def test_without_a_checkpoint_and_data_told_the_setup_counts_as_replay() -> None:
    recovery = only(healthy(kills=((1, 2),)).drop("data.begin", attempt=1))
    assert lasting_ns(recovery)["setup"] == 0
    assert lasting_ns(recovery)["replay"] == (PHASE_MS["setup"] + 3 * STEP_MS) * 1_000_000


def test_a_fault_after_the_last_step_is_recovered_when_the_last_step_is_done_again() -> None:
    recovery = only(healthy(steps=11, kills=((1, 11),)))
    assert (recovery.before, recovery.missing) == (11, "")
    assert lasting_ns(recovery)["replay"] == 3 * STEP_MS * 1_000_000


def test_a_warned_job_spends_its_grace_between_preempting_and_restarting() -> None:
    where = {"attempt": 0, "from": "RUNNING"}
    run = healthy().change("controller.state", where, to="PREEMPTING")
    run = run.again("controller.state", where, ms=60, **{"from": "PREEMPTING", "to": "RESTARTING"})
    lasting = lasting_ns(only(run))
    assert (lasting["detect"], lasting["grace"]) == (300_000_000, 60_000_000)
    assert lasting["teardown"] == (PHASE_MS["teardown"] - 60) * 1_000_000


def test_each_attempt_that_was_hit_has_its_own_recovery() -> None:
    found = recoveries(healthy(kills=((1, 6), (0, 10))).case())
    assert [(r.injection, r.attempt, r.before, r.resumed) for r in found] == [("kill-0", 0, 6, 4), ("kill-1", 1, 10, 8)]
    for recovery in found:
        assert_contiguous(recovery)


def told(run: Run) -> list[list[str]]:
    """The injections of each incident."""
    return [[event.data["injection"] for event in events] for events in incidents(run.case())]


TWO_IN_ONE = [
    faulty((Hit(1, 6), Hit(0, 6))),
    faulty((Hit(1, 6), Hit(0, phase="teardown"))),
    faulty((Hit(1, 6, fault="hang"), Hit(0, 6))),
]


@pytest.mark.parametrize("run", TWO_IN_ONE)
def test_two_faults_in_one_attempt_are_one_incident_whose_first_starts_the_clock(run: Run) -> None:
    recovery = only(run)
    first, second = run.select("fault.fired")
    assert told(run) == [[first.data["injection"], second.data["injection"]]]
    assert recovery.injection == f"{first.data['injection']}, {second.data['injection']}"
    assert recovery.fired_ns == first.wall_ns < second.wall_ns
    assert (recovery.before, recovery.resumed, recovery.missing, recovery.reached) == (6, 4, "", True)
    assert lasting_ns(recovery)["detect"] == PHASE_MS["detect"] * 1_000_000
    assert_contiguous(recovery)
    assert check(run.case()).verdict is Verdict.PASS


def test_the_order_of_attempts_decides_not_the_order_of_clocks() -> None:
    run = faulty((Hit(1, 6),), (Hit(0, 10),))
    early = run.select("fault.fired", injection="kill-1")[0].wall_ns - 60_000_000_000
    assert told(run.change("fault.fired", {"injection": "kill-1"}, wall_ns=early)) == [["kill-0"], ["kill-1"]]


@pytest.mark.parametrize("phase", EARLY)
def test_a_fault_while_the_job_comes_back_makes_an_incident_of_its_own(phase: str) -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase=phase),))
    first, second = recoveries(run.case())
    assert told(run) == [["kill-0"], ["kill-1"]]
    assert (first.attempt, first.before, first.resumed, first.reached) == (0, 6, 4, False)
    # The second group made no step: it stood where it had resumed, and lost none of its own.
    assert (second.attempt, second.before, second.resumed, second.lost_steps) == (1, 4, 4, 0)
    assert (second.missing, second.reached) == ("", True)
    assert_contiguous(first)
    assert_contiguous(second)


@pytest.mark.parametrize(
    ("phase", "missing"), [("rendezvous", "rendezvous"), ("restore", "restore"), ("first-step", "replay")]
)
def test_the_recovery_that_was_cut_short_ends_where_the_second_fault_came(phase: str, missing: str) -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase=phase),))
    first, second = recoveries(run.case())
    assert first.missing == missing
    assert first.phases[-1].end_ns <= second.fired_ns


@pytest.mark.parametrize("phase", EARLY)
def test_the_second_recovery_goes_on_until_the_steps_from_before_the_first_fault_are_passed(phase: str) -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase=phase),))
    last = recoveries(run.case())[-1]
    assert lasting_ns(last)["replay"] == 3 * STEP_MS * 1_000_000  # steps 5, 6 and 7
    assert check(run.case()).verdict is Verdict.PASS
    for step in range(7, 13):
        run = run.drop("step.end", attempt=2, step=step)
    assert check(run.case()).verdict is Verdict.FAIL


def test_a_second_restart_that_no_fault_explains_excuses_nothing() -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase="first-step"),)).drop("fault.fired", injection="kill-1")
    finding = check(run.case())
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, "after kill-0 no event ends the phase 'replay'")


def test_a_first_step_that_never_came_is_recovered_when_it_does() -> None:
    recovery = only(faulty((Hit(1, phase="first-step"),)))
    assert (recovery.before, recovery.resumed, recovery.lost_steps, recovery.missing) == (0, 0, 0, "")
    assert lasting_ns(recovery)["replay"] == STEP_MS * 1_000_000


def test_a_job_that_did_not_survive_the_second_fault_fails() -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase="rendezvous"),), gives_up=True)
    finding = check(run.case())
    assert finding.verdict is Verdict.FAIL
    assert "after kill-1 no event ends the phase 'schedule'" in finding.seen


def test_a_fault_that_breaks_nothing_makes_no_incident() -> None:
    run = faulty((Hit(1, 5, fault="delay"), Hit(0, 7, fault="gil-call")), expects=UNDISTURBED)
    assert len(run.select("fault.fired")) == 2
    assert told(run) == []


def test_a_disturbance_before_the_fault_does_not_start_the_clock() -> None:
    run = faulty((Hit(0, 5, fault="delay"), Hit(1, 6)))
    assert told(run) == [["kill-0"]]
    assert only(run).fired_ns == run.select("fault.fired", fault="kill")[0].wall_ns


def test_a_fault_that_this_version_does_not_know_is_taken_for_one_that_breaks() -> None:
    assert told(healthy().change("fault.fired", fault="quake")) == [["kill-0"]]


def test_what_the_controller_did_before_the_fault_is_no_detection() -> None:
    run = healthy().again("controller.state", {"attempt": 0, "to": "RESTARTING"}, ms=-1000, to="RESIZING")
    assert lasting_ns(only(run))["detect"] == PHASE_MS["detect"] * 1_000_000


def test_the_time_to_detect_ends_when_the_controller_acts() -> None:
    recovery = only(faulty((Hit(1, 6, fault="hang", detect_ms=12_000),)))
    assert lasting_ns(recovery)["detect"] == 12_000_000_000


MISSING = [
    ("teardown", healthy().drop("process.exit", attempt=0, rank=0)),
    ("schedule", healthy().drop("schedule.begin", attempt=1)),
    ("schedule", healthy().drop("attempt.start", attempt=1)),
    ("schedule", healthy().change("attempt.start", {"attempt": 1}, placement_ms=None)),
    ("rendezvous", healthy().drop("pg.init.end", attempt=1)),
    ("setup", healthy().drop("restore.begin", rank=1)),
    ("restore", healthy().drop("restore.end", rank=0)),
]
LATER = [
    ("detect", healthy().until("fault.confirmed")),
    ("schedule", healthy().until("process.exit", attempt=0, rank=0)),
    ("replay", healthy().until("step.end", attempt=1, step=6)),
    ("replay", healthy().drop("step.end", attempt=1, rank=1, step=7)),
]


@pytest.mark.parametrize(("phase", "run"), MISSING + LATER)
def test_a_border_that_nobody_saw_is_named_and_ends_the_timeline(phase: str, run: Run) -> None:
    recovery = only(run)
    assert recovery.missing == phase
    assert list(lasting_ns(recovery)) == list(itertools.takewhile(lambda name: name != phase, PHASES))
    assert check(run.case()).verdict is not Verdict.PASS


@pytest.mark.parametrize(("phase", "run"), MISSING)
def test_a_job_that_came_back_with_an_inner_border_unseen_is_unknown(phase: str, run: Run) -> None:
    assert check(run.case()).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("phase", "run"), LATER[:3])
def test_a_history_cut_in_the_middle_of_a_recovery_is_unknown(phase: str, run: Run) -> None:
    assert check(run.case()).verdict is Verdict.UNKNOWN


def test_the_end_of_the_next_attempt_does_not_pass_for_the_detection() -> None:
    assert only(healthy().drop("controller.state", attempt=0, to="RESTARTING")).missing == "detect"


def test_a_job_that_never_came_back_fails() -> None:
    run = healthy()
    for kind in ("step.end", "state", "checkpoint.commit"):
        run = run.drop(kind, attempt=1)
    finding = check(run.change("workload.exit", code=None).case())
    assert finding.verdict is Verdict.FAIL
    assert "after kill-0 no event ends the phase 'replay'" in finding.seen


def test_a_recovery_within_the_bound_passes_and_tells_its_phases() -> None:
    finding = check(healthy().case())
    assert finding.verdict is Verdict.PASS
    assert finding.seen == "5.04 s, slowest phase start 2.00 s"
    (told,) = finding.evidence["recoveries"]
    assert told["phases"] == {**{name: ms / 1e3 for name, ms in PHASE_MS.items()}, "replay": 0.6}


@pytest.mark.parametrize(("bound", "verdict"), [(5.04, Verdict.PASS), (5.039, Verdict.FAIL), (0, Verdict.FAIL)])
def test_the_bound_is_the_longest_recovery_allowed(bound: float, verdict: Verdict) -> None:
    finding = check(healthy().case(), bound=bound)
    assert finding.verdict is verdict
    assert finding.expected == f"back past the step count from before each fault within {bound:g} s"


def test_the_slowest_of_several_recoveries_is_judged() -> None:
    run = faulty((Hit(1, 6),), (Hit(0, 10, detect_ms=9_000),))
    finding = check(run.case(), bound=10.0)
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, "13.74 s, slowest phase detect 9.00 s")
    assert [told["injection"] for told in finding.evidence["recoveries"]] == ["kill-0", "kill-1"]


@pytest.mark.parametrize("run", [healthy(kills=()), faulty((Hit(1, 5, fault="delay"),), expects=UNDISTURBED)])
def test_without_a_fault_that_breaks_there_is_no_recovery_to_judge(run: Run) -> None:
    assert check(run.case()).verdict is Verdict.UNKNOWN


def test_a_recovery_cut_short_by_the_next_fault_is_judged_by_that_ones() -> None:
    run = healthy(kills=((1, 6), (0, 6)))
    first, second = recoveries(run.case())
    assert (first.missing, second.missing) == ("replay", "")
    assert check(run.case()).verdict is Verdict.PASS


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.integers(-3_000_000_000, 3_000_000_000), min_size=80, max_size=80))
def test_clocks_that_disagree_never_make_a_phase_negative_or_leave_a_hole(shifts: list[int]) -> None:
    run = healthy()
    moved = [
        event if event.kind == "fault.fired" else msgspec.structs.replace(event, wall_ns=event.wall_ns + shift)
        for event, shift in zip(run.events, itertools.cycle(shifts), strict=False)
    ]
    for recovery in recoveries(Run(run.record, tuple(moved)).case()):
        if recovery.phases:
            assert_contiguous(recovery)


def test_the_time_of_a_quick_step_is_measured_within_attempts() -> None:
    assert quick_step_seconds(healthy().case().attempts) == pytest.approx(STEP_MS / 1e3)


def test_one_step_has_no_step_time() -> None:
    assert quick_step_seconds(healthy().until("step.end", rank=0, step=1).case().attempts) is None


# What the controller acted on, who was last, when steps were made again


def test_the_cause_is_the_error_acted_on_and_the_first_that_a_rank_told() -> None:
    (found,) = recoveries(healthy().case())
    assert found.cause == "WorkerGroupError: rank 0 RuntimeError"
    (found,) = recoveries(healthy().drop("worker.error").case())
    assert found.cause == "WorkerGroupError"
    (found,) = recoveries(healthy().change("controller.state", error="").case())
    assert found.cause == ""


def test_each_phase_that_ranks_end_names_the_slowest() -> None:
    (found,) = recoveries(healthy().case())
    ranks = {phase.name: phase.rank for phase in found.phases}
    nobody = dict.fromkeys(("detect", "grace", "schedule", "start", "rendezvous"))
    assert ranks == {**nobody, "teardown": 0, "setup": 1, "restore": 1, "replay": 1}
    begins = {e.rank: e.wall_ns for e in healthy().select("restore.begin", attempt=1)}
    late = healthy().change("restore.begin", {"rank": 0, "attempt": 1}, wall_ns=begins[1] + MS)
    (found,) = recoveries(late.case())
    assert next(phase.rank for phase in found.phases if phase.name == "setup") == 0


def test_the_first_step_again_is_that_of_the_slowest_rank() -> None:
    (found,) = recoveries(healthy().case())
    ends = [event.wall_ns for event in healthy().select("step.end", attempt=1, step=5)]
    assert found.stepped_ns == max(ends)
    assert found.since_s(found.stepped_ns) == (max(ends) - found.fired_ns) / 1e9
    assert found.since_s(None) is None


def test_steps_are_as_usual_after_three_quick_ones_in_a_row() -> None:
    (found,) = recoveries(healthy().case())
    third = [event.wall_ns for event in healthy().select("step.end", attempt=1, step=8)]
    assert found.usual_ns == max(third)


def slowed(run: Run, steps: range, times: float) -> Run:
    """With these steps of the second attempt taking so many times as long as they did."""
    extra = 0
    for step in range(5, 13):
        extra += int((times - 1) * STEP_MS * MS) if step in steps else 0
        for event in run.select("step.end", attempt=1, step=step):
            run = run.change(
                "step.end", {"attempt": 1, "step": step, "rank": event.rank}, wall_ns=event.wall_ns + extra
            )
    return run


@pytest.mark.parametrize(
    ("steps", "times", "usual"), [(range(6, 9), 3.0, 11), (range(6, 9), 1.4, 8), (range(5, 13), 3.0, None)]
)
def test_slow_steps_put_off_the_usual_pace(steps: range, times: float, usual: int | None) -> None:
    run = slowed(healthy(), steps, times)
    (found,) = recoveries(run.case())
    ends = [event.wall_ns for event in run.select("step.end", attempt=1, step=usual)]
    assert found.usual_ns == (max(ends) if usual else None)


def test_a_group_of_another_size_has_no_usual_pace() -> None:
    (found,) = recoveries(faulty((Hit(2, 6),), worlds=(3, 2)).case())
    assert found.usual_ns is None
    assert found.stepped_ns is not None
    (found,) = recoveries(healthy(kills=((1, 2),)).case())
    assert found.usual_ns is None  # two steps tell of no pace


def test_a_job_that_did_not_come_back_made_no_step() -> None:
    (found,) = recoveries(healthy(gives_up=True, max_failures=0).case())
    assert (found.stepped_ns, found.usual_ns) == (None, None)
    assert found.cause == "WorkerGroupError: rank 0 RuntimeError"


def test_an_error_from_before_the_fault_or_of_a_failed_start_is_no_cause() -> None:
    early = healthy().again("worker.error", {"attempt": 0}, ms=-8_000, error="RendezvousError")
    (found,) = recoveries(early.case())
    assert found.cause == "WorkerGroupError: rank 0 RuntimeError"
