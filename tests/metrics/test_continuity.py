"""The ledgers of steps and samples: each kind of damage is seen, and silence is no evidence."""

from __future__ import annotations

import pytest

from metrics.continuity import (
    check_batch,
    check_completed,
    check_lost_steps,
    check_resume_step,
    check_samples,
    check_steps,
    lost_steps_bound,
)
from metrics.verdict import Check, Finding, Verdict
from tests.histories import Run, faulty, healthy
from tests.stories import EARLY, Hit, checkpoint_name

ALL = (check_completed, check_resume_step, check_lost_steps, check_steps, check_samples)


def verdict_and_words(check: Check, run: Run) -> tuple[Verdict, str]:
    finding: Finding = check(run.case())
    return finding.verdict, finding.seen


@pytest.mark.parametrize("check", ALL)
@pytest.mark.parametrize("kills", [((1, 6),), ((1, 2),), ((0, 4),), ((1, 6), (0, 10)), ((1, 6), (0, 6))])
def test_a_healthy_run_passes(check: Check, kills: tuple[tuple[int, int], ...]) -> None:
    assert check(healthy(kills=kills).case()).verdict is Verdict.PASS


OVERLAPPING = [
    faulty((Hit(1, 6), Hit(0, 6))),
    faulty((Hit(1, 6), Hit(0, phase="teardown"))),
    *(faulty((Hit(1, 6),), (Hit(0, phase=phase),)) for phase in EARLY),
    *(faulty((Hit(1, 2),), (Hit(0, phase=phase),)) for phase in ("rendezvous", "first-step")),
]


@pytest.mark.parametrize("check", ALL)
@pytest.mark.parametrize("run", OVERLAPPING)
def test_a_run_that_came_back_from_overlapping_faults_passes(check: Check, run: Run) -> None:
    assert check(run.case()).verdict is Verdict.PASS


def test_a_rank_that_a_fault_hit_before_it_could_read_is_not_blamed_for_it() -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase="restore"),)).drop("restore.begin", attempt=1, rank=1)
    assert check_resume_step(run.case()).verdict is Verdict.PASS


def test_a_rank_that_was_given_another_checkpoint_fails_though_its_attempt_was_hit_again() -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase="rendezvous"),))
    run = run.change("worker.start", {"attempt": 1, "rank": 1}, checkpoint=checkpoint_name(0))
    assert check_resume_step(run.case()).verdict is Verdict.FAIL


RED: list[tuple[Check, Run, str]] = [
    (check_completed, healthy().change("workload.exit", code=1), "exit code 1, 12 steps complete"),
    (check_completed, healthy().change("workload.exit", code=None), "exit code none: it was ended by the harness"),
    (
        check_completed,
        healthy().change("workload.exit", code=None).again("run.end", ms=-1, kind="run.deadline", seconds=300.0),
        "exit code none: it was ended by the harness at its deadline of 300 s (--deadline), 12 steps complete",
    ),
    (check_completed, healthy().drop("step.end", rank=1, step=12), "exit code 0, 11 steps complete"),
    (check_completed, healthy().asked(steps=13), "12 steps complete"),
    (
        check_resume_step,
        healthy(kills=((1, 10),)).change("worker.start", {"attempt": 1, "rank": 1}, checkpoint=checkpoint_name(4)),
        f"attempt 1, rank 1 was given {checkpoint_name(4)}, the last committed is {checkpoint_name(8)}",
    ),
    (
        check_resume_step,
        healthy().change("worker.start", {"attempt": 1, "rank": 0}, checkpoint=None, steps=0),
        f"rank 0 was given None, the last committed is {checkpoint_name(4)}",
    ),
    (
        check_resume_step,
        healthy(kills=((1, 2),)).change("worker.start", {"attempt": 1}, checkpoint=checkpoint_name(4)),
        f"rank 0 was given {checkpoint_name(4)}, the last committed is None",
    ),
    (
        check_resume_step,
        healthy().drop("restore.begin", rank=1),
        f"attempt 1, rank 1 opened no file of {checkpoint_name(4)}",
    ),
    (
        check_steps,
        healthy().drop("step.end", attempt=1, rank=1, step=9),
        "step 9 of attempt 1, world size 2: rank 1 did not complete it",
    ),
    (check_steps, healthy().drop("step.end", step=1), "no rank completed step 1, and step 2 follows"),
    (
        check_steps,
        healthy().again("step.end", {"attempt": 1, "rank": 0, "step": 9}),
        "step 9 of attempt 1, world size 2: rank 0 completed it 2 times",
    ),
    (check_steps, healthy().change("step.end", {"attempt": 1, "step": 9}, step=8), "rank 0 completed it 2 times"),
    (check_steps, healthy().drop("step.end", attempt=1, step=9), "no rank completed step 9, and step 10 follows"),
    (check_steps, healthy().drop("step.end", rank=0, step=12), "step 12 of attempt 1, world size 2: rank 0 did not"),
    (
        check_steps,
        healthy().change("worker.start", {"attempt": 1}, steps=2),
        "no rank completed step 3, and step 5 follows",
    ),
    (
        check_steps,
        healthy().change("worker.start", {"attempt": 1}, steps=5),
        "step 5 was completed in attempts 0 and 1",
    ),
    (
        check_steps,
        healthy().change("step.end", {"attempt": 1, "rank": 1, "step": 9}, rank=2),
        "step 9 of attempt 1, world size 2: rank 1 did not complete it",
    ),
    (
        check_steps,
        healthy().again("step.end", {"attempt": 1, "rank": 1, "step": 9}, rank=2),
        "step 9 of attempt 1, world size 2: there is no rank 2, which completed it",
    ),
    (
        check_steps,
        healthy().change("step.end", {"attempt": 1, "rank": 1, "step": 10}, wall_ns=1),
        "rank 1: step 5 after step 10, in attempt 1",
    ),
    (check_samples, healthy().drop("step.end", attempt=1, step=9), "8 samples never consumed (64, 65, 66, 67, 68, "),
    (
        check_samples,
        healthy().change("step.end", {"rank": 0, "step": 9}, samples=[[64, 66]]),
        "1 samples never consumed (67)",
    ),
    (
        check_samples,
        healthy().change("step.end", {"rank": 0, "step": 9}, samples=[[56, 59]]),
        "4 samples never consumed (64, 65, 66, 67); 4 samples consumed twice (56, 57, 58, 59)",
    ),
    (
        check_samples,
        healthy().change("step.end", {"rank": 0, "step": 9}, samples=[[63, 67]]),
        "1 samples consumed twice (63)",
    ),
    (
        check_samples,
        healthy(epoch=48).change("step.end", {"step": 3}, samples=[]),
        "8 samples never consumed (16, 17, 18, 19, 20, ...)",  # in the first of the two epochs
    ),
    (
        check_samples,
        healthy(epoch=48).change("step.end", {"rank": 0, "step": 9}, samples=[[8, 11]]),
        "4 samples consumed twice (8, 9, 10, 11)",
    ),
]


@pytest.mark.parametrize(("check", "run", "words"), RED)
def test_damage_fails_and_is_named(check: Check, run: Run, words: str) -> None:
    verdict, seen = verdict_and_words(check, run)
    assert verdict is Verdict.FAIL
    assert words in seen


BLIND: list[tuple[Check, Run, str]] = [
    (check_completed, healthy().drop("workload.exit"), "was not recorded"),
    (check_resume_step, healthy(kills=()), "never restarted"),
    (check_resume_step, healthy().drop("worker.start", attempt=1, rank=0), "attempt 1 was not seen on every rank"),
    (check_resume_step, healthy().change("checkpoint.commit", step=None), "the step of checkpoint_000004 was not"),
    (check_lost_steps, healthy().until("fault.confirmed"), "the job never resumed"),
    (check_lost_steps, healthy().change("worker.start", {"attempt": 1}, steps=None), "the job never resumed"),
    (check_lost_steps, healthy(kills=()), "the job never resumed"),
    (check_steps, healthy().drop("step.end"), "no step was seen"),
    (check_steps, healthy().drop("worker.start"), "no step was seen"),
    (check_steps, healthy().drop("attempt.start", attempt=1), "the world size of attempt 1 was not recorded"),
    (check_samples, healthy().change("step.end", samples=[]), "the workload told of no samples"),
]


@pytest.mark.parametrize(("check", "run", "words"), BLIND)
def test_without_evidence_the_answer_is_unknown(check: Check, run: Run, words: str) -> None:
    verdict, seen = verdict_and_words(check, run)
    assert verdict is Verdict.UNKNOWN
    assert words in seen


def test_the_bound_on_lost_steps_is_interval_polls_and_report() -> None:
    assert lost_steps_bound(healthy().case()) == 4 + 5 + 1  # two polls of 0.5 s cover 5 steps of 0.2 s
    assert lost_steps_bound(healthy().asked(poll_s=2.0, checkpoint_every=10).case()) == 10 + 20 + 1


@pytest.mark.parametrize(("resumed", "verdict"), [(12, Verdict.PASS), (4, Verdict.PASS), (3, Verdict.FAIL)])
def test_more_lost_steps_than_the_bound_explains_fail(resumed: int, verdict: Verdict) -> None:
    run = healthy(steps=16, kills=((1, 14),)).change("worker.start", {"attempt": 1}, steps=resumed)
    finding = check_lost_steps(run.case())
    assert finding.verdict is verdict
    assert finding.evidence == {"lost": 14 - resumed}
    assert f"resumed from {resumed}" in finding.seen


@pytest.mark.parametrize(("steps", "verdict"), [(2, Verdict.PASS), (1, Verdict.FAIL), (0, Verdict.FAIL)])
def test_a_bound_of_the_users_own_takes_the_place_of_the_one_computed(steps: int, verdict: Verdict) -> None:
    finding = check_lost_steps(healthy().case(), steps=steps)
    assert (finding.verdict, finding.expected) == (verdict, f"at most {steps} steps")
    assert finding.seen == "2 steps lost: 6 were complete, resumed from 4"


def test_the_costliest_of_several_faults_counts() -> None:
    run = healthy(kills=((1, 6), (0, 11)))
    assert check_lost_steps(run.case(), steps=2).evidence == {"lost": 3}


def test_a_bound_without_a_fault_is_unknown() -> None:
    assert check_lost_steps(healthy(kills=()).case(), steps=10).verdict is Verdict.UNKNOWN


def test_the_rank_that_resumed_furthest_back_counts() -> None:
    run = healthy(steps=16, kills=((1, 14),)).change("worker.start", {"attempt": 1, "rank": 1}, steps=4)
    assert check_lost_steps(run.case()).evidence == {"lost": 10}


@pytest.mark.parametrize(("steps", "epochs"), [(6, 1), (7, 2), (12, 2), (20, 4)])
def test_whole_and_partial_epochs_pass(steps: int, epochs: int) -> None:
    finding = check_samples(healthy(steps=steps, epoch=48, kills=((1, 5),)).case())
    assert finding.verdict is Verdict.PASS
    assert f"48 samples, {epochs} epoch" in finding.seen


def test_replayed_samples_after_a_rollback_are_counted_not_punished() -> None:
    finding = check_samples(healthy(kills=((1, 7),)).case())
    assert (finding.verdict, finding.evidence) == (Verdict.PASS, {"samples": 96, "replayed": 24})


def test_the_lost_attempts_own_samples_do_not_matter() -> None:
    run = healthy().change("step.end", {"attempt": 0, "step": 6}, samples=[[0, 3]])
    assert check_samples(run.case()).verdict is Verdict.PASS


def samples_of(run: Run, step: int, samples: dict[int, list[list[int]]]) -> Run:
    """With other samples in one step, by rank."""
    for rank, ranges in samples.items():
        run = run.change("step.end", {"rank": rank, "step": step}, samples=ranges)
    return run


@pytest.mark.parametrize("left", [[], [[16, 18]]])
def test_samples_that_one_rank_skips_in_the_first_of_two_epochs_fail(left: list[list[int]]) -> None:
    run = samples_of(healthy(epoch=48), 3, {0: left})
    assert check_samples(run.case()).verdict is Verdict.FAIL


def test_a_batch_skipped_in_the_second_epoch_fails() -> None:
    run = samples_of(healthy(steps=11, epoch=48), 9, {0: [], 1: []})
    assert check_samples(run.case()).verdict is Verdict.FAIL


def test_a_batch_replayed_in_the_last_step_fails() -> None:
    run = samples_of(healthy(), 12, {0: [[80, 83]], 1: [[84, 87]]})
    assert check_samples(run.case()).verdict is Verdict.FAIL


LOST = faulty((Hit(1, 6),), (Hit(1, 7),))
"""A kill, and another one after step 7 in the attempt that had come back."""


@pytest.mark.parametrize("where", [{"step": 5}, {"step": 6}, {"step": 5, "rank": 1}, {"rank": 0}])
def test_a_lost_step_that_no_event_tells_makes_the_steps_unknown(where: dict[str, int]) -> None:
    finding = check_steps(LOST.drop("step.end", attempt=1, **where).case())
    assert finding.verdict is Verdict.UNKNOWN
    assert "attempt 1, rank" in finding.seen
    assert check_steps(LOST.case()).verdict is Verdict.PASS


def test_ranges_that_run_backwards_hold_no_samples() -> None:
    run = healthy().change("step.end", {"step": 9, "rank": 0}, samples=[[64, 67], [9, 3]])
    assert check_samples(run.case()).verdict is check_samples(healthy().case()).verdict is Verdict.PASS
    assert check_batch(run.case()).verdict is Verdict.PASS


def test_samples_beyond_the_end_of_an_epoch_fail() -> None:
    finding = check_samples(healthy(kills=(), steps=4, every=4, epoch=20).case())  # the third step reads 16 to 23
    assert finding.verdict is Verdict.FAIL
    assert finding.evidence == {"missing": [0, 1, 2, 3], "twice": [20, 21, 22, 23]}
