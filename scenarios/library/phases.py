"""A kill in every phase of a training process's life: one scenario each, and the suite of them all."""

from __future__ import annotations

from collections.abc import Callable

from chaos.faults.kill import Kill
from chaos.schedule import Arming
from chaos.targets import Rank
from chaos.triggers import PHASES, Trigger, at_step, before_step, in_phase, on_attempt
from metrics.expectations import (
    HEALTHY,
    Expectation,
    completes,
    fails,
    keeps_checkpoints,
    keeps_every_step,
    matches_control,
    restarts,
    resumes,
)
from scenarios.scenario import Inject, Scenario, Shape, Suite, register

DEFAULT = Shape()

RESUMED = restarts() & completes() & resumes() & keeps_every_step() & keeps_checkpoints() & matches_control()
"""A healthy recovery but for its time, which has no end while a process of the old group lives on."""

Moment = Callable[[Shape], Trigger]
"""The trigger of a kill for a shape."""


def _alone(moment: Moment) -> Inject:
    return lambda shape: (Arming(Kill(), moment(shape), Rank(shape.rank)),)


def _after_a_first_kill(trigger: Trigger, *, same_rank: bool = True) -> Inject:
    """A kill that brings the job into the phase, and the one in it."""
    return lambda shape: (
        Arming(Kill(), at_step(shape.step), Rank(shape.rank)),
        Arming(Kill(), trigger, Rank(shape.rank if same_rank else (shape.rank + 1) % shape.workers)),
    )


def _second_save(phase: str) -> Moment:
    """That phase of the second checkpoint, so that there is one to go back to."""
    return lambda shape: in_phase(phase) & at_step(2 * shape.checkpoint_every)


def _kill_in(
    phase: str, inject: Inject, expects: Expectation = HEALTHY, known_issue: str = "", shape: Shape = DEFAULT
) -> Scenario:
    return register(
        Scenario(
            name=f"kill-in-{phase}",
            title=f"A worker is killed at this point: {PHASES[phase]}.",
            inject=inject,
            expects=expects,
            known_issue=known_issue,
            shape=shape,
        )
    )


MEMBERS = (
    _kill_in("first-step", _alone(lambda shape: in_phase("first-step"))),
    _kill_in("forward", _alone(lambda shape: in_phase("forward") & at_step(shape.step))),
    _kill_in("optimizer", _alone(lambda shape: before_step(shape.step))),
    _kill_in("save", _alone(_second_save("save"))),
    _kill_in("transfer", _alone(_second_save("transfer"))),
    _kill_in("commit", _alone(_second_save("commit"))),
    _kill_in("teardown", _after_a_first_kill(in_phase("teardown") & on_attempt(0), same_rank=False)),
    _kill_in(
        "rendezvous",
        _after_a_first_kill(in_phase("rendezvous") & on_attempt(1)),
        RESUMED | fails(error="ControllerError"),
        "Ray 2.60 never takes down a group whose rendezvous failed: the surviving worker and the placement group "
        "stay, with their CPUs (worker_group.py cleans up only what has not started). The job goes on where the "
        "cluster has CPUs to spare, as here; else it waits for ever. Where a peer's own error comes first, the run "
        "ends, whatever the budget says. Recovery beside the leaked group and that end are both accepted.",
        Shape(spare_cpus=3),
    ),
    _kill_in("restore", _after_a_first_kill(in_phase("restore") & on_attempt(1))),
)

KILL_EVERY_PHASE = register(
    Suite(
        name="kill-every-phase",
        title="A kill in every phase of a training process's life, one run each.",
        members=tuple(member.name for member in MEMBERS),
    )
)
