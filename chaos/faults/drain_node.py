"""Reclaim a machine as clouds do: a notice first, and at its deadline the machine is gone."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass

from chaos.faults.base import Attack, Scene, register
from chaos.process import Identity


@register
@dataclass(frozen=True)
class DrainNode(Attack):
    """Ray is told to drain the victim's node; right after the deadline all its processes are killed.

    ``notice_s``: seconds from the notice to the deadline. ``late_s``: how long after it the machine is really gone,
    seconds. At its first poll after the deadline Ray Train begins anew by itself. Where the machine goes before that
    poll, the error of a peer may come first, and is charged to another budget.
    """

    name = "drain-node"
    effect = "Ray took the notice, and after the deadline every process of the node was gone"
    certifies = "that a preemption with notice costs little: the job saves in time, its failure budget is untouched"
    not_certified = "how the notice reaches Ray from a cloud, which is the autoscaler's part"
    on_node = True
    outlives = True

    notice_s: float = 15.0
    late_s: float = 1.0

    def touches(self, victim: Identity, scene: Scene) -> Identity | None:
        """Nothing is stopped."""
        return None

    def attack(self, victim: Identity, scene: Scene) -> Generator[float]:
        """Announce, let the job go on, kill after the deadline, confirm."""
        end = time.monotonic() + self.notice_s + self.late_s
        yield from scene.nodes.drain(scene.node, self.notice_s)
        scene.release()
        yield max(0.0, end - time.monotonic())
        killed = scene.nodes.lose(scene.node)
        gone = f"all {killed} processes of node {scene.node} were gone after its deadline"
        scene.confirm(f"Ray took the notice, and {gone}")
