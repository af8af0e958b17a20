"""Freeze a node as Ray sees it: its raylet answers nothing, while its workers train on."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from chaos.faults.base import Attack, Scene, register
from chaos.faults.freeze import hold
from chaos.process import Identity


@dataclass(frozen=True)
class Frozen(Attack):
    """SIGSTOP to the raylet of the victim's node, and SIGCONT when the time is over or the run ends.

    ``seconds``: how long it stays frozen.
    """

    effect = "the kernel shows the raylet as stopped (state T)"
    not_certified = "a frozen machine, whose workers and sockets would stand still as well"
    on_node = True
    outlives = True

    seconds: float = 3.0

    def touches(self, victim: Identity, scene: Scene) -> Identity | None:
        """The raylet."""
        return scene.nodes.raylet(scene.node)

    def attack(self, victim: Identity, scene: Scene) -> Generator[float]:
        """Stop, confirm, wait, continue."""
        if raylet := scene.nodes.raylet(scene.node):
            yield from hold(raylet, self.seconds, scene, f"raylet {raylet.pid} of node {scene.node}")


@register
@dataclass(frozen=True)
class PauseNode(Frozen):
    """The raylet is frozen for less than Ray's node health check takes to give it up."""

    name = "pause-node"
    certifies = "that a node that answers late is not taken for dead"
    breaks = False


@register
@dataclass(frozen=True)
class FreezeNode(Frozen):
    """The raylet is frozen for longer than Ray's node health check takes to give it up."""

    name = "freeze-node"
    certifies = "that a node given up by the health check costs one restart, and that its old workers disturb nobody"

    seconds: float = 30.0
