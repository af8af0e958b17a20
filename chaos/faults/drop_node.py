"""Take a whole machine away at once: every process of its Ray node is killed."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from chaos.faults.base import Attack, Scene, register
from chaos.process import Identity


@register
@dataclass(frozen=True)
class DropNode(Attack):
    """SIGKILL to all processes of the victim's node; where asked for, it comes back under the same address.

    ``back_after_s``: seconds until it comes back, None for never. ``cycles``: how often it leaves and comes back.
    ``up_s``: seconds that it stays in between.
    """

    name = "drop-node"
    effect = "every process of the node, its raylet among them, is gone from the process table"
    certifies = "that the job survives the loss of a machine: Ray notices, the group restarts on what is there"
    not_certified = "a network partition, in which the lost machine lives on; the loss of disks that others read"
    on_node = True
    outlives = True

    back_after_s: float | None = None
    cycles: int = 1
    up_s: float = 5.0

    def touches(self, victim: Identity, scene: Scene) -> Identity | None:
        """Nothing is stopped."""
        return None

    def attack(self, victim: Identity, scene: Scene) -> Generator[float]:
        """Kill, confirm, bring back, as often as asked."""
        for cycle in range(self.cycles):
            killed = scene.nodes.lose(scene.node)
            if cycle == 0 and killed and not victim.alive():
                scene.confirm(f"all {killed} processes of node {scene.node} are gone, {victim.pid} among them")
            if self.back_after_s is None:
                return
            yield self.back_after_s
            yield from scene.nodes.join(scene.node)
            if cycle + 1 < self.cycles:
                yield self.up_s
