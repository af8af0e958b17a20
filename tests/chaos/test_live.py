"""What is known of a run while it goes on."""

from __future__ import annotations

import pytest

from chaos.live import Live


@pytest.fixture
def live(event):
    """A fold; call it with a kind and fields."""
    fold = Live()

    def take(kind, **fields):
        fold(event(kind, **fields))
        return fold

    return take


def test_nothing_is_known_at_first() -> None:
    assert (Live().step, Live().furthest, Live().attempt, Live().state) == (0, 0, 0, "")


def test_a_step_counts_once_every_rank_has_completed_it(live) -> None:
    live("attempt.start", attempt=0, world_size=2)
    assert live("step.end", attempt=0, rank=0, step=3).step == 0
    fold = live("step.end", attempt=0, rank=1, step=2)
    assert (fold.step, fold.furthest) == (2, 3)


def test_steps_before_the_size_of_the_world_is_known_count_for_nothing(live) -> None:
    assert live("step.end", attempt=0, rank=0, step=1).step_of_all(0) == 0
    assert live("attempt.start", attempt=0, world_size=1).step_of_all(0) == 1


def test_a_new_attempt_begins_anew_and_the_furthest_step_stays(live) -> None:
    live("attempt.start", attempt=0, world_size=1)
    live("step.end", attempt=0, rank=0, step=9)
    fold = live("attempt.start", attempt=1, world_size=1)
    assert (fold.attempt, fold.step, fold.furthest) == (1, 0, 9)
    fold = live("step.end", attempt=1, rank=0, step=5)
    assert (fold.step, fold.furthest, fold.step_of_all(0)) == (5, 9, 9)


def test_steps_without_an_attempt_a_rank_or_a_number_are_passed_over(live) -> None:
    for fields in ({"rank": 0, "step": 1}, {"attempt": 0, "step": 1}, {"attempt": 0, "rank": 0}):
        assert live("step.end", **fields).steps == {}


def test_faults_are_fired_and_confirmed_by_injection(live, event) -> None:
    fold = live("fault.fired", step=3, data={"injection": "a"})
    assert (fold.fired["a"].step, fold.confirmed) == (3, set())
    assert live("fault.confirmed", data={"injection": "a"}).confirmed == {"a"}


def test_state_and_last_checkpoint(live) -> None:
    live("controller.state", data={"to": "RUNNING"})
    live("checkpoint.commit", step=10)
    fold = live("checkpoint.commit", step=None)
    assert (fold.state, fold.committed) == ("RUNNING", 10)
