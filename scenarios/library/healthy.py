"""Negative controls: a healthy job is disturbed, under time-outs that it does not reach, and must not restart."""

from __future__ import annotations

import dataclasses

from chaos.faults.delay import Delay
from chaos.faults.gil_call import GilCall
from chaos.faults.straggler import Straggler
from chaos.schedule import Arming
from chaos.targets import Rank
from chaos.triggers import Trigger, at_step, in_phase
from metrics.expectations import UNDISTURBED
from scenarios.library.hangs import SHORT
from scenarios.library.workers import lasting
from scenarios.scenario import Inject, Scenario, register


def _late(trigger: Trigger) -> Inject:
    """The rank of the shape takes its time at that moment, for as long as the shape says."""
    return lambda shape: (Arming(Delay(seconds=shape.seconds), trigger, Rank(shape.rank)),)


STRAGGLER = register(
    Scenario(
        name="straggler",
        title="A worker is slowed down, stopped half of the time: slower, and no restart.",
        inject=lasting(Straggler),
        expects=UNDISTURBED,
        shape=dataclasses.replace(SHORT, steps=200, checkpoint_every=50, step=20),
        settings={"corpus_bytes": 700_000},
    )
)

SLOW_STEPS = register(
    Scenario(
        name="slow-steps",
        title="Ten steps of one rank take longer than those of the others: slower, and no restart.",
        inject=lambda shape: (
            Arming(
                Delay(seconds=shape.seconds / 10),
                (at_step(shape.step) >> in_phase("step")).repeat(10),
                Rank(shape.rank),
            ),
        ),
        expects=UNDISTURBED,
        shape=SHORT,
    )
)

SLOW_FIRST_STEP = register(
    Scenario(
        name="slow-first-step",
        title="The first step of one rank takes long, as a compilation would: no restart.",
        inject=_late(in_phase("first-step")),
        expects=UNDISTURBED,
        shape=SHORT,
    )
)

LONG_SAVE = register(
    Scenario(
        name="long-save",
        title="One rank writes its part of a checkpoint slowly: no restart.",
        inject=_late(in_phase("save")),
        expects=UNDISTURBED,
        shape=SHORT,
    )
)

LONG_EVALUATION = register(
    Scenario(
        name="long-evaluation",
        title="One rank evaluates for long while no step is made: no restart.",
        inject=_late(in_phase("evaluation")),
        expects=UNDISTURBED,
        shape=SHORT,
        settings={"evaluate_every": 20},
        unfit="asks for a program that evaluates after every 20 steps",
    )
)

GIL_CALL = register(
    Scenario(
        name="gil-call",
        title="A healthy native call keeps the interpreter lock of one worker for a while: no restart.",
        inject=lasting(GilCall),
        expects=UNDISTURBED,
        shape=SHORT,
    )
)
