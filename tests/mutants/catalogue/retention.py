"""Mistakes in which checkpoints are kept."""

from __future__ import annotations

import functools
import shutil
from typing import Any

import torch.distributed as dist
from ray.train import CheckpointConfig

from tests.mutants.patches import stored
from tests.mutants.program import Mutant
from tests.mutants.trials import IN_SAVE
from trainer import launch, loop, saving


def keep_all() -> None:
    """The number to keep is not handed on to Ray Train."""
    launch.CheckpointConfig = lambda num_to_keep: CheckpointConfig()  # type: ignore[assignment,misc]


def keep_highest_loss() -> None:
    """The best are kept by their loss, in Ray's default order, in which more is better."""
    launch.CheckpointConfig = functools.partial(  # type: ignore[assignment,misc]
        CheckpointConfig, checkpoint_score_attribute="loss"
    )


def tidy_up() -> None:
    """When all is done the program deletes all but the last checkpoint: here, the one before it."""
    original = loop.train

    def train(settings: dict[str, Any]) -> None:
        original(settings)
        if dist.get_rank() == 0:
            shutil.rmtree(stored()[-2])

    loop.train = train


def delete_first() -> None:
    """To save space the old checkpoint goes before the new one is there."""
    original = saving.save_sharded

    def save(tree: dict[str, Any], checkpoint_id: str) -> None:
        if dist.get_rank() == 0:
            for folder in stored():
                shutil.rmtree(folder)
        original(tree, checkpoint_id=checkpoint_id)

    saving.save_sharded = save  # type: ignore[assignment]


MUTANTS = (
    Mutant(name="keeps-every-checkpoint", caught_by="checkpoints", also=frozenset({"snapshot"}), driver=keep_all),
    Mutant(
        name="keeps-the-highest-loss", caught_by="checkpoints", also=frozenset({"snapshot"}), driver=keep_highest_loss
    ),
    Mutant(name="tidies-up-at-the-end", caught_by="checkpoints", also=frozenset({"snapshot"}), worker=tidy_up),
    Mutant(
        name="deletes-before-it-saves",
        caught_by="checkpoints",
        also=frozenset({"completed", "recovered", "restarts", "snapshot", "trajectory"}),
        trial=IN_SAVE,
        worker=delete_first,
        driver=keep_all,
    ),
)
