"""Mistakes in the states of random number generators."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from tests.mutants.patches import Before, after_restore, after_resume
from tests.mutants.program import DIFFERS, Mutant
from trainer import loop
from trainer.config import TrainerConfig
from trainer.data import MicroBatch
from trainer.observer import Observer
from trainer.saving import Save
from trainer.state import TrainState


def forget_random_state(state: TrainState, before: Before) -> None:
    """Dropout draws the numbers of the first steps again."""
    state.randomness.states = before.random


def take_rank_zero_s(state: TrainState, before: Before) -> None:
    """One file of random states serves every rank, so all of them drop out alike."""
    for held in state.randomness.states.values():
        dist.broadcast(held, 0)


def reseed(state: TrainState) -> None:
    """Seeded by the step after every start, so as not to repeat the noise."""
    for slot in state.randomness.states:
        seeded = torch.Generator(state.randomness.device).manual_seed(1000 * state.step + slot)
        state.randomness.states[slot] = seeded.get_state()


def save_those_of_step_begin() -> None:
    """The random states are taken when a step begins, all else when it is over."""
    train_step, save = loop.train_step, loop.save
    begin: dict[int, Tensor] = {}

    def noting(config: TrainerConfig, state: TrainState, batches: Iterator[MicroBatch], observer: Observer) -> Tensor:
        begin.update(state.randomness.states)
        return train_step(config, state, batches, observer)

    def saving(write: Save, state: TrainState, loss: Tensor, observer: Observer) -> None:
        held, state.randomness.states = state.randomness.states, dict(begin)
        save(write, state, loss, observer)
        state.randomness.states = held

    loop.train_step, loop.save = noting, saving


MUTANTS = (
    Mutant(
        name="random-state-not-restored",
        caught_by="restored-state",
        also=DIFFERS,
        worker=after_restore(forget_random_state),
    ),
    Mutant(
        name="random-state-of-rank-zero",
        caught_by="restored-state",
        also=DIFFERS,
        worker=after_restore(take_rank_zero_s),
    ),
    Mutant(
        name="reseeds-after-resume",
        caught_by="trajectory",
        also=frozenset({"control-state"}),
        worker=after_resume(reseed),
    ),
    Mutant(
        name="random-state-of-step-begin",
        caught_by="trajectory",
        also=frozenset({"control-state"}),
        worker=save_those_of_step_begin,
    ),
)
