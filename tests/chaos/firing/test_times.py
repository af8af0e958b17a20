"""Firing by time: the clock of a run goes on, whatever its ranks do."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from chaos.agent.events import EventWriter
from chaos.agent.firing import Firing
from chaos.agent.plan import Plan
from chaos.triggers import PHASES, after_seconds, in_phase, on_attempt
from tests.chaos.firing.world import NOTED, World, note

# Times


def test_a_time_comes_without_a_point(world: Callable[..., World], eventually: Callable[..., Any]) -> None:
    run = world(note(after_seconds(0.1)))
    begin = time.time()
    run.rank(0).begin_clock()
    assert NOTED == []
    assert eventually(lambda: NOTED)
    assert run.seen("fault.fired")[0].wall - begin >= 0.1
    assert run.seen("fault.fired")[0].data["phase"] == "time"


def test_before_its_time_nothing_fires_at_any_point(world: Callable[..., World]) -> None:
    run = world(note(after_seconds(3600)), note(after_seconds(3600) & in_phase("save"), id="note-1"))
    run.rank(0).begin_clock()
    assert [run.reach(phase) for phase in PHASES] == [0] * len(PHASES)


def test_a_fault_of_the_training_thread_waits_for_the_next_point_after_its_time(world: Callable[..., World]) -> None:
    run = world(note(after_seconds(0.1), fault="note-here"))
    run.rank(0).begin_clock()
    time.sleep(0.15)
    assert NOTED == []
    run.reach("forward")
    assert [threading.current_thread().name] == NOTED
    assert run.seen("fault.fired")[0].data["phase"] == "forward"


@pytest.mark.parametrize(
    "seconds",
    [
        0.0,
        0.01,
    ],
)
def test_no_time_runs_before_the_first_step_of_the_run(
    world: Callable[..., World], eventually: Callable[..., Any], seconds: float
) -> None:
    run = world(note(after_seconds(seconds)))
    run.rank(0).resume_clock()
    time.sleep(0.02)
    assert run.reach("rendezvous") == 0
    run.rank(0).begin_clock()
    assert eventually(lambda: NOTED)


def begin_and_end(directory: str) -> None:
    """A process whose first step has ended, and which is gone then."""
    plan = Plan.read(f"{directory}/plan.json")
    Firing(plan, EventWriter(plan.events, "n"), 0, 0, lambda: 1).begin_clock()
    os._exit(0)


def test_time_goes_on_while_a_rank_is_down(world: Callable[..., World], eventually: Callable[..., Any]) -> None:
    run = world(note(after_seconds(0.5)))
    begin = time.time()
    process = multiprocessing.get_context("fork").Process(target=begin_and_end, args=(run.plan.directory,))
    process.start()
    process.join(10)
    time.sleep(max(0.0, begin + 0.55 - time.time()))
    assert run.seen() == []
    run.restart()
    resumed = time.time()
    run.rank(0).resume_clock()
    assert eventually(lambda: NOTED)
    fired = run.seen("fault.fired")[0].wall
    assert fired - begin >= 0.5
    assert fired - resumed < 0.5


def test_a_time_in_a_phase_is_the_first_such_phase_after_it(world: Callable[..., World]) -> None:
    run = world(note(after_seconds(0.1) & in_phase("save") & on_attempt(0)))
    run.rank(0).begin_clock()
    time.sleep(0.15)
    assert run.reach("step") == 0
    assert run.reach("save") == 1
