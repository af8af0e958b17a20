"""Scenarios in which an elastic job loses machines and gets them back: it shrinks and grows, and waits when too few."""

from __future__ import annotations

import dataclasses

from chaos.faults.add_node import AddNode
from chaos.faults.drop_node import DropNode
from chaos.schedule import Arming
from chaos.targets import Rank
from chaos.triggers import at_step, on_attempt
from metrics.expectations import (
    HEALTHY,
    completes,
    idles,
    ignores_interrupt,
    interruptible,
    keeps_batch,
    keeps_checkpoints,
    keeps_every_step,
    matches_control,
    notices,
    recovers,
    reschedules,
    resizes,
    restarts,
)
from scenarios.library.nodes import quick_health
from scenarios.library.workers import once
from scenarios.scenario import Scenario, Shape, register

ELASTIC = Shape(
    workers=3, min_workers=2, cpus_per_worker=2, start_s=10.0, preemption_poll_s=0.5, rank=2, step=15, keep=20
)
"""Three nodes with one worker each; the job goes on with two. Every checkpoint is kept, to be cut anew by the judge."""

EXACT = {"dtype": "float64", "pace": 0.5, "resize_interval_s": 5.0}
"""In double precision the order of summation, which the world size changes, stays below the bound of the comparison."""

CLOSE = matches_control(within=1e-9)

SHRINKS = (
    HEALTHY.but(CLOSE & recovers(within=180))
    & keeps_batch()
    & resizes(worlds="3, 2")
    & notices(within=60)
    & reschedules(times=3)
)

DROP_NODE_ELASTIC = register(
    Scenario(
        name="drop-node-elastic",
        title="A node is lost for good: on with two workers of three, the same batch.",
        inject=once(DropNode()),
        expects=SHRINKS,
        shape=ELASTIC,
        settings=EXACT,
        node_environment=quick_health,
    )
)

GROWS = restarts(times=0) & completes() & keeps_every_step() & keeps_checkpoints() & CLOSE & keeps_batch()

NODE_RETURNS = register(
    Scenario(
        name="node-returns",
        title="A job that began with two workers of three takes in a node that joins.",
        inject=lambda shape: (Arming(AddNode(), at_step(shape.step), Rank(0)),),
        expects=GROWS & resizes(worlds="2, 3"),
        shape=dataclasses.replace(ELASTIC, nodes=2, steps=100, step=10),
        settings={**EXACT, "corpus_bytes": 500_000},
        node_environment=quick_health,
    )
)


def _leaves_and_returns(shape: Shape) -> tuple[Arming, ...]:
    return (
        Arming(DropNode(), at_step(shape.step), Rank(shape.rank)),
        Arming(AddNode(), at_step(shape.step + 5) & on_attempt(1), Rank(0)),
    )


SHRINK_AND_GROW = register(
    Scenario(
        name="shrink-and-grow",
        title="A node is lost and comes back: three workers, two, three; no sample twice.",
        inject=_leaves_and_returns,
        expects=HEALTHY.but(CLOSE & recovers(within=180)) & keeps_batch() & resizes(worlds="3, 2, 3"),
        shape=dataclasses.replace(ELASTIC, steps=100),
        settings={**EXACT, "corpus_bytes": 500_000},
        node_environment=quick_health,
    )
)


WAITS = restarts(times=0) & ((idles(cpu=0.5) & interruptible(within=20)) | ignores_interrupt())


BELOW_MINIMUM = register(
    Scenario(
        name="below-minimum",
        title="Too few nodes are left for the job: it waits, quietly, and Ctrl-C ends it.",
        inject=once(DropNode()),
        expects=WAITS,
        known_issue="Ray 2.60's controller does not listen while it waits for capacity: its loop asks for a placement "
        "again and again and never yields to its event loop (controller.py), so the request to stop that Ctrl-C sends "
        "is not served, and it burns what CPU it gets. That end, by SIGKILL, and a quiet one are both accepted.",
        shape=dataclasses.replace(ELASTIC, min_workers=3),
        settings={"pace": 0.5},
        recovers=False,
        control=False,
        waits_s=30.0,
        node_environment=quick_health,
    )
)
