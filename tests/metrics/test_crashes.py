"""The fate of a job after a crash, both ways: each deviation gives its own, and a sound recovery gives a good one."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.history import History
from metrics.attempts import Attempt, attempts_of
from metrics.crashes import GOOD, Aftermath, Fate, aftermath
from tests.histories import Run, faulty, healthy
from tests.stories import Hit

WAS_AT, COMMITTED = 6, 4
"""Of a healthy run: the step after which rank 1 is killed, and that of the checkpoint which is resumed from."""


def attempts(run: Run) -> list[Attempt]:
    return attempts_of(History.of(run.events))


def fate(run: Run, committed: int = COMMITTED, number: int = 0) -> Aftermath:
    """What followed the crash in that attempt of the run."""
    lives = attempts(run)
    assert run.control is not None
    following = [life for life in lives if life.number > number]
    codes = [event.data["code"] for event in run.select("workload.exit")]
    return aftermath(lives[number], following, codes[0] if codes else None, committed, attempts(run.control))


def ended_with(run: Run, code: int | None) -> Run:
    """With a training script that ended so."""
    return run.change("workload.exit", code=code)


# Good ones


def test_steps_that_were_made_again_from_the_last_checkpoint_are_lost_work() -> None:
    found = fate(healthy())
    assert found == Aftermath(
        fate=Fate.LOST_WORK,
        seen="went on from step 4: 8 steps equal those of the undisturbed run, its state too",
        step=WAS_AT,
        resumed=COMMITTED,
        lost_steps=WAS_AT - COMMITTED,
    )


def test_a_job_that_goes_on_where_it_was_is_clean() -> None:
    found = fate(healthy(kills=((1, 8),)), committed=8)
    assert (found.fate, found.step, found.resumed, found.lost_steps) == (Fate.CLEAN, 8, 8, 0)


def test_a_job_that_crashed_before_its_first_checkpoint_begins_anew_and_has_no_state_to_compare() -> None:
    found = fate(healthy(kills=((1, 3),)), committed=0)
    assert (found.fate, found.resumed, found.lost_steps) == (Fate.LOST_WORK, 0, 3)
    assert found.seen == "went on from step 0: 12 steps equal those of the undisturbed run"


def test_a_checkpoint_that_was_committed_a_moment_later_is_better_than_what_was_asked_for() -> None:
    found = fate(healthy(kills=((1, 9),)), committed=4)
    assert (found.fate, found.resumed) == (Fate.LOST_WORK, 8)


@pytest.mark.parametrize("number", [0, 1])
def test_each_crash_of_a_job_is_judged_by_the_attempt_that_followed_it(number: int) -> None:
    run = healthy(kills=((1, 6), (0, 9)))
    found = fate(run, committed=(4, 8)[number], number=number)
    assert (found.fate, found.step, found.resumed) == (Fate.LOST_WORK, (6, 9)[number], (4, 8)[number])


def test_an_attempt_that_is_crashed_itself_is_judged_by_the_steps_that_it_made() -> None:
    found = fate(healthy(kills=((1, 6), (0, 9))))
    assert "went on from step 4: 5 steps equal" in found.seen


@pytest.mark.parametrize("phase", ["rendezvous", "restore"])
@pytest.mark.parametrize("code", [0, 1, None])
def test_an_attempt_that_came_to_no_step_is_passed_over_for_one_that_did(phase: str, code: int | None) -> None:
    """However the job ended later."""
    found = fate(ended_with(faulty((Hit(1, 6),), (Hit(0, phase=phase),)), code))
    assert (found.fate, found.resumed, found.lost_steps) == (Fate.LOST_WORK, 4, 2)
    assert "went on from step 4: 8 steps equal" in found.seen


# Bad ones


@pytest.mark.parametrize("code", [1, 137])
def test_a_job_that_ends_in_error_without_a_further_step_cannot_resume(code: int) -> None:
    run = ended_with(faulty((Hit(1, 6),), gives_up=True), code)
    seen = f"no step was made after it, and the job ended with exit code {code}"
    assert fate(run) == Aftermath(fate=Fate.CANNOT_RESUME, seen=seen, step=6)


@pytest.mark.parametrize("phase", ["rendezvous", "restore"])
def test_attempts_none_of_which_came_to_a_step_do_not_resume(phase: str) -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase=phase),), (Hit(1, phase=phase),), gives_up=True)
    assert fate(run).fate is Fate.CANNOT_RESUME
    assert fate(run, number=1).fate is Fate.CANNOT_RESUME


@pytest.mark.parametrize("rank", [0, 1])
def test_steps_that_only_some_ranks_made_are_none(rank: int) -> None:
    run = healthy().drop("step.end", attempt=1, rank=rank)
    assert fate(ended_with(run, 1)).fate is Fate.CANNOT_RESUME


def test_the_first_attempt_that_made_steps_is_judged_and_not_a_later_one() -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase="restore"),), (Hit(1, 9),))
    spoilt = {number: run.change("step.end", {"attempt": number, "step": 9}, loss=9.9) for number in (2, 3)}
    assert fate(spoilt[2]).fate is Fate.SILENTLY_WRONG
    assert fate(run.change("step.end", {"attempt": 3}, loss=9.9)).fate is Fate.LOST_WORK


def test_a_job_that_goes_on_from_before_a_committed_checkpoint_has_lost_it() -> None:
    found = fate(healthy(kills=((1, 9),)), committed=10)
    assert (found.fate, found.resumed) == (Fate.LOST_MORE, 8)
    assert found.seen == "step 10 had been committed, and the job went on from 8"


def test_a_job_that_begins_anew_although_a_checkpoint_was_committed_has_lost_it() -> None:
    found = fate(healthy(kills=((1, 3),)), committed=2)
    assert (found.fate, found.lost_steps) == (Fate.LOST_MORE, 3)


DEVIATIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another loss": ({"rank": 0, "step": 9}, {"loss": 9.9}, "step 9 of rank 0 is (9.9, "),
    "another loss in the last step": ({"rank": 1, "step": 12}, {"loss": 9.9}, "step 12 of rank 1 is "),
    "no loss": ({"rank": 0, "step": 5}, {"loss": None}, "step 5 of rank 0 is (None, "),
    "another rate": ({"rank": 1, "step": 5}, {"lr": 0.5}, "step 5 of rank 1 is "),
    "another sample": ({"rank": 1, "step": 7}, {"samples": [[3, 6]]}, "step 7 of rank 1 is "),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_step_that_no_undisturbed_run_makes_is_silently_wrong(name: str) -> None:
    where, change, seen = DEVIATIONS[name]
    found = fate(healthy().change("step.end", {"attempt": 1, **where}, **change))
    assert (found.fate, found.resumed, found.lost_steps) == (Fate.SILENTLY_WRONG, COMMITTED, 2)
    assert found.seen.startswith(seen)


def test_the_same_deviation_before_the_crash_is_not_the_recoverys() -> None:
    run = healthy().change("step.end", {"attempt": 0, "rank": 0, "step": 2}, loss=9.9)
    assert fate(run).fate is Fate.LOST_WORK


def restored(run: Run, rank: int) -> dict[str, str]:
    parts: dict[str, str] = run.select("state", attempt=1, rank=rank, name="restored")[0].data["parts"]
    return parts


def with_restored(run: Run, rank: int, parts: dict[str, str]) -> Run:
    return run.change("state", {"attempt": 1, "rank": rank, "name": "restored"}, parts=parts)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("both", [True, False], ids=["a piece of all", "a piece of its own"])
def test_a_piece_that_was_never_saved_is_silently_wrong(rank: int, both: bool) -> None:
    """Also when the other rank has restored the same piece rightly."""
    run = healthy()
    mine, others = restored(run, rank), restored(run, 1 - rank)
    piece = next(piece for piece in sorted(mine) if (piece in others) is both)
    found = fate(with_restored(run, rank, mine | {piece: "0" * 32}))
    assert (found.fate, found.seen) == (Fate.SILENTLY_WRONG, f"restored at step 4, 1 pieces differ, first {piece}")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_piece_that_is_lacking_or_extra_is_silently_wrong(rank: int) -> None:
    run = healthy()
    mine, others = restored(run, rank), restored(run, 1 - rank)
    (own,) = mine.keys() - others.keys()
    for parts in ({piece: digest for piece, digest in mine.items() if piece != own}, mine | {"extra": "0" * 32}):
        found = fate(with_restored(run, rank, parts))
        assert (found.fate, found.seen.split(", first")[0]) == (
            Fate.SILENTLY_WRONG,
            "restored at step 4, 1 pieces differ",
        )


def test_a_state_of_another_step_is_silently_wrong_although_the_steps_seem_right() -> None:
    run, other = healthy(), healthy(kills=((1, 9),))
    for rank in range(2):
        run = with_restored(run, rank, restored(other, rank))
    assert fate(run).fate is Fate.SILENTLY_WRONG


@pytest.mark.parametrize("steps", [0, 8, None])
def test_ranks_that_go_on_from_different_steps_are_silently_wrong(steps: int | None) -> None:
    run = healthy().change("worker.start", {"attempt": 1, "rank": 1}, steps=steps)
    found = fate(run)
    assert found.fate is Fate.SILENTLY_WRONG
    assert found.seen == f"ranks went on from different steps: {{0: 4, 1: {steps}}}"


def test_being_wrong_is_worse_than_having_lost_a_checkpoint() -> None:
    run = healthy().change("step.end", {"attempt": 1, "step": 9, "rank": 0}, loss=9.9)
    assert fate(run, committed=5).fate is Fate.SILENTLY_WRONG


# What nothing is known of


@pytest.mark.parametrize("code", [None, 0, -9])
def test_a_job_that_did_not_end_in_error_may_have_resumed_later(code: int | None) -> None:
    """It was ended at its deadline, or came to its end, or somebody killed it."""
    found = fate(ended_with(faulty((Hit(1, 6),), gives_up=True), code))
    seen = "no step was made after it, but the job did not end in error"
    assert found == Aftermath(fate=Fate.UNKNOWN, seen=seen, step=6)


def test_a_job_whose_end_was_not_seen_may_have_resumed_later() -> None:
    assert fate(faulty((Hit(1, 6),), gives_up=True).drop("workload.exit")).fate is Fate.UNKNOWN


@pytest.mark.parametrize("rank", [0, 1])
def test_a_step_beyond_those_of_the_undisturbed_run_is_unknown(rank: int) -> None:
    found = fate(healthy().change("step.end", {"attempt": 1, "rank": rank, "step": 12}, step=13))
    assert (found.fate, found.seen) == (Fate.UNKNOWN, f"the undisturbed run has no step 13 of rank {rank}")
    assert (found.resumed, found.lost_steps) == (COMMITTED, 2)


@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 1)])
def test_a_state_that_not_all_ranks_told_is_unknown(ranks: tuple[int, ...]) -> None:
    run = healthy()
    for rank in ranks:
        run = run.drop("state", attempt=1, rank=rank, name="restored")
    found = fate(run)
    assert found.fate is Fate.UNKNOWN
    assert found.seen == f"{2 - len(ranks)} of 2 ranks told what they had restored"
    assert (found.resumed, found.lost_steps) == (COMMITTED, 2)


def test_a_step_at_which_the_undisturbed_run_saved_nothing_is_unknown() -> None:
    run = healthy()
    assert run.control is not None
    found = fate(run.with_control(run.control.drop("state", step=4)))
    assert (found.fate, found.seen) == (Fate.UNKNOWN, "the undisturbed run saved nothing at step 4")


def test_without_an_undisturbed_run_nothing_is_known() -> None:
    hit, *following = attempts(healthy())
    assert aftermath(hit, following, 0, COMMITTED, []).seen.startswith("the undisturbed run had 0 attempts")
    twice = attempts(healthy())
    found = aftermath(hit, following, 0, COMMITTED, twice)
    assert (found.fate, found.seen.split(",")[0]) == (Fate.UNKNOWN, "the undisturbed run had 2 attempts")


@pytest.mark.parametrize(("where", "lacking"), [({"step": 11}, (11, 0)), ({"rank": 1}, (5, 1))])
def test_a_step_that_the_undisturbed_run_lacks_is_unknown(where: dict[str, int], lacking: tuple[int, int]) -> None:
    run = healthy()
    assert run.control is not None
    found = fate(run.with_control(run.control.drop("step.end", **where)))
    assert found.seen == "the undisturbed run has no step {} of rank {}".format(*lacking)
    assert found.fate is Fate.UNKNOWN


def test_steps_that_the_undisturbed_run_lacks_before_the_one_resumed_from_are_not_needed() -> None:
    run = healthy()
    assert run.control is not None
    assert fate(run.with_control(run.control.drop("step.end", step=3))).fate is Fate.LOST_WORK


# All of them


def test_every_fate_is_reached_by_these_tests_and_two_of_them_are_good() -> None:
    reached = {
        fate(healthy()).fate,
        fate(healthy(kills=((1, 8),)), committed=8).fate,
        fate(healthy(), committed=5).fate,
        fate(faulty((Hit(1, 6),), gives_up=True)).fate,
        fate(healthy().change("step.end", {"attempt": 1, "step": 9}, loss=9.9)).fate,
        fate(healthy().drop("state", attempt=1)).fate,
    }
    assert reached == set(Fate)
    assert set(GOOD) == {Fate.CLEAN, Fate.LOST_WORK}


def test_a_definite_deviation_counts_although_something_else_is_not_told() -> None:
    wrong = healthy().change("step.end", {"rank": 0, "step": 9}, loss=9.9)
    for run in (
        wrong.change("step.end", {"rank": 1, "step": 12}, step=13),
        wrong.drop("state", name="restored", rank=1),
    ):
        assert fate(run).fate is Fate.SILENTLY_WRONG
