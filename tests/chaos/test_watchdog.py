"""The watchdog: silent while any rank makes a step, and what it says when none does for too long."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ray.train.v2.api.exceptions import WorkerGroupError

from chaos.agent import watchdog
from chaos.agent.events import EventWriter
from chaos.agent.plan import Plan
from chaos.agent.session import Session
from chaos.agent.watchdog import STARTING_S, WIDTH, NoProgress, Progress, Watchdog, path_of

SECONDS = 10.0
few = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def clock(monkeypatch):
    """The time as the watchdog sees it, which passes only when told to."""
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def dog(clock, plan):
    """Watch over three ranks of attempt 1; and their progress, by rank."""
    return Watchdog(plan.board, 1, 3, SECONDS), [Progress(plan.board, 1, rank) for rank in range(3)]


# What a worker tells


def test_a_worker_tells_its_latest_step_in_a_file_of_its_own(plan) -> None:
    progress = Progress(plan.board, 2, 1)
    (file,) = plan.board.iterdir()
    assert file == path_of(plan.board, 2, 1)
    assert file.read_bytes() == b""
    for step in (7, 123456, 9):
        progress.tell(step)
        assert (int(file.read_bytes()), file.stat().st_size) == (step, WIDTH)


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_a_session_tells_of_its_steps_where_there_is_a_watchdog_only(plan, seconds) -> None:
    orders = Plan(run_id="run1", directory=plan.directory, watchdog_s=seconds)
    session = Session(orders, EventWriter(plan.events, "n"), rank=1, attempt=2, steps_done=40)
    session.start(None)
    weight = torch.zeros(2, requires_grad=True)
    trained = torch.optim.SGD([weight])
    for _ in range(3):
        weight.grad = torch.ones(2)
        trained.step()
    session.stop()
    files = {file.name: file.read_text().strip() for file in plan.board.iterdir()}
    assert files == ({"progress-2-1": "43"} if seconds else {})


# When it barks


def test_it_is_silent_before_its_time_and_barks_at_it(clock, dog) -> None:
    watch, progress = dog
    for rank in progress:
        rank.tell(5)
    assert watch.look() is None
    clock.now += SECONDS - 0.01
    assert watch.look() is None
    clock.now += 0.01
    assert watch.look() == {0: 5, 1: 5, 2: 5}


@pytest.mark.parametrize("moving", [0, 1, 2])
def test_a_step_of_a_single_rank_is_enough(clock, dog, moving) -> None:
    watch, progress = dog
    for rank in progress:
        rank.tell(1)
    for step in range(2, 30):
        progress[moving].tell(step)
        assert watch.look() is None
        clock.now += SECONDS - 1
        assert watch.look() is None
    clock.now += 1
    assert watch.look() is not None


def test_the_same_step_told_again_is_no_progress(clock, dog) -> None:
    watch, progress = dog
    for _ in range(3):
        progress[0].tell(4)
        told = watch.look()
        clock.now += SECONDS / 2
    assert told == {0: 4, 1: None, 2: None}


@few
@given(gaps=st.lists(st.floats(0.1, 30.0), min_size=1, max_size=8), rank=st.integers(0, 2))
def test_it_barks_at_the_first_silence_of_all_that_is_too_long_and_at_no_other(plan, clock, gaps, rank) -> None:
    watch, progress = Watchdog(plan.board, 1, 3, SECONDS), [Progress(plan.board, 1, r) for r in range(3)]
    first = int(path_of(plan.board, 1, rank).read_bytes() or 0) + 1
    progress[rank].tell(first)
    assert watch.look() is None
    for step, gap in enumerate(gaps, first + 1):
        clock.now += gap
        barks = watch.look() is not None
        assert barks == (gap >= SECONDS)
        if barks:
            return
        progress[rank].tell(step)
        assert watch.look() is None


# Before the first step


def test_before_the_first_step_there_is_more_patience(clock, dog) -> None:
    watch, _ = dog
    assert SECONDS < STARTING_S
    assert watch.look() is None
    clock.now += STARTING_S - 0.01
    assert watch.look() is None
    clock.now += 0.01
    assert watch.look() == {0: None, 1: None, 2: None}


def test_a_watchdog_more_patient_than_that_keeps_its_own_patience(clock, plan) -> None:
    watch = Watchdog(plan.board, 1, 2, 2 * STARTING_S)
    assert watch.look() is None
    clock.now += 2 * STARTING_S - 0.01
    assert watch.look() is None
    clock.now += 0.01
    assert watch.look() is not None


def test_the_first_step_of_any_rank_ends_the_patience(clock, dog) -> None:
    watch, progress = dog
    clock.now += STARTING_S - 1
    progress[2].tell(1)
    assert watch.look() is None
    clock.now += SECONDS
    assert watch.look() == {0: None, 1: None, 2: 1}


def test_the_steps_of_an_attempt_before_say_nothing(clock, plan) -> None:
    for rank in range(2):
        Progress(plan.board, 0, rank).tell(50)
    watch = Watchdog(plan.board, 1, 2, SECONDS)
    clock.now += 2 * SECONDS
    assert watch.look() is None
    clock.now += STARTING_S
    assert watch.look() == {0: None, 1: None}


def test_what_is_no_number_is_no_step(clock, dog, plan) -> None:
    watch, progress = dog
    progress[0].tell(3)
    path_of(plan.board, 1, 1).write_text("no number")
    path_of(plan.board, 1, 2).unlink()
    assert watch.look() is None
    clock.now += SECONDS
    assert watch.look() == {0: 3, 1: None, 2: None}


# What it says


@pytest.mark.parametrize(
    ("steps", "behind"),
    [
        ({0: 6, 1: 5, 2: 6}, {1}),
        ({0: 6, 1: None, 2: 5}, {1}),
        ({0: 6, 1: 6}, {0, 1}),
        ({0: None, 1: None}, {0, 1}),
        ({0: 4}, {0}),
    ],
    ids=str,
)
def test_the_ranks_furthest_behind_are_named_as_failed(dog, steps, behind) -> None:
    watch, _ = dog
    error = watch.error(steps)
    assert type(error) is WorkerGroupError
    assert set(error.worker_failures) == behind
    assert {type(failure) for failure in error.worker_failures.values()} == {NoProgress}
    for rank, step in steps.items():
        assert f"rank {rank} at step {step or 'none'}" in str(error)
    assert "no step on any rank for 10 s" in str(error)


def test_what_it_says_travels(dog) -> None:
    watch, _ = dog
    error = watch.error({0: 2, 1: 1})
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), set(copy.worker_failures)) == (str(error), {1})
    assert pickle.loads(pickle.dumps(watch)).look() is None
