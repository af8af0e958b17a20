"""Mistakes in going back to a checkpoint: which one, how much of it, and on which ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import ray.train
import torch
import torch.distributed as dist

from tests.mutants.patches import (
    Before,
    after_restore,
    after_resume,
    both,
    experiment,
    reading,
    take_back_weights,
    where_resumed,
)
from tests.mutants.program import DIFFERS, Mutant, Patch
from tests.mutants.trials import IN_TRANSFER, LATE
from trainer import data, loop
from trainer.config import TrainerConfig
from trainer.observer import Observer
from trainer.state import TrainState

MOVED = DIFFERS | {"completed", "restored-state", "checkpoints"}
"""Red where the program counts other steps than were made."""


def ignore_checkpoint() -> None:
    """Ray issue 36357: the restored checkpoint is shown, and training starts over."""
    loop.resume = lambda state, observer: None


def one_step_late(state: TrainState, before: Before) -> None:
    """The step under way at the save is taken for done."""
    state.samples += state.samples // state.step
    state.step += 1


def one_step_early(state: TrainState, before: Before) -> None:
    """The step that the save closed is done again."""
    state.samples -= state.samples // state.step
    state.step -= 1


def skip_a_batch() -> None:
    """The first step's data are dropped."""
    original = loop.micro_batches

    def skipping(config: TrainerConfig, samples: int) -> Iterator[data.MicroBatch]:
        return islice(original(config, samples), config.micro_batches // dist.get_world_size(), None)

    loop.micro_batches = skipping


def load_weights_only(state: TrainState, before: Before) -> None:
    """As for fine-tuning: all else begins anew."""
    state.optimizer.state.clear()
    state.scheduler.load_state_dict(before.scheduler)
    state.randomness.states = before.random
    state.step = state.samples = 0


def from_directory(choose: Callable[[list[Path]], Path]) -> Patch:
    """Look for the checkpoint in the storage instead of asking Ray Train."""

    def patch() -> None:
        def resume(state: TrainState, observer: Observer) -> None:
            checkpoint = ray.train.get_checkpoint()
            if checkpoint is None:
                return
            state.restore(choose(sorted(Path(checkpoint.path).parent.glob("checkpoint_*"))))
            observer.state("restored", state.tree())
            state.follow_schedule()

        loop.resume = resume

    return patch


def reinitialize_head(state: TrainState) -> None:
    """The head begins anew after the load, as for another task."""
    with torch.no_grad():
        state.model.head.weight.zero_()  # type: ignore[union-attr]


def load_on_rank_zero_alone(state: TrainState, before: Before) -> None:
    """The weights are not sent on to the other ranks."""
    if dist.get_rank() > 0:
        take_back_weights(state, before)


def trip_over_leftovers() -> None:
    """Folders are made without ``exist_ok``, which works once."""
    original = loop.new_state

    def new_state(config: TrainerConfig) -> TrainState:
        (experiment() / "logs" / f"rank{dist.get_rank()}").mkdir(parents=True)
        return original(config)

    loop.new_state = new_state


class Early(data.Epoch):
    """An epoch that resumes one step before the committed position."""

    def __call__(self) -> data.Dataset:
        first = max(0, data.committed_samples(self.run_path) - self.global_batch)
        return data.in_micro_batches(self.folder, self.batch_size, range(first, self.rows))

    @classmethod
    def of(cls, epoch: data.Epoch) -> Early:
        """The same epoch with this mistake."""
        return cls(**vars(epoch))


MUTANTS = (
    Mutant(
        name="ignores-checkpoint",
        caught_by="resume-step",
        also=DIFFERS | {"completed", "checkpoints"},
        worker=ignore_checkpoint,
    ),
    Mutant(
        name="resumes-one-step-late",
        caught_by="samples",
        also=MOVED,
        worker=both(after_restore(one_step_late), where_resumed(skip_a_batch)),
    ),
    Mutant(
        name="resumes-one-step-early",
        caught_by="samples",
        also=MOVED,
        worker=after_restore(one_step_early),
        driver=reading(Early.of),
    ),
    Mutant(
        name="loads-weights-only",
        caught_by="restored-state",
        also=DIFFERS | {"completed", "checkpoints"},
        worker=after_restore(load_weights_only),
    ),
    Mutant(
        name="resumes-from-oldest-directory",
        caught_by="resume-step",
        also=MOVED,
        trial=LATE,
        worker=from_directory(lambda found: found[0]),
    ),
    Mutant(
        name="resumes-from-newest-directory",
        caught_by="resume-step",
        also=frozenset({"completed", "recovered", "trajectory"}),
        trial=IN_TRANSFER,
        worker=from_directory(lambda found: found[-1]),
    ),
    Mutant(
        name="reinitializes-head",
        caught_by="trajectory",
        also=frozenset({"control-state"}),
        worker=after_resume(reinitialize_head),
    ),
    Mutant(
        name="rank-zero-loads-alone",
        caught_by="restored-state",
        also=DIFFERS,
        worker=after_restore(load_on_rank_zero_alone),
    ),
    Mutant(
        name="trips-over-leftovers",
        caught_by="completed",
        also=frozenset({"recovered", "resume-step", "trajectory"}),
        worker=trip_over_leftovers,
    ),
)
