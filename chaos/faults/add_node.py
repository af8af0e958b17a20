"""Give the cluster a machine more, while the job trains."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from chaos.faults.base import Attack, Scene, register
from chaos.process import Identity


@register
@dataclass(frozen=True)
class AddNode(Attack):
    """A node joins: the one lost last, under its own address; a further one where none was lost."""

    name = "add-node"
    effect = "the node has started and joined the cluster"
    certifies = "that an elastic job takes in capacity that comes back, and that a fixed one is not disturbed by it"
    not_certified = "an autoscaler's own decisions, which start machines on request"
    breaks = False
    on_node = True
    outlives = True

    def touches(self, victim: Identity, scene: Scene) -> Identity | None:
        """Nothing is stopped."""
        return None

    def attack(self, victim: Identity, scene: Scene) -> Generator[float]:
        """Start it while the victim goes on."""
        scene.release()
        yield from scene.nodes.join()
        scene.confirm("a node has joined")
