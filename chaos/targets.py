"""Whom a fault hits: ranks by name, by node, or drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from chaos.exits import UsageError


class NoTarget(Exception):
    """A target matched nobody, so nothing can be injected; exit code 4."""


@dataclass(frozen=True)
class Inventory:
    """The world that a target is resolved in: workers, ``per_node`` of them on each node.

    Ray Train gives the workers of one node ranks in a row; which node comes first differs from attempt to attempt.
    ``labels``: Ray's labels of a node, by its name.
    """

    workers: int
    per_node: int = 1
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that hold a worker."""
        return tuple(f"w{i}" for i in range(-(-self.workers // self.per_node)))

    def neighbours(self, rank: int) -> tuple[int, ...]:
        """The ranks that share a node with a rank, itself included."""
        first = rank // self.per_node * self.per_node
        return tuple(range(first, min(first + self.per_node, self.workers)))


Hit = int | str
"""One victim: a rank, or a node by its name, which means whichever worker of it comes to the point first."""


@dataclass(frozen=True)
class Target:
    """A way to choose victims; ``resolve`` gives them for a world, with draws from the given source."""

    def resolve(self, world: Inventory, source: random.Random) -> tuple[Hit, ...]:
        """The victims, in ascending order."""
        raise NotImplementedError


@dataclass(frozen=True)
class Rank(Target):
    """That rank.

    ``resolve`` raises UsageError when the world has no such rank.
    """

    rank: int

    def resolve(self, world: Inventory, source: random.Random) -> tuple[Hit, ...]:
        """That rank alone."""
        if not 0 <= self.rank < world.workers:
            raise UsageError(
                f"rank={self.rank} is outside the world of {world.workers} workers: "
                f"use 0 to {world.workers - 1}, or more --workers"
            )
        return (self.rank,)

    def __str__(self) -> str:
        return f"rank {self.rank}"


@dataclass(frozen=True)
class All(Target):
    """Every rank."""

    def resolve(self, world: Inventory, source: random.Random) -> tuple[Hit, ...]:
        """The whole world."""
        return tuple(range(world.workers))

    def __str__(self) -> str:
        return "every rank"


@dataclass(frozen=True)
class Node(Target):
    """Whichever worker runs on a node, by the node's name: ``w0``, ``w1`` and so on."""

    node: str

    def resolve(self, world: Inventory, source: random.Random) -> tuple[Hit, ...]:
        """That node, if the world has it."""
        return tuple(name for name in world.nodes if name == self.node)

    def __str__(self) -> str:
        return f"a worker of node {self.node}"


@dataclass(frozen=True)
class NodeOf(Target):
    """All ranks of the node that holds a rank."""

    rank: int

    def resolve(self, world: Inventory, source: random.Random) -> tuple[Hit, ...]:
        """That rank and its neighbours."""
        Rank(self.rank).resolve(world, source)
        return world.neighbours(self.rank)

    def __str__(self) -> str:
        return f"all ranks of the node of rank {self.rank}"


@dataclass(frozen=True)
class Label(Target):
    """Whichever worker runs on a node with that label, for each such node."""

    key: str
    value: str

    def resolve(self, world: Inventory, source: random.Random) -> tuple[Hit, ...]:
        """The nodes with that label."""
        return tuple(name for name in world.nodes if world.labels.get(name, {}).get(self.key) == self.value)

    def __str__(self) -> str:
        return f"a worker of each node labelled {self.key}={self.value}"


@dataclass(frozen=True)
class OtherNodes(Target):
    """One rank for each node that does not hold a given rank."""

    rank: int = 0

    def resolve(self, world: Inventory, source: random.Random) -> tuple[Hit, ...]:
        """The first rank of each of those nodes."""
        Rank(self.rank).resolve(world, source)
        firsts = {world.neighbours(rank)[0] for rank in range(world.workers)}
        return tuple(sorted(firsts - {world.neighbours(self.rank)[0]}))

    def __str__(self) -> str:
        return f"a rank of each node but that of rank {self.rank}"


@dataclass(frozen=True)
class Some(Target):
    """``k`` of the ranks of another target, drawn from the seed; fewer where there are fewer."""

    k: int = 1
    among: Target = All()

    def __post_init__(self) -> None:
        if self.k < 0:
            raise UsageError(f"Some({self.k}): use 1 or more")

    def resolve(self, world: Inventory, source: random.Random) -> tuple[Hit, ...]:
        """The ranks drawn."""
        found = self.among.resolve(world, source)
        drawn = set(source.sample(found, min(self.k, len(found))))
        return tuple(hit for hit in found if hit in drawn)

    def __str__(self) -> str:
        return f"{self.k} at random of {self.among}"


TARGETS = (Rank, All, Node, NodeOf, OtherNodes, Label, Some)


def resolve(target: Target, world: Inventory, source: random.Random) -> tuple[Hit, ...]:
    """The victims of a target.

    Raises NoTarget when it matches nobody.
    """
    if not (hits := target.resolve(world, source)):
        raise NoTarget(
            f"no target matched: {target}, in a world of {world.workers} workers on {len(world.nodes)} nodes"
        )
    return hits
