"""Buggy trainers: each is the reference trainer with one mistake that real training programs have made.

``caught_by`` names the check that must turn red; ``also`` are the other checks that the same mistake turns red.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch.distributed as dist
from ray.data import Dataset

from trainer import data, loop, saving
from trainer.config import TrainerConfig
from trainer.state import TrainState


@dataclass(frozen=True)
class Mutant:
    """One mistake. ``patch`` makes it in a worker, ``epoch`` in the data that the controller hands out."""

    name: str
    caught_by: str
    also: frozenset[str]
    patch: Callable[[], None] = lambda: None
    epoch: Callable[[data.Epoch], Callable[[], Dataset]] = field(default=lambda epoch: epoch)


def after_restore(mistake: Callable[[TrainState, dict[str, Any]], None]) -> Callable[[], None]:
    """Make a mistake right after each load; it is given the state and what was there before the load."""

    def patch() -> None:
        original = TrainState.restore

        def restore(self: TrainState, folder: str | Path) -> None:
            before = {
                "scheduler": self.scheduler.state_dict(),
                "random": {slot: state.clone() for slot, state in self.randomness.states.items()},
            }
            original(self, folder)
            mistake(self, before)

        TrainState.restore = restore  # type: ignore[method-assign]

    return patch


def forget_optimizer(self: TrainState, before: dict[str, Any]) -> None:
    """Pytorch issue 140898: the moments of Adam start from zero."""
    self.optimizer.state.clear()


def forget_scheduler(self: TrainState, before: dict[str, Any]) -> None:
    """The schedule is built anew, so the warm-up begins again."""
    self.scheduler.load_state_dict(before["scheduler"])


def forget_random_state(self: TrainState, before: dict[str, Any]) -> None:
    """Dropout draws the numbers of the first steps again."""
    self.randomness.states = before["random"]


def one_step_late(self: TrainState, before: dict[str, Any]) -> None:
    """The step under way at the save is taken for done."""
    self.samples += self.samples // self.step
    self.step += 1


def one_step_early(self: TrainState, before: dict[str, Any]) -> None:
    """The step that the save closed is done again."""
    self.samples -= self.samples // self.step
    self.step -= 1


def late_step_and_data() -> None:
    after_restore(one_step_late)()
    skip_a_batch()


def skip_a_batch() -> None:
    """After a restart the first step's data are dropped."""
    original = loop.micro_batches

    def skipping(config: TrainerConfig, samples: int) -> Iterator[data.MicroBatch]:
        import ray.train

        batches = original(config, samples)
        skipped = config.micro_batches // dist.get_world_size() if ray.train.get_checkpoint() else 0
        return islice(batches, skipped, None)

    loop.micro_batches = skipping


@dataclass(frozen=True)
class Early:
    """An epoch that resumes one step before the committed position."""

    epoch: data.Epoch

    def __call__(self) -> Dataset:
        first = max(0, data.committed_samples(self.epoch.run_path) - self.epoch.global_batch)
        return data.in_micro_batches(self.epoch.folder, self.epoch.batch_size, range(first, self.epoch.rows))


def save_rank_zero_only() -> None:
    """The other ranks report a directory without their shard."""
    original = saving.save_sharded

    def save(tree: dict[str, Any], checkpoint_id: str) -> None:
        original(tree, checkpoint_id=checkpoint_id)
        if dist.get_rank() > 0:
            for file in Path(checkpoint_id).glob("*.distcp"):
                file.unlink()

    saving.save_sharded = save  # type: ignore[assignment]


def ignore_checkpoint() -> None:
    """Ray issue 36357: the restored checkpoint is shown, and training starts over."""
    loop.resume = lambda state, observer: None


DIFFERS = frozenset({"trajectory", "control-state"})

MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant("optimizer-not-restored", "restored-state", DIFFERS, after_restore(forget_optimizer)),
        Mutant("scheduler-not-restored", "restored-state", DIFFERS, after_restore(forget_scheduler)),
        Mutant("random-state-not-restored", "restored-state", DIFFERS, after_restore(forget_random_state)),
        Mutant(
            "resumes-one-step-late",
            "samples",
            DIFFERS | {"completed", "restored-state", "checkpoints"},
            late_step_and_data,
        ),
        Mutant(
            "resumes-one-step-early",
            "samples",
            DIFFERS | {"completed", "restored-state", "checkpoints"},
            after_restore(one_step_early),
            Early,
        ),
        Mutant("replays-a-batch", "samples", DIFFERS, epoch=Early),
        Mutant("skips-a-batch", "samples", DIFFERS, skip_a_batch),
        Mutant(
            "rank-zero-saves-alone",
            "checkpoints",
            frozenset({"completed", "recovered", "trajectory"}),
            save_rank_zero_only,
        ),
        Mutant("ignores-checkpoint", "resume-step", DIFFERS | {"completed", "checkpoints"}, ignore_checkpoint),
    )
}
