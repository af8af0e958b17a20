"""Mistakes in what is reported to Ray Train."""

from __future__ import annotations

import tempfile
from typing import Any

import ray.train
import torch.distributed as dist
from ray.train import Checkpoint, CheckpointUploadMode

from tests.mutants.patches import saving_by, where_resumed
from tests.mutants.program import DIFFERS, Mutant
from tests.mutants.trials import KILL, LATE, PACED, TWO_KILLS
from trainer import saving
from trainer.saving import Save


def metrics_only(write: Save) -> Save:
    """The checkpoint is left out of the report."""
    return lambda tree, metrics: ray.train.report(metrics)


def position_of_step_before(write: Save) -> Save:
    """The position is that of when the step began."""

    def save(tree: dict[str, Any], metrics: dict[str, Any]) -> None:
        write(tree, {**metrics, "samples": metrics["samples"] - metrics["samples"] // metrics["step"]})

    return save


def one_save_late(write: Save) -> Save:
    """Each report names the directory of the save before."""
    previous: list[Checkpoint] = []

    def save(tree: dict[str, Any], metrics: dict[str, Any]) -> None:
        storage = ray.train.get_context().get_storage()
        with tempfile.TemporaryDirectory() as folder:
            saving.save_sharded(tree, checkpoint_id=folder)
            written = Checkpoint.from_directory(folder)
            previous.append(storage.persist_current_checkpoint(written, f"checkpoint_{metrics['step']:06d}"))
        late = previous.pop(0) if len(previous) > 1 else None
        ray.train.report(metrics, checkpoint=late, checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)

    return save


def directory_of_its_own(write: Save) -> Save:
    """Each rank copies its shard to a directory of its own and reports that."""

    def upload(local: Checkpoint, name: str) -> Any:
        storage = ray.train.get_context().get_storage()
        return storage.persist_current_checkpoint(local, f"{name}-rank{dist.get_rank()}")

    def save(tree: dict[str, Any], metrics: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            saving.save_sharded(tree, checkpoint_id=folder)
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder), checkpoint_upload_fn=upload)

    return save


def rank_zero_alone(write: Save) -> Save:
    """The other ranks save their shard and report nothing."""

    def save(tree: dict[str, Any], metrics: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            saving.save_sharded(tree, checkpoint_id=folder)

    return write if dist.get_rank() == 0 else save


MUTANTS = (
    Mutant(
        name="never-reports-a-checkpoint",
        caught_by="lost-steps",
        trial=PACED,
        worker=saving_by(metrics_only),
    ),
    Mutant(
        name="reports-no-more-checkpoints",
        caught_by="lost-steps",
        trial=TWO_KILLS,
        worker=where_resumed(saving_by(metrics_only)),
    ),
    Mutant(
        name="reports-position-of-step-before",
        caught_by="samples",
        also=DIFFERS,
        worker=saving_by(position_of_step_before),
    ),
    Mutant(
        name="reports-one-save-late",
        caught_by="restored-state",
        also=DIFFERS | {"completed", "checkpoints"},
        trial=LATE,
        worker=saving_by(one_save_late),
    ),
    Mutant(
        name="reports-a-directory-of-its-own",
        caught_by="completed",
        also=frozenset({"trajectory"}),
        trial=KILL.but(pace="0.5"),
        worker=where_resumed(saving_by(directory_of_its_own)),
    ),
    Mutant(
        name="rank-zero-reports-alone",
        caught_by="completed",
        also=frozenset({"trajectory"}),
        worker=where_resumed(saving_by(rank_zero_alone)),
    ),
)
