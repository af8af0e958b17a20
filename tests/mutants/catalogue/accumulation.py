"""Mistakes in gathering the gradient of a step from its micro-batches."""

from __future__ import annotations

import torch

from tests.mutants.patches import after_resume, where_resumed
from tests.mutants.program import DIFFERS, Mutant
from tests.mutants.trials import BATCHES
from trainer import dealing, loop
from trainer.model import next_token_loss
from trainer.state import TrainState


def warm_up(state: TrainState) -> None:
    """One pass forward and back, so that the first step is as quick as the others."""
    length = state.model.positions.num_embeddings + 1  # type: ignore[union-attr]
    tokens = torch.zeros(1, length, dtype=torch.long, device=state.randomness.device)  # type: ignore[call-overload]
    next_token_loss(state.model, tokens).backward()  # type: ignore[no-untyped-call]


def never_sync() -> None:
    """Ranks keep their gradients to themselves, as within ``no_sync``."""
    original = loop.set_gradient_sync
    loop.set_gradient_sync = lambda model, sync: original(model, False)


def accumulate_less() -> None:
    """The number of micro-batches is not among what is restored, and its default is smaller."""
    original = dealing.micro_batches_per_rank
    dealing.micro_batches_per_rank = lambda config, world: original(config, world) - 1


MUTANTS = (
    Mutant(
        name="keeps-the-warm-up-gradient",
        caught_by="trajectory",
        also=frozenset({"control-state"}),
        worker=after_resume(warm_up),
    ),
    Mutant(
        name="never-syncs-gradients",
        caught_by="trajectory",
        also=frozenset({"control-state"}),
        worker=where_resumed(never_sync),
    ),
    Mutant(
        name="smaller-steps-after-resume",
        caught_by="global-batch",
        also=DIFFERS,
        trial=BATCHES,
        worker=where_resumed(accumulate_less),
    ),
)
