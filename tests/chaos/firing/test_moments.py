"""Firing: at the point and at most once per run, however often a rank comes back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.agent.plan import NODE
from chaos.faults.base import InjectedError
from chaos.targets import Node
from chaos.triggers import PHASES, after_seconds, at_step, in_phase
from tests.chaos.firing.world import NOTED, World, note, repeated

few = settings(max_examples=10, deadline=None)


# At the point


def test_a_fault_fires_when_its_moment_comes(world: Callable[..., World]) -> None:
    run = world(note(at_step(3)))
    assert [run.reach("step", step) for step in (1, 2, 3, 4)] == [0, 0, 1, 1]
    (event,) = run.seen()
    assert (event.kind, event.step) == ("fault.fired", 3)
    assert event.data == {"injection": "note-0", "fault": "note", "phase": "step", "node": ""}


def test_the_event_is_written_before_the_fault_is_done(world: Callable[..., World]) -> None:
    run = world(note(at_step(1), values={"raises": "injected"}))
    with pytest.raises(InjectedError):
        run.reach("step", 1)
    assert run.told() == [("fault.fired", "note-0")]


def test_the_folder_that_a_point_is_about_is_told_with_the_fault(world: Callable[..., World]) -> None:
    run = world(note(in_phase("save")))
    run.rank(0).reach("save", "/d/c")
    (event,) = run.seen("fault.fired")
    assert event.data["place"] == "/d/c"


def test_other_ranks_are_spared(world: Callable[..., World]) -> None:
    run = world(note(at_step(1), rank=1))
    assert run.reach("step", 1, rank=0) == 0
    assert run.reach("step", 1, rank=1) == 1


def test_all_that_is_due_at_once_fires_in_the_order_armed(world: Callable[..., World]) -> None:
    run = world(note(at_step(1), id="b"), note(at_step(2), id="c"), note(at_step(1), id="a"))
    run.reach("step", 1)
    assert run.told() == [("fault.fired", "b"), ("fault.fired", "a")]


@pytest.mark.parametrize("phase", PHASES)
def test_a_fault_fires_in_its_phase_only(world: Callable[..., World], phase: str) -> None:
    run = world(note(in_phase(phase)))
    for other in PHASES:
        assert run.reach(other) == int(list(PHASES).index(other) >= list(PHASES).index(phase))
    assert run.seen()[0].data["phase"] == phase


def test_a_rank_listens_to_what_it_or_its_peers_need(world: Callable[..., World]) -> None:
    run = world(
        note(at_step(3) >> in_phase("save")),
        note(after_seconds(1), id="later"),
        note(in_phase("forward"), rank=1, id="other"),
        note(in_phase("report"), rank=1, id="together", fault="note-together"),
    )
    assert run.rank(0).phases == {"step", "save", "time", "report"}
    assert run.rank(1).phases == {"forward", "report"}
    assert run.rank(2).phases == {"report"}


# At most once


def test_a_restarted_rank_does_not_fire_again(world: Callable[..., World]) -> None:
    run = world(note(at_step(3)))
    for _ in range(3):
        run.reach("step", 3)
        run.restart()
    assert len(NOTED) == 1
    assert [event.kind for event in run.seen()] == ["fault.fired"]


def test_of_many_threads_at_the_point_one_fires(world: Callable[..., World]) -> None:
    run = world(note(at_step(1)))
    run.step = 1
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: run.rank(0).reach("step"), range(32)))
    assert len(NOTED) == len(run.seen("fault.fired")) == 1


@few
@given(st.integers(1, 4), st.lists(st.booleans(), min_size=10, max_size=10))
def test_a_repetition_fires_exactly_so_often(times: int, restarts: list[bool]) -> None:
    NOTED.clear()
    with tempfile.TemporaryDirectory() as folder:
        run = World(Path(folder), *repeated(at_step(5), times))
        counts = []
        for restart in restarts:
            counts.append(run.reach("step", 5))
            if restart:
                run.restart()
        assert counts == [min(i, times) for i in range(1, 11)]
        assert run.told() == [("fault.fired", f"note-{i}") for i in range(times)]


def test_what_follows_waits_for_what_comes_before(world: Callable[..., World]) -> None:
    run = world(note(at_step(5), id="first"), note(at_step(2), id="second", follows="first"))
    assert [run.reach("step", step) for step in (2, 5, 2, 2)] == [0, 1, 2, 2]
    assert run.told() == [("fault.fired", "first"), ("fault.fired", "second")]


# One after the other


@few
@given(st.lists(st.tuples(st.sampled_from(["step", "save"]), st.integers(1, 3), st.booleans()), max_size=12))
def test_a_chain_fires_after_all_its_parts_have_passed_in_order(moments: list[tuple[str, int, bool]]) -> None:
    NOTED.clear()
    parts = [("step", 1), ("save", 2), ("step", 3)]
    trigger = at_step(1) >> (in_phase("save") & at_step(2)) >> at_step(3)
    with tempfile.TemporaryDirectory() as folder:
        run, passed = World(Path(folder), note(trigger)), 0
        for phase, step, restart in moments:
            passed += passed < 3 and parts[passed] == (phase, step)
            assert run.reach(phase, step) == int(passed == 3)
            if restart:
                run.restart()


def test_one_moment_does_not_pass_two_parts(world: Callable[..., World]) -> None:
    run = world(note(at_step(1) >> at_step(1)))
    assert [run.reach("step", 1) for _ in range(3)] == [0, 1, 1]


def test_each_rank_passes_for_itself(world: Callable[..., World]) -> None:
    run = world(
        *(note(at_step(1) >> in_phase("save"), rank=rank, id=f"note-{rank}") for rank in range(2)),
    )
    run.reach("step", 1, rank=0)
    assert run.reach("save", 1, rank=1) == 0
    assert run.reach("save", 1, rank=0) == 1


def test_a_repeated_chain_fires_at_each_of_the_first_moments_after_its_beginning(world: Callable[..., World]) -> None:
    """As ten slow steps in a row from a step on."""
    run = world(*repeated(at_step(3) >> in_phase("step"), 3))
    assert [run.reach("step", step) for step in range(1, 9)] == [0, 0, 0, 1, 2, 3, 3, 3]


def test_a_repeated_chain_fires_once_in_each_attempt_where_its_end_comes_once(world: Callable[..., World]) -> None:
    """As a crash loop: in the first forward pass of every attempt after the first."""
    run, counts = world(*repeated(at_step(5) >> in_phase("first-step"), 2)), []
    for _ in range(4):
        run.reach("first-step")
        counts.append(run.reach("step", 5))
        run.restart()
    assert counts == [0, 1, 2, 2]


# Nodes


def test_whichever_worker_of_a_node_comes_first_is_hit(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world(note(at_step(1), rank=None, node="w1"))
    for node, rank, expected in (("w0", 0, 0), ("w1", 3, 1), ("w1", 2, 1), ("", 1, 1)):
        monkeypatch.setenv(NODE, node)
        assert run.reach("step", 1, rank=rank) == expected
    assert run.seen("fault.fired")[0].data["node"] == "w1"


def test_a_node_is_hit_again_by_a_repetition_whatever_rank_it_has_then(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NODE, "w1")
    run = world(*repeated(at_step(1), 2, Node("w1")))
    assert [run.reach("step", 1, rank=rank) for rank in (1, 0, 1)] == [1, 2, 2]


def test_a_chain_on_a_node_goes_on_whatever_rank_it_has_then(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which node holds which rank differs from attempt to attempt."""
    monkeypatch.setenv(NODE, "w1")
    run = world(note(at_step(1) >> in_phase("first-step"), rank=None, node="w1"))
    run.reach("step", 1, rank=1)
    run.restart()
    assert run.reach("first-step", rank=0) == 1
