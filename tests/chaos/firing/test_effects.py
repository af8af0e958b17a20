"""What follows a firing: what is raised, told, waited for, and shared by peers."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from chaos.agent import firing
from chaos.agent.events import EventWriter
from chaos.agent.firing import Firing
from chaos.agent.plan import Board, Injection, Plan
from chaos.faults import base
from chaos.faults.base import InjectedError, Proof
from chaos.triggers import Trigger, at_step, in_phase
from tests.chaos.firing.world import NOTED, Note, World, note

# What a fault raises


@pytest.mark.parametrize(("raises", "error"), [("injected", InjectedError), ("memory", MemoryError)])
def test_what_is_raised_on_purpose_goes_through(
    world: Callable[..., World], raises: str, error: type[Exception]
) -> None:
    run = world(note(at_step(1), values={"raises": raises}))
    with pytest.raises(error, match="told"):
        run.reach("step", 1)
    assert run.told() == [("fault.fired", "note-0")]


def test_a_fault_that_fails_is_told_and_the_program_goes_on(world: Callable[..., World]) -> None:
    run = world(note(at_step(1), values={"raises": "value"}))
    run.reach("step", 1)
    (event,) = run.seen("fault.failed")
    assert (event.step, event.data["injection"], event.data["error"]) == (1, "note-0", "ValueError('told')")


# What a fault that comes back tells


def test_a_disturbance_tells_how_long_it_took(world: Callable[..., World]) -> None:
    run = world(note(at_step(1), fault="delay", id="delay-0", values={"seconds": 0.05}))
    begin = time.monotonic()
    run.reach("step", 1)
    taken = time.monotonic() - begin
    (event,) = run.seen("fault.ended")
    assert event.data["injection"] == "delay-0"
    assert 0.05 <= event.data["seconds"] <= taken


@pytest.mark.parametrize(
    ("proof", "told"),
    [(Proof.ENDED, 1), (Proof.BLOCKED, 1), (Proof.EXIT, 1), (Proof.ERROR, 0), (Proof.TOLD, 0)],
)
def test_the_end_of_what_stands_at_a_point_is_told(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, proof: Proof, told: int
) -> None:
    monkeypatch.setattr(Note, "proof", proof)
    run = world(note(at_step(1)))
    run.reach("step", 1)
    assert len(run.seen("fault.ended")) == told


# Attacks


def frozen(trigger: Trigger) -> Injection:
    return note(trigger, fault="freeze", id="freeze-0")


def test_an_attack_is_due_and_the_process_stands_still_until_it_may_go(
    world: Callable[..., World], eventually: Callable[..., Any]
) -> None:
    run = world(frozen(at_step(2)))
    run.step = 2
    thread = threading.Thread(target=run.rank(0).reach, args=("step",))
    thread.start()
    assert eventually(lambda: run.seen("fault.due"))
    thread.join(0.05)
    assert thread.is_alive()
    Board(run.plan.board).claim("go-freeze-0")
    thread.join(10)
    assert not thread.is_alive()
    (event,) = run.seen()
    assert (event.kind, event.step, event.data["injection"]) == ("fault.due", 2, "freeze-0")


def test_an_attacker_is_told_the_folder_that_the_point_is_about(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "HOLD_S", 0.0)
    run = world(frozen(in_phase("transfer")))
    run.rank(0).reach("transfer", "/d/checkpoint_7")
    (event,) = run.seen("fault.due")
    assert event.data["place"] == "/d/checkpoint_7"


def test_a_process_waits_for_an_attacker_so_long_and_no_longer(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "HOLD_S", 0.1)
    run = world(frozen(at_step(1)))
    begin = time.monotonic()
    run.reach("step", 1)
    assert 0.1 <= time.monotonic() - begin < 10


def test_an_attack_is_due_once_across_restarts(world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "HOLD_S", 0.0)
    run = world(frozen(at_step(1)))
    for _ in range(3):
        run.reach("step", 1)
        run.restart()
    assert run.told() == [("fault.due", "freeze-0")]


# Faults with peers


def together(trigger: Trigger, rank: int = 1, **fields: Any) -> Injection:
    return note(trigger, rank=rank, fault="note-together", **fields)


def test_the_peers_take_part_where_the_target_fires(world: Callable[..., World]) -> None:
    run = world(together(at_step(2)))
    for step in (1, 2, 3):
        for rank in range(3):
            run.reach("step", step, rank=rank)
    assert NOTED == ["peer", "MainThread", "peer"]
    assert run.told() == [("fault.fired", "note-0")]


def test_a_peer_takes_part_once_across_restarts(world: Callable[..., World]) -> None:
    run = world(together(at_step(2)))
    for _ in range(3):
        for rank in range(2):
            run.reach("step", 2, rank=rank)
        run.restart()
    assert NOTED == ["peer", "MainThread"]


def test_a_peer_takes_part_after_the_same_chain(world: Callable[..., World]) -> None:
    run = world(together(at_step(1) >> in_phase("save")))
    assert run.reach("save", 1, rank=0) == 0
    run.reach("step", 1, rank=0)
    assert run.reach("save", 1, rank=0) == 1


def test_the_peers_of_a_fault_without_peers_do_nothing(world: Callable[..., World]) -> None:
    run = world(note(at_step(1), rank=1))
    assert run.rank(0).phases == set()
    assert run.reach("step", 1, rank=0) == 0


def take_part(directory: str, rank: int, results: Any) -> None:
    """One rank of two: stand at the point, then add its number to the sum of the other's next collective."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    plan = Plan.read(f"{directory}/plan.json")
    Firing(plan, EventWriter(plan.events, f"n{rank}"), rank, 0, lambda: 1).reach("step")
    mine = torch.ones(1)
    if rank == 1:
        dist.all_reduce(mine)
    results.put((rank, mine.item()))


def test_every_rank_but_the_target_takes_part_in_one_collective(world: Callable[..., World]) -> None:
    """The next collective of the target meets the one of its peer, which adds zero."""
    run = world(together(at_step(1), id="skip-collective-0"))
    skipped = note(at_step(1), rank=1, fault="skip-collective", id="skip-collective-0")
    dataclasses.replace(run.plan, injections=(skipped,)).write()
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    ranks = [context.Process(target=take_part, args=(run.plan.directory, rank, results)) for rank in range(2)]
    for process in ranks:
        process.start()
    assert sorted(results.get(timeout=30) for _ in ranks) == [(0, 1.0), (1, 1.0)]
    for process in ranks:
        process.join(10)
        process.kill()
    assert run.told("fault.fired") == [("fault.fired", "skip-collective-0")]


def test_without_a_process_group_there_is_no_collective_to_take_part_in() -> None:
    base.find_fault("skip-collective").accompany()
