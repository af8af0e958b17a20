"""A job whose world size changes from attempt to attempt: every ledger holds, and what a resize breaks is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from metrics.continuity import (
    check_batch,
    check_completed,
    check_lost_steps,
    check_resume_step,
    check_samples,
    check_steps,
)
from metrics.expectations import HEALTHY, keeps_batch, matches_control
from metrics.recovery import PHASES, check, cut_short, incidents, recoveries, resized
from metrics.summary import summarize
from metrics.verdict import Check, Verdict, judge
from tests.histories import Run, faulty, healthy
from tests.stories import Hit, checkpoint_name

SHRUNK = faulty((Hit(2, 6),), worlds=(3, 2))
"""Rank 2 of 3 is killed after step 6; two ranks go on from step 4."""

ELASTIC = faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 10),), steps=16)
"""The same, and when the two have come to step 10 the controller takes in a third; all go on from step 8."""

GROWN = faulty(worlds=(2, 3), resizes=((0, 6),))
"""No fault: two ranks until step 6, three from step 4 on."""

HALVED = faulty((Hit(1, 6),), (Hit(0, 10),), worlds=(4, 2, 1), steps=16)

RUNS = [SHRUNK, ELASTIC, GROWN, HALVED]


@pytest.mark.parametrize("check", [check_completed, check_resume_step, check_steps, check_samples, check_batch])
@pytest.mark.parametrize("run", RUNS)
def test_a_healthy_resize_passes(check: Check, run: Run) -> None:
    assert check(run.case()).verdict is Verdict.PASS


def test_a_healthy_resize_passes_all_that_is_asked_of_a_recovery(tmp_path: Path) -> None:
    asked = HEALTHY.but(matches_control(within=1e-9)) & keeps_batch()
    run = faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 10),), steps=16, expects=asked).asked(keep=9)
    found = judge(run.case(run.write(tmp_path / "run")), run.checks).findings
    assert {finding.check for finding in found if finding.verdict is not Verdict.PASS} == set()


# Steps


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (SHRUNK, "12 steps, world sizes 3, 2"),
        (ELASTIC, "16 steps, world sizes 3, 2, 3"),
        (GROWN, "12 steps, world sizes 2, 3"),
        (healthy(), "12 steps, world size 2"),
    ],
)
def test_the_world_sizes_that_made_the_steps_are_told(run: Run, words: str) -> None:
    assert check_steps(run.case()).seen == words


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (
            ELASTIC.drop("step.end", attempt=2, rank=2, step=9),
            "step 9 of attempt 2, world size 3: rank 2 did not complete it",
        ),
        (
            ELASTIC.drop("step.end", attempt=0, rank=2, step=4),
            "step 4 of attempt 0, world size 3: rank 2 did not complete it",
        ),
        (
            ELASTIC.drop("step.end", attempt=1, rank=1, step=5),
            "step 5 of attempt 1, world size 2: rank 1 did not complete it",
        ),
        (
            ELASTIC.again("step.end", {"attempt": 1, "rank": 1, "step": 7}, rank=2),
            "step 7 of attempt 1, world size 2: there is no rank 2",
        ),
        (ELASTIC.change("worker.start", {"attempt": 1}, steps=6), "step 5 was completed in attempts 0 and 1"),
        (ELASTIC.change("worker.start", {"attempt": 2}, steps=7), "no rank completed step 8, and step 9 follows"),
        (ELASTIC.change("attempt.start", {"attempt": 1}, world_size=3), "world size 3: rank 2 did not complete it"),
    ],
)
def test_a_step_that_a_resize_loses_or_doubles_fails(run: Run, words: str) -> None:
    finding = check_steps(run.case())
    assert finding.verdict is Verdict.FAIL
    assert words in finding.seen


# Samples


def in_any_order(run: Run) -> Run:
    """Read from the middle of the epoch on, so that only counts can tell."""
    for event in run.select("step.end"):
        moved = [[(first + 50) % 192, (last + 50) % 192] for first, last in event.data["samples"]]
        cut = [[a, b] for a, b in moved if a <= b] or [part for a, b in moved for part in ([a, 191], [0, b])]
        where = {"attempt": event.attempt, "rank": event.rank, "step": event.step}
        run = run.change("step.end", where, samples=cut)
    return run


ONCE = faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 10),), steps=16, epoch=192)
WAYS = [ONCE, in_any_order(ONCE)]


@pytest.mark.parametrize("run", WAYS)
def test_a_whole_epoch_across_two_resizes_passes(run: Run) -> None:
    finding = check_samples(run.case())
    assert finding.verdict is Verdict.PASS
    # Lost: two steps of three ranks, and two of two, of 12 samples each.
    assert finding.evidence == {"samples": 192, "replayed": 48}


def spoilt(run: Run, attempt: int, rank: int, step: int, source: tuple[int, int, int] | None) -> Run:
    """One rank consumes in a step what another did, by attempt, rank and step; nothing for None."""
    samples = []
    if source:
        (event,) = run.select("step.end", **dict(zip(("attempt", "rank", "step"), source, strict=True)))
        samples = event.data["samples"]
    return run.change("step.end", {"attempt": attempt, "rank": rank, "step": step}, samples=samples)


@pytest.mark.parametrize("run", WAYS)
@pytest.mark.parametrize(("attempt", "step"), [(1, 5), (2, 9)])
def test_samples_lost_at_a_resize_fail(run: Run, attempt: int, step: int) -> None:
    finding = check_samples(spoilt(run, attempt, 1, step, None).case())
    assert finding.verdict is Verdict.FAIL
    assert "never consumed" in finding.seen


@pytest.mark.parametrize("run", WAYS)
@pytest.mark.parametrize(("attempt", "step", "source"), [(1, 5, (0, 0, 4)), (2, 9, (1, 1, 8))])
def test_samples_doubled_at_a_resize_fail(run: Run, attempt: int, step: int, source: tuple[int, int, int]) -> None:
    finding = check_samples(spoilt(run, attempt, 1, step, source).case())
    assert finding.verdict is Verdict.FAIL
    assert "consumed twice" in finding.seen


@pytest.mark.parametrize("run", WAYS)
def test_what_a_rank_consumed_in_steps_that_the_resize_took_back_does_not_count(run: Run) -> None:
    assert check_samples(spoilt(run, 0, 2, 6, (0, 0, 1)).case()).verdict is Verdict.PASS
    assert check_samples(spoilt(run, 1, 1, 10, (0, 0, 1)).case()).verdict is Verdict.PASS


# The global batch


def test_the_size_of_the_batch_is_told() -> None:
    finding = check_batch(ELASTIC.case())
    assert (finding.verdict, finding.evidence) == (Verdict.PASS, {"samples": 12})
    assert finding.seen == "12 samples in each of 16 steps, world sizes 3, 2, 3"
    assert check_batch(healthy().case()).seen == "8 samples in each of 12 steps, world size 2"


def shrinking(run: Run, attempt: int) -> Run:
    """The ranks of an attempt go on with the share that they had: the batch shrinks with the group."""
    for event in run.select("step.end", attempt=attempt):
        first = event.data["samples"][0][0]
        where = {"attempt": attempt, "rank": event.rank, "step": event.step}
        run = run.change("step.end", where, samples=[[first, first + 3]])
    return run


def test_a_batch_that_shrinks_with_the_group_fails_at_its_first_step() -> None:
    finding = check_batch(shrinking(ELASTIC, 1).case())
    assert finding.verdict is Verdict.FAIL
    assert finding.seen == "step 5 consumed 8 samples at world size 2, most steps 12"
    assert finding.evidence == {"samples": 12, "step": 5, "consumed": 8, "world_size": 2}


@pytest.mark.parametrize("samples", [[], [[0, 4]]])
def test_one_rank_that_takes_another_share_in_one_step_fails(samples: list[list[int]]) -> None:
    run = ELASTIC.change("step.end", {"attempt": 2, "rank": 2, "step": 12}, samples=samples)
    finding = check_batch(run.case())
    assert finding.verdict is Verdict.FAIL
    assert finding.seen.startswith("step 12 consumed ")


def test_a_step_of_which_no_sample_was_told_fails_where_others_were() -> None:
    finding = check_batch(ELASTIC.change("step.end", {"step": 11}, samples=[]).case())
    assert (finding.verdict, finding.evidence["consumed"]) == (Verdict.FAIL, 0)


def test_the_batch_of_steps_that_were_taken_back_does_not_count() -> None:
    assert check_batch(ELASTIC.change("step.end", {"attempt": 0, "step": 6}, samples=[]).case()).verdict is Verdict.PASS


@pytest.mark.parametrize("run", [ELASTIC.change("step.end", samples=[]), ELASTIC.drop("step.end")])
def test_without_samples_the_batch_is_unknown(run: Run) -> None:
    assert check_batch(run.case()).verdict is Verdict.UNKNOWN


# Resumes and recoveries


def test_an_attempt_that_the_controller_resized_is_no_incident() -> None:
    assert resized(ELASTIC.case()) == {1}
    assert [events[0].attempt for events in incidents(ELASTIC.case())] == [0]
    assert (resized(GROWN.case()), incidents(GROWN.case())) == ({0}, [])
    assert resized(healthy().case()) == set()


def test_an_attempt_that_a_fault_broke_is_an_incident_even_if_the_controller_then_resized_it() -> None:
    run = SHRUNK.change("controller.state", {"attempt": 0, "to": "RESTARTING"}, to="RESIZING")
    assert resized(run.case()) == set()
    assert len(incidents(run.case())) == 1


def test_a_disturbance_does_not_make_an_incident_of_a_resize() -> None:
    run = faulty((Hit(1, 5, fault="delay"),), worlds=(2, 3), resizes=((0, 6),))
    assert (resized(run.case()), incidents(run.case())) == ({0}, [])


def test_the_resume_after_a_resize_is_judged() -> None:
    assert check_resume_step(ELASTIC.case()).seen == "attempt 1 from step 4; attempt 2 from step 8"
    run = ELASTIC.change("worker.start", {"attempt": 2, "rank": 2}, checkpoint=checkpoint_name(4))
    finding = check_resume_step(run.case())
    assert finding.verdict is Verdict.FAIL
    assert f"attempt 2, rank 2 was given {checkpoint_name(4)}, the last committed is" in finding.seen
    assert check_resume_step(ELASTIC.drop("restore.begin", attempt=2, rank=2).case()).verdict is Verdict.FAIL
    assert check_resume_step(ELASTIC.drop("worker.start", attempt=2, rank=2).case()).verdict is Verdict.UNKNOWN


EARLY = faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 0),))
"""The second group is resized before its first step."""


def test_a_group_that_was_resized_before_its_first_step_need_not_have_read_its_checkpoint() -> None:
    assert cut_short(EARLY.case()) == {1}
    run = EARLY.drop("restore.begin", attempt=1, rank=1)
    assert check_resume_step(run.case()).verdict is Verdict.PASS
    assert check_resume_step(EARLY.drop("restore.begin", attempt=2, rank=1).case()).verdict is Verdict.FAIL
    assert check_resume_step(ELASTIC.drop("restore.begin", attempt=1, rank=1).case()).verdict is Verdict.FAIL


@pytest.mark.parametrize("run", [SHRUNK, ELASTIC])
def test_a_fault_whose_job_comes_back_smaller_is_recovered(run: Run) -> None:
    (recovery,) = recoveries(run.case())
    assert (recovery.before, recovery.resumed, recovery.lost_steps) == (6, 4, 2)
    assert (recovery.missing, recovery.reached) == ("", True)
    assert [phase.name for phase in recovery.phases] == list(PHASES)
    assert check(run.case()).verdict is Verdict.PASS
    assert check_lost_steps(run.case()).evidence == {"lost": 2}


@pytest.mark.parametrize("step", [0, 5, 6])
def test_a_resize_in_the_middle_of_a_recovery_is_a_part_of_it(step: int) -> None:
    run = faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, step),))
    (recovery,) = recoveries(run.case())
    assert (recovery.attempt, recovery.before, recovery.resumed) == (0, 6, 4)
    assert (recovery.missing, recovery.reached) == ("", True)
    passed = max(e.wall_ns for e in run.select("step.end", attempt=2, step=7))
    assert recovery.phases[-1].end_ns == passed
    assert check(run.case()).verdict is Verdict.PASS
    for step_done in range(7, 13):
        run = run.drop("step.end", attempt=2, step=step_done)
    assert check(run.case()).verdict is Verdict.FAIL


def test_a_restore_that_a_resize_cut_short_is_that_of_the_group_after() -> None:
    run = EARLY.drop("restore.end", attempt=1, rank=1)
    (recovery,) = recoveries(run.case())
    ends = {phase.name: phase.end_ns for phase in recovery.phases}
    assert ends["restore"] == max(e.wall_ns for e in run.select("restore.end", attempt=2))
    assert check(run.case()).verdict is Verdict.PASS


def test_a_restart_that_is_no_resize_is_no_part_of_the_recovery() -> None:
    run = faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 5),)).drop("controller.state", attempt=1, to="RESIZING")
    assert check(run.case()).verdict is Verdict.FAIL


def test_ranks_are_numbered_anew_in_each_group() -> None:
    first, second = recoveries(HALVED.case())
    assert (first.before, first.resumed, second.before, second.resumed) == (6, 4, 10, 8)
    # Rank 1 of four was killed; rank 0 of two after that, which is another process.
    assert [r.fired[0].rank for r in (first, second)] == [1, 0]


@pytest.mark.parametrize(
    ("run", "lost"),
    [
        (SHRUNK, [24]),  # two steps of 12 samples, on three ranks
        (ELASTIC, [24]),
        (GROWN, []),
        (HALVED, [32, 32]),
        (SHRUNK.drop("step.end", attempt=0, rank=0, step=6), [20]),
    ],
)
def test_the_samples_lost_are_those_of_every_rank_of_the_group_that_was_hit(run: Run, lost: list[int]) -> None:
    found = summarize(run.case(), run.judged())
    assert [recovery.lost_samples for recovery in found.recoveries] == lost


@pytest.mark.parametrize(("run", "restarts"), [(SHRUNK, 1), (ELASTIC, 1), (GROWN, 0), (HALVED, 2)])
def test_a_resize_is_no_restart(run: Run, restarts: int) -> None:
    assert summarize(run.case(), run.judged()).restarts == restarts
