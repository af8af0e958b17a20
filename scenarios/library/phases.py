"""A kill in every phase of a training process's life: one scenario each, and the suite of them all."""

from __future__ import annotations

from chaos.faults.kill import Kill
from chaos.schedule import Arming
from chaos.targets import Rank
from chaos.triggers import PHASES, Trigger, at_step, before_step, in_phase, on_attempt
from metrics.expectations import HEALTHY, Expectation, fails
from scenarios.scenario import Inject, Scenario, Suite, register


def _alone(trigger: Trigger) -> Inject:
    return lambda shape: (Arming(Kill(), trigger, Rank(shape.rank)),)


def _after_a_first_kill(trigger: Trigger, *, same_rank: bool = True) -> Inject:
    """A kill that brings the job into the phase, and the one in it."""
    return lambda shape: (
        Arming(Kill(), at_step(shape.step), Rank(shape.rank)),
        Arming(Kill(), trigger, Rank(shape.rank if same_rank else (shape.rank + 1) % shape.workers)),
    )


def _kill_in(phase: str, inject: Inject, expects: Expectation = HEALTHY) -> Scenario:
    return register(
        Scenario(
            name=f"kill-in-{phase}",
            title=f"A worker is killed at this point: {PHASES[phase]}.",
            inject=inject,
            expects=expects,
        )
    )


MEMBERS = (
    _kill_in("first-step", _alone(in_phase("first-step"))),
    _kill_in("forward", _alone(in_phase("forward") & at_step(24))),
    _kill_in("optimizer", _alone(before_step(25))),
    _kill_in("save", _alone(in_phase("save") & at_step(20))),
    _kill_in("transfer", _alone(in_phase("transfer") & at_step(20))),
    _kill_in("commit", _alone(in_phase("commit") & at_step(20))),
    _kill_in("teardown", _after_a_first_kill(in_phase("teardown") & on_attempt(0), same_rank=False)),
    # Ray 2.60 counts only the death of the actor itself as a failed start: when a peer's error in the rendezvous comes
    # first, the run ends in error whatever the budget says. Both outcomes are accepted; the report says which it was.
    _kill_in(
        "rendezvous",
        _after_a_first_kill(in_phase("rendezvous") & on_attempt(1)),
        HEALTHY | fails(error="ControllerError"),
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
