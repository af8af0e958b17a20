"""Scenarios in which a machine leaves, freezes, is reclaimed with notice, or comes back, and the job has a fixed size.

A worker claims two of a node's three CPUs, so that each node holds one, and the lost one's place is on another machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from chaos.faults.drain_node import DrainNode
from chaos.faults.drop_node import DropNode
from chaos.faults.freeze_node import FreezeNode, PauseNode
from chaos.faults.kill import Kill
from chaos.schedule import Arming
from chaos.targets import Rank
from chaos.triggers import at_step, in_phase, on_attempt
from metrics.expectations import (
    HEALTHY,
    UNDISTURBED,
    loses,
    never_two_groups,
    notices,
    preempts,
    recovers,
    restarts,
)
from scenarios.library.workers import lasting, once
from scenarios.scenario import Scenario, Shape, register

FIXED = Shape(cpus_per_worker=2, preemption_poll_s=0.5)

SPARE = dataclasses.replace(FIXED, nodes=3)
"""One node more than the workers need."""

BACK_S = 8.0
"""After how long a lost machine is back, seconds."""

HEALTH = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "5",
}
"""Ray's node health check: five checks missed, two seconds each at most. By default it takes about a minute."""


def quick_health(shape: Shape) -> Mapping[str, Mapping[str, str]]:
    """The head gives a node up that does not answer for five to ten seconds."""
    return {"head": HEALTH}


DROP_NODE = register(
    Scenario(
        name="drop-node",
        title="A node is lost with all its processes; a replacement joins some seconds later.",
        inject=once(DropNode(back_after_s=BACK_S)),
        expects=HEALTHY & notices(within=60),
        shape=FIXED,
        node_environment=quick_health,
    )
)

FLAP_NODE = register(
    Scenario(
        name="flap-node",
        title="A node leaves, comes back under the same address, and does it again.",
        inject=once(DropNode(back_after_s=4.0, cycles=2, up_s=3.0)),
        expects=HEALTHY.but(recovers(within=180)),
        shape=FIXED,
        node_environment=quick_health,
    )
)

NOTICE_S = 15.0

PACED = {"pace": 0.5}
"""Steps of half a second, so that a notice is long against a step."""

DRAIN_NODE = register(
    Scenario(
        name="drain-node",
        title="A node is reclaimed with notice: checkpoints just in time, no failure budget.",
        inject=once(DrainNode(notice_s=NOTICE_S)),
        expects=HEALTHY.but(restarts(times=1)).but(loses(steps=7)) & preempts(times=1),
        shape=dataclasses.replace(SPARE, steps=80, checkpoint_every=40, step=45, max_failures=0),
        settings={**PACED, "preemption_check_every": 5, "corpus_bytes": 400_000},
        unfit="asks for a program that heeds notices; drain-node-unheeded asks for none",
        node_environment=quick_health,
    )
)

DRAIN_NODE_UNHEEDED = register(
    Scenario(
        name="drain-node-unheeded",
        title="The same, heeding no notice: it loses what the interval says.",
        inject=once(DrainNode(notice_s=NOTICE_S)),
        expects=HEALTHY.but(restarts(times=1)) & preempts(times=1),
        shape=DRAIN_NODE.shape,
        settings={**PACED, "corpus_bytes": 400_000},
        node_environment=quick_health,
    )
)

FREEZE_NODE_SHORT = register(
    Scenario(
        name="freeze-node-short",
        title="A node's raylet freezes for less than the health check waits: no restart.",
        inject=lasting(PauseNode),
        expects=UNDISTURBED,
        shape=dataclasses.replace(FIXED, seconds=2.5),
        settings={"pace": 0.2},
        node_environment=quick_health,
    )
)

FREEZE_NODE_LONG = register(
    Scenario(
        name="freeze-node-long",
        title="A raylet freezes until it is given up: one restart, never two groups alive.",
        inject=lasting(FreezeNode),
        expects=HEALTHY.but(restarts(times=1)) & never_two_groups() & notices(within=60),
        shape=dataclasses.replace(SPARE, seconds=25.0, step=12),
        settings={"pace": 1.0},
        node_environment=quick_health,
    )
)

DROP_NODE_DURING_SAVE = register(
    Scenario(
        name="drop-node-during-save",
        title="A node is lost while its worker writes the second checkpoint.",
        inject=lambda shape: (
            Arming(
                DropNode(back_after_s=BACK_S),
                in_phase("save") & at_step(2 * shape.checkpoint_every),
                Rank(shape.rank),
            ),
        ),
        shape=FIXED,
        node_environment=quick_health,
    )
)

DROP_NODE_DURING_RECOVERY = register(
    Scenario(
        name="drop-node-during-recovery",
        title="A worker is killed, and while the job is coming back a node is lost too.",
        inject=lambda shape: (
            Arming(Kill(), at_step(shape.step), Rank(shape.rank)),
            Arming(DropNode(back_after_s=BACK_S), in_phase("first-step") & on_attempt(1), Rank(shape.rank)),
        ),
        expects=HEALTHY.but(restarts(times=2)),
        shape=FIXED,
        node_environment=quick_health,
    )
)
