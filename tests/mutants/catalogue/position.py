"""Mistakes in the position in the data."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
import torch.distributed as dist

from tests.mutants.catalogue.resume import Early, skip_a_batch
from tests.mutants.patches import reading, where_resumed
from tests.mutants.program import DIFFERS, Mutant
from tests.mutants.trials import EPOCHS
from trainer import data, loop
from trainer.config import TrainerConfig


class Anew(data.Epoch):
    """An epoch that begins with its first sample at every start."""

    def __call__(self) -> data.Dataset:
        return data.in_micro_batches(self.folder, self.batch_size, range(self.rows))

    @classmethod
    def of(cls, epoch: data.Epoch) -> Anew:
        """The same epoch with this mistake."""
        return cls(**vars(epoch))


class FirstOnly(data.Epoch):
    """The position is compared with the size of an epoch, and not taken modulo it."""

    def __call__(self) -> data.Dataset:
        position = data.committed_samples(self.run_path)
        first = position if position < self.rows else 0
        return data.in_micro_batches(self.folder, self.batch_size, range(first, self.rows))

    @classmethod
    def of(cls, epoch: data.Epoch) -> FirstOnly:
        """The same epoch with this mistake."""
        return cls(**vars(epoch))


def skip_on_one_rank() -> None:
    """Rank 1 passes over one micro-batch more than the others."""
    original = loop.micro_batches

    def skipping(config: TrainerConfig, samples: int) -> Iterator[data.MicroBatch]:
        return islice(original(config, samples), int(dist.get_rank() == 1), None)

    loop.micro_batches = skipping


def as_on_rank_zero(batch: data.MicroBatch) -> data.MicroBatch:
    """The micro-batch that rank 0 has at this place."""
    ids, tokens = torch.tensor(batch.ids), batch.tokens.clone()
    dist.broadcast(ids, 0)
    dist.broadcast(tokens, 0)
    return data.MicroBatch(ids.tolist(), tokens)


def same_on_every_rank() -> None:
    """The sampler is built anew as if there were one rank, so that all read the same."""
    original = loop.micro_batches
    loop.micro_batches = lambda config, samples: map(as_on_rank_zero, original(config, samples))


MUTANTS = (
    Mutant(name="replays-a-batch", caught_by="samples", also=DIFFERS, driver=reading(Early.of)),
    Mutant(name="skips-a-batch", caught_by="samples", also=DIFFERS, worker=where_resumed(skip_a_batch)),
    Mutant(name="epoch-starts-over", caught_by="samples", also=DIFFERS, driver=reading(Anew.of)),
    Mutant(name="one-rank-skips-ahead", caught_by="samples", also=DIFFERS, worker=where_resumed(skip_on_one_rank)),
    Mutant(name="same-data-on-every-rank", caught_by="samples", also=DIFFERS, worker=where_resumed(same_on_every_rank)),
    Mutant(
        name="position-lost-in-later-epochs",
        caught_by="samples",
        also=DIFFERS,
        trial=EPOCHS,
        driver=reading(FirstOnly.of),
    ),
)
