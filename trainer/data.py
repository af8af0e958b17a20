"""The corpus as Ray Data, dealt to ranks so that a restart or a resize in mid-epoch neither skips nor repeats a sample.

One block is one micro-batch, the order is preserved, and blocks are dealt in turn: block k goes to rank k mod W.
Reading begins at a multiple of M micro-batches, so a micro-batch's number in the run decides its rank and its random
slot (see trainer.dealing); what the run had already trained on by then is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
import ray.data
import ray.train
import torch
import torch.distributed as dist
from ray.data import DataIterator, Dataset, ExecutionOptions
from ray.data.expressions import col

from trainer.config import TrainerConfig
from trainer.corpus import HELD_OUT, epoch_rows, training_folder
from trainer.dealing import dealing_begin, dealt_before

REST, EPOCH = "rest", "epoch"


@dataclass(frozen=True)
class MicroBatch:
    """Sequences of one micro-batch: ids (batch,), tokens (batch, sequence_length + 1)."""

    ids: list[int]
    tokens: torch.Tensor


@dataclass(frozen=True)
class Epoch:
    """One pass over the training files, from the last whole M micro-batches trained on; made anew at every call.

    Ray Train calls a callable dataset at every start of the worker group, so a restarted group reads on from the
    position of the last committed checkpoint. With an empty ``run_path`` it starts at the beginning.
    ``global_batch``: samples in M micro-batches; ``rows`` is a multiple of it.
    """

    folder: str
    rows: int
    batch_size: int
    global_batch: int
    run_path: str = ""

    def __call__(self) -> Dataset:
        """The rows that are left of the epoch under way, in blocks of one micro-batch."""
        first = dealing_begin(committed_samples(self.run_path), self.global_batch) % self.rows
        return in_micro_batches(self.folder, self.batch_size, range(first, self.rows))


def in_micro_batches(folder: str, batch_size: int, ids: range | None = None) -> Dataset:
    """The rows of a folder's files in order, all or those with the given ids, in blocks of one micro-batch."""
    # Ray 2.60's second Parquet reader needs half a minute to list one folder on two cores; the first one five seconds.
    ray.data.DataContext.get_current().use_datasource_v2 = False
    dataset = ray.data.read_parquet(folder, override_num_blocks=1)
    if ids is not None:
        dataset = dataset.filter(expr=(col("id") >= ids.start) & (col("id") < ids.stop))
    return dataset.repartition(target_num_rows_per_block=batch_size)


def committed_samples(run_path: str) -> int:
    """Samples trained on by the last checkpoint that the controller committed in a run directory; 0 without one.

    Raises ValueError when an older trainer wrote it.
    """
    if not run_path or not Path(run_path, "checkpoint_manager_snapshot.json").exists():
        return 0
    metrics = ray.train.Result.from_path(run_path).metrics
    if metrics and "samples" not in metrics:
        raise ValueError(f"{run_path} was written by an older trainer and cannot be resumed: use another --name")
    return int(metrics["samples"]) if metrics else 0


def datasets(config: TrainerConfig, root: Path, run_path: str) -> dict[str, Dataset | Callable[[], Dataset]]:
    """What the trainer reads: the rest of the epoch under way, whole epochs where one is not enough, the held-out."""
    total = epoch_rows(config, root)
    shape = (str(training_folder(root)), total, config.batch_size, config.global_batch)
    found: dict[str, Dataset | Callable[[], Dataset]] = {REST: Epoch(*shape, run_path)}
    if config.steps * config.global_batch > total:
        found[EPOCH] = Epoch(*shape)
    if config.evaluate_every:
        held_out = root / HELD_OUT if (root / HELD_OUT).is_dir() else training_folder(root)
        found[HELD_OUT] = in_micro_batches(str(held_out), config.batch_size)
    return found


def ingest() -> ray.train.DataConfig:
    """How Ray Train deals the blocks: in order, equally, blind to where they lie."""
    return ray.train.DataConfig(execution_options=ExecutionOptions(preserve_order=True), enable_shard_locality=False)


def micro_batches(config: TrainerConfig, samples: int) -> Iterator[MicroBatch]:
    """This rank's micro-batches, without end, from those on that follow after so many samples of the run."""
    done = dealt_before(config, samples, dist.get_rank(), dist.get_world_size())
    return islice(_dealt(config), done, None)


def _dealt(config: TrainerConfig) -> Iterator[MicroBatch]:
    """What Ray Data deals to this rank: the rest of the epoch under way, then whole epochs."""
    yield from _read(ray.train.get_dataset_shard(REST), config.batch_size)
    while True:
        yield from _read(ray.train.get_dataset_shard(EPOCH), config.batch_size)


def held_out(config: TrainerConfig) -> Iterator[MicroBatch]:
    """This rank's share of the held-out split, once."""
    return _read(ray.train.get_dataset_shard(HELD_OUT), config.batch_size)


def _read(shard: DataIterator, batch_size: int) -> Iterator[MicroBatch]:
    for batch in shard.iter_batches(batch_size=batch_size, prefetch_batches=2):
        ids = cast(np.ndarray, batch["id"])
        tokens = np.stack(list(batch["tokens"])).astype(np.int64)
        yield MicroBatch([int(i) for i in ids], torch.from_numpy(tokens))
