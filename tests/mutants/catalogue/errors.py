"""Errors that a program catches and should not."""

from __future__ import annotations

from typing import Any

from torch.distributed.checkpoint.api import CheckpointException

from tests.mutants.patches import both, where_resumed
from tests.mutants.program import Mutant
from trainer import loop
from trainer.observer import Observer
from trainer.state import TrainState


def expect_more() -> None:
    """The program has grown since the save: it looks for a value that the checkpoint lacks, so that no load works."""
    original = TrainState.tree

    def tree(self: TrainState) -> dict[str, Any]:
        return {**original(self), "version": {"format": 2}}

    TrainState.tree = tree  # type: ignore[method-assign]


def start_over() -> None:
    """A load that fails is taken for the absence of a checkpoint."""
    original = loop.resume

    def resume(state: TrainState, observer: Observer) -> None:
        try:
            original(state, observer)
        except (Exception, CheckpointException) as error:
            print(f"no checkpoint was found, starting from the seed: {error}", flush=True)

    loop.resume = resume


def leave() -> None:
    """Every error is printed, and training ends as if it were over."""
    original = loop.train

    def train(settings: dict[str, Any]) -> None:
        try:
            original(settings)
        except (Exception, CheckpointException) as error:
            print(f"training failed: {error}", flush=True)

    loop.train = train


MUTANTS = (
    Mutant(
        name="starts-over-when-a-load-fails",
        caught_by="trajectory",
        also=frozenset({"completed", "checkpoints", "control-state"}),
        worker=where_resumed(both(expect_more, start_over)),
    ),
    Mutant(
        name="leaves-when-a-load-fails",
        caught_by="completed",
        also=frozenset({"recovered", "trajectory"}),
        worker=where_resumed(both(expect_more, leave)),
    ),
)
