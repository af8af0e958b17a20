"""The runs that programs are judged by, beside the plain kill of one worker."""

from __future__ import annotations

from dataclasses import replace

from chaos.faults.kill import Kill
from chaos.schedule import Arming
from chaos.targets import Rank
from chaos.triggers import Trigger, at_step, in_phase, on_attempt
from metrics.expectations import HEALTHY, fails, keeps_batch, restarts
from scenarios.library.capacity import DROP_NODE_ELASTIC, SHRINK_AND_GROW
from scenarios.library.workers import KILL_WORKER
from scenarios.scenario import Inject, Scenario, Shape
from tests.mutants.program import Trial

KILL = Trial()
"""Saved at step 4, rank 1 killed after step 7."""

LATE = KILL.but(step=11)
"""Killed after step 11, when the checkpoints of steps 4 and 8 are there."""

PACED = LATE.but(pace="0.3")
"""The same in steps long enough that hardly any are lost while the controller waits for its next poll."""

BATCHES = Trial(replace(KILL_WORKER, expects=HEALTHY & keeps_batch()))
"""The plain kill, and every step must take the same number of samples."""

EPOCHS = KILL.but(step=15, corpus_bytes="33000")
"""An epoch has ten steps: the fault comes in the second one."""

ASYNCHRONOUS = KILL.but(save="asynchronous", pace="1.0")
"""Steps of a second, so that a save beside the training is over three steps later."""


def _kill_at(trigger: Trigger) -> Inject:
    return lambda shape: (Arming(Kill(), trigger, Rank(shape.rank)),)


def _twice(shape: Shape) -> tuple[Arming, ...]:
    again = at_step(shape.step + 8) & on_attempt(1)
    return tuple(Arming(Kill(), trigger, Rank(shape.rank)) for trigger in (at_step(shape.step), again))


IN_TRANSFER = Trial(replace(KILL_WORKER, inject=_kill_at(in_phase("transfer") & at_step(8))))
"""Killed while the second checkpoint is copied to the storage: a directory is left that was never committed."""

IN_SAVE = Trial(replace(KILL_WORKER, inject=_kill_at(in_phase("save") & at_step(8))))
"""Killed while the second checkpoint is written."""

TWO_KILLS = Trial(replace(KILL_WORKER, inject=_twice), {"max_failures": "2", "pace": "0.3"})
"""Killed after step 7, and again after step 15 in the attempt that followed."""

BUDGET = Trial(
    replace(
        KILL_WORKER,
        inject=_twice,
        expects=restarts(times=1) & fails(error="WorkerGroupError"),
        recovers=False,
        control=False,
    )
)
"""Two kills against a budget of one: one restart, then a clear end."""


def _elastic(scenario: Scenario, step: int, **settings: str) -> Trial:
    """The time-outs and the budget of the library's elastic scenarios."""
    usual = {"timeout_s": "1800", "health_s": "600", "report_s": "0", "shutdown_s": "30", "max_failures": "3"}
    return Trial(scenario, {**usual, **settings}, step=step, rank=2)


SHRINK = _elastic(DROP_NODE_ELASTIC, step=7)
"""A node of three is lost after step 7: on with two workers, the same batch, in double precision."""

GROW = _elastic(SHRINK_AND_GROW, step=7, steps="90", corpus_bytes="300000")
"""The same, and the node comes back: three workers, two, three."""

THREE = Trial(
    replace(KILL_WORKER, node_environment=SHRINK.scenario.node_environment), {"workers": "3", "cpus_per_worker": "2"}
)
"""Three workers, on the cluster of the elastic runs."""
