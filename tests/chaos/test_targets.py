"""Targets: every victim lies in the world, and what is drawn is drawn from the seed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.exits import UsageError
from chaos.targets import All, Inventory, Label, Node, NodeOf, NoTarget, OtherNodes, Rank, Some, Target, resolve

few = settings(max_examples=20, deadline=None)

NAMES = [f"w{i}" for i in range(40)]
LABELS = st.dictionaries(st.sampled_from(NAMES[:8]), st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")))
WORLDS = st.builds(Inventory, st.integers(1, 40), st.integers(1, 8), LABELS)
SEEDS = st.integers()
RANKS = st.integers(0, 39)
LABELLED = st.builds(Label, st.sampled_from("ab"), st.sampled_from("xy"))
PLAIN = (
    st.builds(Rank, RANKS)
    | st.just(All())
    | st.builds(NodeOf, RANKS)
    | st.builds(OtherNodes, RANKS)
    | st.builds(Node, st.sampled_from(["w0", "w3"]))
    | LABELLED
)
TARGETS = PLAIN | st.builds(Some, st.integers(1, 9), PLAIN)


def hits(target: Target, world: Inventory, seed: int = 0) -> tuple[int | str, ...]:
    """The victims, none where the world has none."""
    try:
        return resolve(target, world, random.Random(seed))
    except (NoTarget, UsageError):
        return ()


# The world


@pytest.mark.parametrize(
    ("world", "nodes"),
    [
        (Inventory(1), ("w0",)),
        (Inventory(3), ("w0", "w1", "w2")),
        (Inventory(4, 2), ("w0", "w1")),
        (Inventory(5, 2), ("w0", "w1", "w2")),
        (Inventory(2, 8), ("w0",)),
    ],
)
def test_a_world_has_as_many_nodes_as_hold_its_workers(world: Inventory, nodes: tuple[str, ...]) -> None:
    assert world.nodes == nodes


@few
@given(WORLDS)
def test_the_ranks_of_all_nodes_are_the_world_each_once(world: Inventory) -> None:
    groups = {world.neighbours(rank) for rank in range(world.workers)}
    assert sorted(rank for group in groups for rank in group) == list(range(world.workers))
    assert len(groups) == len(world.nodes)
    assert all(rank in world.neighbours(rank) for rank in range(world.workers))


# Who is hit


@few
@given(TARGETS, WORLDS, SEEDS)
def test_every_victim_lies_in_the_world_and_is_hit_once(target: Target, world: Inventory, seed: int) -> None:
    found = hits(target, world, seed)
    assert set(found) <= {*range(world.workers), *world.nodes}
    assert len(set(found)) == len(found)


@few
@given(TARGETS, WORLDS, SEEDS)
def test_victims_come_in_ascending_order(target: Target, world: Inventory, seed: int) -> None:
    found = hits(target, world, seed)
    places = {name: index for index, name in enumerate([*range(world.workers), *world.nodes])}
    assert list(found) == sorted(found, key=places.__getitem__)


@few
@given(TARGETS, WORLDS, SEEDS)
def test_the_same_seed_draws_the_same_victims(target: Target, world: Inventory, seed: int) -> None:
    assert hits(target, world, seed) == hits(target, world, seed)


def test_a_rank_is_hit_alone() -> None:
    assert hits(Rank(1), Inventory(3)) == (1,)


@few
@given(RANKS, WORLDS)
def test_one_rank_of_each_other_node_is_hit_and_none_of_the_own(rank: int, world: Inventory) -> None:
    found = hits(OtherNodes(rank), world)
    nodes = [world.neighbours(hit) for hit in found]
    assert len(set(nodes)) == len(nodes) == (len(world.nodes) - 1 if rank < world.workers else 0)
    assert rank not in [member for node in nodes for member in node]


@pytest.mark.parametrize(("rank", "others"), [(0, (2, 4)), (1, (2, 4)), (3, (0, 4)), (4, (0, 2))])
def test_the_other_nodes_are_hit_by_the_first_of_their_ranks(rank: int, others: tuple[int, ...]) -> None:
    assert hits(OtherNodes(rank), Inventory(5, 2)) == others


def test_a_world_of_one_node_has_no_other() -> None:
    with pytest.raises(NoTarget, match="a rank of each node but that of rank 1"):
        resolve(OtherNodes(1), Inventory(4, 4), random.Random(0))


@few
@given(LABELLED, WORLDS)
def test_exactly_the_nodes_with_a_label_are_hit(target: Label, world: Inventory) -> None:
    found = hits(target, world)
    for name in world.nodes:
        assert (name in found) == (world.labels.get(name, {}).get(target.key) == target.value)


def test_a_label_without_a_node_in_the_world_matches_nobody() -> None:
    world = Inventory(2, 1, {"w1": {"zone": "a"}, "w5": {"zone": "b"}})
    assert hits(Label("zone", "a"), world) == ("w1",)
    for key, value in [("zone", "b"), ("zone", "A"), ("rack", "a")]:
        with pytest.raises(NoTarget, match=f"a worker of each node labelled {key}={value}, in a world of 2 workers"):
            resolve(Label(key, value), world, random.Random(0))


@pytest.mark.parametrize("target", [Rank(3), Rank(-1), NodeOf(3), OtherNodes(3), OtherNodes(-1), Some(1, Rank(3))])
def test_a_rank_outside_the_world_is_a_mistake_of_the_users(target: Target) -> None:
    with pytest.raises(UsageError, match=r"outside the world of 3 workers: use 0 to 2, or more --workers"):
        resolve(target, Inventory(3), random.Random(0))


def test_all_are_hit() -> None:
    assert hits(All(), Inventory(3)) == (0, 1, 2)


@pytest.mark.parametrize(("rank", "together"), [(0, (0, 1)), (1, (0, 1)), (3, (2, 3)), (4, (4,))])
def test_the_node_of_a_rank_means_all_its_ranks(rank: int, together: tuple[int, ...]) -> None:
    assert hits(NodeOf(rank), Inventory(5, 2)) == together


def test_a_node_is_hit_by_its_name() -> None:
    assert hits(Node("w2"), Inventory(5, 2)) == ("w2",)


def test_a_target_that_matches_nobody_says_so() -> None:
    told = "no target matched: a worker of node w2, in a world of 4 workers on 2 nodes"
    with pytest.raises(NoTarget, match=f"^{told}$"):
        resolve(Node("w2"), Inventory(4, 2), random.Random(0))
    with pytest.raises(NoTarget):
        resolve(Some(0), Inventory(4), random.Random(0))


def test_a_negative_number_is_a_mistake_of_the_users() -> None:
    with pytest.raises(UsageError, match=r"Some\(-1\): use 1 or more"):
        Some(-1)


# Draws


@few
@given(st.integers(0, 12), WORLDS, SEEDS)
def test_as_many_are_drawn_as_asked_or_there_are(k: int, world: Inventory, seed: int) -> None:
    assert len(hits(Some(k), world, seed)) == min(k, world.workers)


@few
@given(st.integers(1, 9), WORLDS, RANKS, SEEDS)
def test_some_are_drawn_among_those_of_the_other_target(k: int, world: Inventory, rank: int, seed: int) -> None:
    assert set(hits(Some(k, NodeOf(rank)), world, seed)) <= set(hits(NodeOf(rank), world, seed))


def test_every_rank_is_drawn_equally_often() -> None:
    """Each of 4 ranks in 1,000 of 4,000 draws, within four standard deviations (27)."""
    drawn = [rank for seed in range(4000) for rank in hits(Some(1), Inventory(4), seed)]
    assert all(abs(drawn.count(rank) - 1000) < 4 * 27.4 for rank in range(4))


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Rank(2), "rank 2"),
        (All(), "every rank"),
        (Node("w1"), "a worker of node w1"),
        (NodeOf(1), "all ranks of the node of rank 1"),
        (OtherNodes(2), "a rank of each node but that of rank 2"),
        (Label("zone", "a"), "a worker of each node labelled zone=a"),
        (Some(2, NodeOf(0)), "2 at random of all ranks of the node of rank 0"),
    ],
)
def test_a_target_says_whom_it_means(target: Target, words: str) -> None:
    assert str(target) == words
