"""Mistakes in the learning-rate schedule."""

from __future__ import annotations

import dataclasses

from tests.mutants.patches import Before, after_restore, after_resume
from tests.mutants.program import DIFFERS, Mutant
from tests.mutants.trials import LATE
from trainer import loop
from trainer.state import TrainState


def forget_scheduler(state: TrainState, before: Before) -> None:
    """The schedule is built anew, so the warm-up begins again."""
    state.scheduler.load_state_dict(before.scheduler)


def peak_rate() -> None:
    """The configured rate overrides the loaded one, for one step."""

    def follow_schedule(self: TrainState) -> None:
        for group, peak in zip(self.optimizer.param_groups, self.scheduler.base_lrs, strict=True):
            group["lr"] = peak

    TrainState.follow_schedule = follow_schedule  # type: ignore[method-assign]


def one_step_ahead(state: TrainState) -> None:
    """The schedule is stepped once after the load, as after building it."""
    state.scheduler.step()


def decay_over_what_is_left(state: TrainState) -> None:
    """The length of the schedule is taken for the steps that are still to do."""
    original = loop.schedule
    done = state.step
    loop.schedule = lambda config, step: original(dataclasses.replace(config, steps=config.steps - done), step)


MUTANTS = (
    Mutant(
        name="scheduler-not-restored",
        caught_by="restored-state",
        also=DIFFERS,
        worker=after_restore(forget_scheduler),
    ),
    Mutant(
        name="peak-rate-after-resume",
        caught_by="trajectory",
        also=frozenset({"control-state"}),
        trial=LATE,
        worker=peak_rate,
    ),
    Mutant(
        name="schedule-one-step-ahead",
        caught_by="trajectory",
        also=frozenset({"control-state"}),
        worker=after_resume(one_step_ahead),
    ),
    Mutant(
        name="decays-over-what-is-left",
        caught_by="trajectory",
        also=frozenset({"control-state"}),
        worker=after_resume(decay_over_what_is_left),
    ),
)
