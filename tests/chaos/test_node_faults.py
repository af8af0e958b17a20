"""Faults of whole nodes: what each does, step by step, to nodes that only note it, and to the processes on them."""

from __future__ import annotations

import itertools
import signal
import time
from typing import Any

import pytest

from chaos.cluster.local import ClusterFailed
from chaos.faults.add_node import AddNode
from chaos.faults.base import Attack, all_faults, find_fault
from chaos.faults.drain_node import DrainNode
from chaos.faults.drop_node import DropNode
from chaos.faults.freeze_node import FreezeNode, PauseNode
from chaos.process import Identity
from tests.chaos.machines import Machines, Stage

NAMES = [name for name, fault in all_faults().items() if issubclass(fault, Attack) and fault.on_node]
FREEZING = [PauseNode, FreezeNode]
WAITS = {"join": (0.01, 0.01), "drain": (0.01,)}
"""The pauses of the stand-ins while they start a node, or while Ray takes a notice."""


@pytest.fixture
def process(spawn):
    """Start a process that sleeps; its identity."""
    return lambda: Identity.of(spawn().pid)


@pytest.fixture
def raylet(process):
    return process()


@pytest.fixture
def victim(process):
    return process()


@pytest.fixture
def other(process):
    return process()


@pytest.fixture
def stage(raylet, victim, other):
    """Node w0 with its raylet and the victim, node w1 with another process."""
    return Stage(Machines(on={"w0": [raylet, victim], "w1": [other]}))


def pauses(steps) -> list[float]:
    """Take all steps of an attack without waiting; the pauses that it asked for."""
    return list(steps)


def gone(node: str, victim: Identity, killed: int = 2) -> str:
    return f"all {killed} processes of node {node} are gone, {victim.pid} among them"


def test_there_are_five_faults_of_nodes_and_all_are_attacks_that_tell_what_they_saw() -> None:
    assert NAMES == ["add-node", "drain-node", "drop-node", "freeze-node", "pause-node"]
    assert {name for name in NAMES if not all_faults()[name].breaks} == {"add-node", "pause-node"}


# Which process must go on again whatever happens


@pytest.mark.parametrize("name", ["add-node", "drain-node", "drop-node"])
def test_a_fault_that_stops_nothing_touches_nothing(name, stage, victim) -> None:
    assert find_fault(name).touches(victim, stage) is None
    assert stage.done == []


@pytest.mark.parametrize("fault", FREEZING)
def test_a_fault_that_freezes_a_node_touches_its_raylet_and_not_the_victim(fault, stage, raylet, victim) -> None:
    assert fault().touches(victim, stage) == raylet
    stage.node = "w7"
    assert fault().touches(victim, stage) is None


def test_a_fault_of_one_process_touches_the_victim(stage, victim) -> None:
    assert find_fault("freeze").touches(victim, stage) == victim


# drop-node


def test_a_node_that_is_dropped_is_lost_with_its_victim_and_stays_away(stage, victim, raylet, other) -> None:
    assert pauses(DropNode().attack(victim, stage)) == []
    assert stage.done == ["lose w0", gone("w0", victim)]
    assert (victim.alive(), raylet.alive(), other.alive()) == (False, False, True)


def test_a_node_comes_back_after_its_time(stage, victim) -> None:
    assert pauses(DropNode(back_after_s=7.5).attack(victim, stage)) == [7.5, *WAITS["join"]]
    assert stage.done == ["lose w0", gone("w0", victim), "join w0", "joined"]


def test_a_node_that_flaps_leaves_and_comes_back_as_often_as_asked(stage, victim) -> None:
    flaps = DropNode(back_after_s=4.0, cycles=3, up_s=2.5)
    cycle = [4.0, *WAITS["join"]]
    assert pauses(flaps.attack(victim, stage)) == [*cycle, 2.5, *cycle, 2.5, *cycle]
    first, *later = ["lose w0", gone("w0", victim), "join w0", "joined"], *[["lose w0", "join w0", "joined"]] * 2
    assert stage.done == list(itertools.chain(first, *later))


def test_without_a_way_back_there_is_one_cycle(stage, victim) -> None:
    assert pauses(DropNode(cycles=5).attack(victim, stage)) == []
    assert stage.done.count("lose w0") == 1


def test_the_loss_of_a_node_without_a_process_is_not_confirmed(victim, eventually) -> None:
    stage = Stage(Machines(on={"w0": []}))
    victim.send(signal.SIGKILL)
    assert eventually(lambda: not victim.alive())
    pauses(DropNode().attack(victim, stage))
    assert stage.done == ["lose w0"]


def test_the_loss_of_a_node_that_its_victim_survives_is_not_confirmed(stage, other) -> None:
    pauses(DropNode().attack(other, stage))
    assert stage.done == ["lose w0"]
    assert other.alive()


def test_a_drop_cut_short_touches_nothing_more(stage, victim) -> None:
    steps = DropNode(back_after_s=60.0).attack(victim, stage)
    assert next(steps) == 60.0
    steps.close()
    assert stage.done == ["lose w0", gone("w0", victim)]


# add-node


def test_a_node_is_added_while_the_victim_goes_on(stage, victim) -> None:
    assert pauses(AddNode().attack(victim, stage)) == list(WAITS["join"])
    assert stage.done == ["released", "join", "joined", "a node has joined"]
    assert victim.alive()


def test_an_added_node_is_not_confirmed_before_it_has_joined(stage, victim) -> None:
    steps = AddNode().attack(victim, stage)
    next(steps)
    assert stage.done == ["released"]
    steps.close()
    assert stage.done == ["released"]


# drain-node


def test_a_node_is_lost_after_the_end_of_its_notice_and_not_before(stage, victim) -> None:
    begin = time.monotonic()
    steps = DrainNode(notice_s=14.0, late_s=1.0).attack(victim, stage)
    assert next(steps) == WAITS["drain"][0]
    assert stage.done == []
    rest = next(steps)
    assert stage.done == ["drain w0 14", "released"]
    assert 15.0 - (time.monotonic() - begin) <= rest <= 15.0
    assert victim.alive()
    assert next(steps, None) is None
    told = "Ray took the notice, and all 2 processes of node w0 were gone after its deadline"
    assert stage.done == ["drain w0 14", "released", "lose w0", told]
    assert not victim.alive()


def test_a_notice_taken_after_its_deadline_leaves_no_time(stage, victim) -> None:
    steps = DrainNode(notice_s=0.01, late_s=0.001).attack(victim, stage)
    next(steps)
    time.sleep(0.02)
    assert next(steps) == 0.0


def test_the_notice_cut_short_kills_nothing(stage, victim) -> None:
    steps = DrainNode().attack(victim, stage)
    assert [next(steps), next(steps) > 1] == [0.01, True]
    steps.close()
    assert stage.done == ["drain w0 15", "released"]
    assert victim.alive()


# pause-node and freeze-node


@pytest.mark.parametrize("fault", FREEZING)
def test_the_raylet_is_frozen_for_its_time_and_the_victim_is_not(fault, stage, raylet, victim) -> None:
    steps = fault(seconds=60.0).attack(victim, stage)
    while (pause := next(steps)) < 60.0:
        time.sleep(pause)
    assert (raylet.stopped(), victim.stopped()) == (True, False)
    assert stage.done == ["released", f"raylet {raylet.pid} of node w0 is stopped (state T)"]
    assert next(steps, None) is None
    assert (raylet.alive(), raylet.stopped()) == (True, False)


@pytest.mark.parametrize("fault", FREEZING)
def test_a_node_without_a_raylet_is_not_frozen(fault, victim) -> None:
    stage = Stage()
    assert pauses(fault().attack(victim, stage)) == []
    assert stage.done == []
    assert not victim.stopped()


@pytest.mark.parametrize("fault", FREEZING)
def test_a_raylet_that_is_gone_is_not_confirmed_as_frozen(fault, stage, raylet, victim, eventually) -> None:
    raylet.send(signal.SIGKILL)
    assert eventually(lambda: not raylet.alive())
    pauses(fault().attack(victim, stage))
    assert stage.done == ["released"]


def test_a_frozen_node_is_frozen_longer_than_one_that_pauses() -> None:
    assert PauseNode().seconds < 5 < FreezeNode().seconds


# All of them


@pytest.mark.parametrize("name", NAMES)
def test_closing_at_any_time_leaves_nothing_stopped_and_other_nodes_alone(name, process) -> None:
    fault = find_fault(name)
    for taken in range(5):
        raylet, victim, other = process(), process(), process()
        steps = fault.attack(victim, Stage(Machines(on={"w0": [raylet, victim], "w1": [other]})))
        for _ in range(taken):
            next(steps, None)
        steps.close()
        assert not any(each.stopped() for each in (raylet, victim, other))
        assert other.alive()


FAILING: list[tuple[str, dict[str, Any], str]] = [
    ("drop-node", {"back_after_s": 0.01}, "join"),
    ("add-node", {}, "join"),
    ("drain-node", {"notice_s": 0.01, "late_s": 0.001}, "drain"),
    ("drop-node", {}, "lose"),
    ("drain-node", {"notice_s": 0.01, "late_s": 0.001}, "lose"),
]


@pytest.mark.parametrize(("name", "values", "failing"), FAILING)
def test_what_a_node_fails_with_comes_through_and_the_failing_part_is_not_confirmed(
    name, values, failing, stage, victim
) -> None:
    stage.nodes.broken[failing] = ClusterFailed("no port left")
    with pytest.raises(ClusterFailed, match="no port left"):
        pauses(find_fault(name, values).attack(victim, stage))
    assert stage.done[-1].split()[0] == failing
