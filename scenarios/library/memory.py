"""Scenarios in which a worker runs out of memory."""

from __future__ import annotations

from collections.abc import Mapping

import psutil

from chaos.faults.memory_limit import MemoryLimit
from chaos.faults.oom import OutOfMemory
from chaos.schedule import Arming
from chaos.targets import Node
from chaos.triggers import at_step
from metrics.expectations import HEALTHY, fails, names
from scenarios.library.workers import once
from scenarios.scenario import Scenario, Shape, register

MONITORED = "w1"
ROOM_MIB = 6144
"""What a run may take of the machine's memory before the monitor acts; two workers take about half of it."""


def _monitor_one_node(shape: Shape) -> Mapping[str, Mapping[str, str]]:
    """Ray's memory monitor on the target's raylet only, with a threshold that the machine is far from.

    It looks at the machine as a whole, so on the other nodes it is off: they would end their workers too.
    """
    memory = psutil.virtual_memory()
    share = (memory.total - memory.available + (ROOM_MIB << 20)) / memory.total
    watched = {"RAY_memory_usage_threshold": f"{min(share, 0.98):.4f}", "RAY_memory_monitor_refresh_ms": "250"}
    off = {"RAY_memory_monitor_refresh_ms": "0"}
    return {name: watched if name == MONITORED else off for name in ("head", *shape.world.nodes)}


OOM_WORKER = register(
    Scenario(
        name="oom-worker",
        title="A worker eats memory until the monitor of its own node ends it; memory must be named as the cause.",
        inject=lambda shape: (Arming(OutOfMemory(), at_step(shape.step), Node(MONITORED)),),
        expects=names(error="OutOfMemoryError") & (HEALTHY | fails(error="ControllerError")),
        node_environment=_monitor_one_node,
        needs=("memory",),
        known_issue=(
            "Ray 2.60 ends the run although the budget allows a restart: taking the group down, Ray Train asks the "
            "dead worker once more, and does not expect OutOfMemoryError as its answer (backend_setup.py catches "
            "RayActorError and RayTaskError only). Recovery and that end are both accepted."
        ),
    )
)

OOM_REFUSED = register(
    Scenario(
        name="oom-refused",
        title="A bound on the process refuses an allocation: MemoryError in the training loop.",
        inject=once(MemoryLimit()),
        expects=HEALTHY & names(error="MemoryError"),
    )
)
