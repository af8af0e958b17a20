"""Checkpoints written and reported: while the training waits, or beside it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import ray.train
import torch.distributed as dist
from ray.train import Checkpoint, CheckpointUploadMode
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from trainer.config import TrainerConfig

Save = Callable[[dict[str, Any], dict[str, Any]], None]
"""Takes the state of this rank, as a tree, and the metrics to report with its checkpoint; every rank calls it."""


def saver(config: TrainerConfig) -> Save:
    """The way to save that is configured; made once by every rank, after the process group is set up."""
    return Beside() if config.save == "asynchronous" else save_blocking


def save_blocking(tree: dict[str, Any], metrics: dict[str, Any]) -> None:
    """Write this rank's shard and report it; the checkpoint counts once the controller has every rank's report."""
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
        save_sharded(tree, checkpoint_id=folder)
        ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


class Beside:
    """Copies the state, and writes the copy while the training goes on; one save at a time.

    What is reported is durable: Ray Train is told of a checkpoint when its files lie in the storage. An error in the
    writing ends the training at once, through Ray Train. The ranks speak about the save in a group of their own, since
    collectives of two threads in one group would meet in an order of their own on every rank.
    """

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo")
        self._under_way: Future[Any] | None = None

    def __call__(self, tree: dict[str, Any], metrics: dict[str, Any]) -> None:
        """Returns when the state is copied, and so may change; waits for the save before, where one is under way."""
        if self._under_way is not None:
            self._under_way.result()
        folder = tempfile.mkdtemp(prefix="checkpoint-")
        written = self._under_way = cast(
            "Future[Any]", async_save(tree, checkpoint_id=folder, process_group=self._group)
        )

        def upload(local: Checkpoint, name: str) -> Checkpoint:
            """Wait for the shard, then copy it to the storage; the local files go in any case."""
            try:
                written.result()
                storage = ray.train.get_context().get_storage()
                return cast(Checkpoint, storage.persist_current_checkpoint(local, name))
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        ray.train.report(
            metrics,
            checkpoint=Checkpoint.from_directory(folder),
            checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
            checkpoint_upload_fn=upload,
            delete_local_checkpoint_after_upload=False,
        )
