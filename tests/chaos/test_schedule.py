"""From armings to injections: the same seed gives the same plan byte for byte, and nothing is left open."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chaos import INSTALLATION
from chaos.agent.plan import Injection
from chaos.exits import UsageError
from chaos.faults.base import Fault, find_fault
from chaos.faults.delay import Delay
from chaos.faults.exit import Exit
from chaos.faults.freeze import Freeze
from chaos.faults.kill import Kill
from chaos.schedule import Arming, plan
from chaos.targets import All, Inventory, Node, NodeOf, NoTarget, Rank, Some
from chaos.triggers import Trigger, after_seconds, at_random, at_step, before_step, in_phase, on_attempt

few = settings(max_examples=15, deadline=None)

SEEDS = st.integers()
WORLDS = st.builds(Inventory, st.integers(3, 20), st.integers(1, 4))
FAULTS: st.SearchStrategy[Fault] = st.sampled_from([Kill(), Exit(code=3), Delay(seconds=0.5), Freeze()])
FIXED = st.sampled_from(
    [
        at_step(5),
        before_step(7),
        in_phase("save") & at_step(10),
        at_step(3) >> in_phase("first-step"),
        on_attempt(1),
        after_seconds(2.5),
    ]
)
TRIGGERS = st.builds(Trigger.repeat, FIXED, st.integers(1, 3)) | st.builds(
    at_random, st.floats(1, 9), st.floats(20, 60)
)
TARGETS = st.sampled_from([Rank(0), Rank(2), All(), NodeOf(1), Node("w0"), Some(1), Some(2, NodeOf(0))])
ARMINGS = st.lists(st.builds(Arming, FAULTS, TRIGGERS, TARGETS), min_size=1, max_size=4)


def made(armings: list[Arming], world: Inventory, seed: int) -> tuple[Injection, ...]:
    """A plan; a draw of nothing at all is of no interest."""
    try:
        return plan(armings, world, seed)
    except UsageError:
        assume(False)
        raise


def stored(injections: tuple[Injection, ...]) -> str:
    return json.dumps([dataclasses.asdict(injection) for injection in injections])


# The same seed


@few
@given(ARMINGS, WORLDS, SEEDS)
def test_the_same_seed_and_world_give_the_same_plan_byte_for_byte(
    armings: list[Arming], world: Inventory, seed: int
) -> None:
    assert stored(made(armings, world, seed)) == stored(made(list(armings), dataclasses.replace(world), seed))


PLAN = """
import dataclasses, json
from chaos.faults.kill import Kill
from chaos.schedule import Arming, plan
from chaos.targets import All, Inventory, Some
from chaos.triggers import at_random
armings = [Arming(Kill(), at_random(5, 60), Some(3, All())), Arming(Kill(), at_random(5, 60), Some(3, All()))]
print(json.dumps([dataclasses.asdict(i) for i in plan(armings, Inventory(8, 2), 42)]))
"""


def test_another_process_makes_the_same_plan() -> None:
    told = set()
    for number in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": str(INSTALLATION), "PYTHONHASHSEED": number}
        told.add(subprocess.run([sys.executable, "-c", PLAN], env=environment, capture_output=True, check=True).stdout)
    armings = [Arming(Kill(), at_random(5, 60), Some(3, All()))] * 2
    assert told == {f"{stored(plan(armings, Inventory(8, 2), 42))}\n".encode()}


def test_another_seed_draws_otherwise() -> None:
    armings = [Arming(Kill(), at_random(5, 60), Some(3))]
    assert len({stored(plan(armings, Inventory(8), seed)) for seed in range(20)}) == 20


def test_two_armings_of_the_same_kind_draw_independently() -> None:
    arming = Arming(Kill(), at_random(5, 600), Rank(0))
    first, second = (i.trigger.seconds for i in plan([arming, arming], Inventory(2), 1) if not i.follows)
    assert first != second


# What does not matter


@few
@given(ARMINGS, ARMINGS, WORLDS, SEEDS)
def test_what_is_armed_later_changes_nothing_of_what_was_armed_before(
    armings: list[Arming], more: list[Arming], world: Inventory, seed: int
) -> None:
    before = made(armings, world, seed)
    assert made([*armings, *more], world, seed)[: len(before)] == before


SETTLED = st.builds(Arming, st.sampled_from([Kill(), Exit(), Freeze()]), FIXED, st.sampled_from([Rank(0), All()]))


@few
@given(st.lists(SETTLED, min_size=1, max_size=5), st.randoms(use_true_random=False), WORLDS, SEEDS)
def test_the_order_of_armings_without_draws_changes_names_only(armings, random, world, seed) -> None:
    def nameless(injections: tuple[Injection, ...]) -> list[str]:
        return sorted(stored((dataclasses.replace(i, id="", follows=""),)) for i in injections)

    shuffled = random.sample(armings, len(armings))
    assert nameless(plan(armings, world, seed)) == nameless(plan(shuffled, world, seed))


@few
@given(st.permutations([at_step(10), in_phase("save"), on_attempt(0)]), SEEDS)
def test_the_order_of_conditions_changes_nothing(parts: list[Trigger], seed: int) -> None:
    one, two, three = parts
    armings = [Arming(Kill(), one & two & three, Some(2))]
    expected = [Arming(Kill(), at_step(10) & in_phase("save") & on_attempt(0), Some(2))]
    assert stored(plan(armings, Inventory(9), seed)) == stored(plan(expected, Inventory(9), seed))


# Nothing is left open


@few
@given(ARMINGS, WORLDS, SEEDS)
def test_every_victim_lies_in_the_world(armings: list[Arming], world: Inventory, seed: int) -> None:
    for injection in made(armings, world, seed):
        if injection.rank is None:
            assert injection.node in world.nodes
        else:
            assert 0 <= injection.rank < world.workers
            assert injection.node == ""


@few
@given(ARMINGS, WORLDS, SEEDS)
def test_nothing_is_left_to_draw_or_to_repeat(armings: list[Arming], world: Inventory, seed: int) -> None:
    for injection in made(armings, world, seed):
        assert (injection.trigger.times, injection.trigger.mtbf_s) == (1, None)


@few
@given(ARMINGS, WORLDS, SEEDS)
def test_names_are_unique_and_carry_the_fault(armings: list[Arming], world: Inventory, seed: int) -> None:
    injections = made(armings, world, seed)
    assert len({i.id for i in injections}) == len(injections)
    assert all(i.id.rsplit("-", 1)[0] == i.fault for i in injections)


@few
@given(ARMINGS, WORLDS, SEEDS)
def test_a_plan_survives_storage(armings: list[Arming], world: Inventory, seed: int) -> None:
    injections = made(armings, world, seed)
    assert tuple(Injection.of(each) for each in json.loads(stored(injections))) == injections


@few
@given(FAULTS)
def test_an_injection_carries_the_settings_of_its_fault(fault: Fault) -> None:
    (injection,) = plan([Arming(fault, at_step(1), Rank(0))], Inventory(1), 0)
    assert find_fault(injection.fault, injection.values) == fault


# Repetitions and several victims


def test_each_repetition_follows_the_one_before_on_the_same_victim() -> None:
    injections = plan([Arming(Kill(), at_step(5).repeat(3), All())], Inventory(2), 0)
    assert [(i.id, i.rank, i.follows) for i in injections] == [
        ("kill-0", 0, ""), ("kill-1", 0, "kill-0"), ("kill-2", 0, "kill-1"),
        ("kill-3", 1, ""), ("kill-4", 1, "kill-3"), ("kill-5", 1, "kill-4"),
    ]  # fmt: skip
    assert {i.trigger for i in injections} == {at_step(5)}


def test_names_go_on_counting_over_armings_of_the_same_fault() -> None:
    armings = [Arming(fault, at_step(5), Rank(0)) for fault in (Kill(), Exit(), Kill())]
    assert [i.id for i in plan(armings, Inventory(1), 0)] == ["kill-0", "exit-0", "kill-1"]


def test_a_node_is_the_victim_by_its_name() -> None:
    (injection,) = plan([Arming(Kill(), at_step(5), Node("w1"))], Inventory(2), 0)
    assert (injection.rank, injection.node, injection.where) == (None, "w1", "node w1")


@few
@given(SEEDS)
def test_random_times_of_one_victim_follow_each_other_in_order(seed: int) -> None:
    injections = made([Arming(Kill(), at_random(2, 30), Rank(0))], Inventory(1), seed)
    times = [i.trigger.seconds for i in injections]
    assert times == sorted(times)
    assert [i.follows for i in injections] == ["", *(i.id for i in injections[:-1])]


# Nothing to inject


def test_a_target_that_matches_nobody_is_told() -> None:
    with pytest.raises(NoTarget, match="w7"):
        plan([Arming(Kill(), at_step(5), Node("w7"))], Inventory(2), 0)


@pytest.mark.parametrize("armings", [[], [Arming(Kill(), at_random(1e9, 0.001), Rank(0))]], ids=["nothing", "no draw"])
def test_a_plan_of_nothing_is_refused_with_the_way_out(armings: list[Arming]) -> None:
    with pytest.raises(UsageError, match="nothing would be injected with these settings and seed=7"):
        plan(armings, Inventory(1), 7)
