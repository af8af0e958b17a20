"""Mistakes in writing the shards of a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map

from tests.mutants.program import Mutant
from trainer import saving


def shard_files(folder: str) -> list[Path]:
    """The shard files that this rank has written."""
    return list(Path(folder).glob("*.distcp"))


def save_rank_zero_only() -> None:
    """The other ranks report a directory without their shard."""
    original = saving.save_sharded

    def save(tree: dict[str, Any], checkpoint_id: str) -> None:
        original(tree, checkpoint_id=checkpoint_id)
        if dist.get_rank() > 0:
            for file in shard_files(checkpoint_id):
                file.unlink()

    saving.save_sharded = save  # type: ignore[assignment]


def copied(leaf: Any) -> Any:
    """A tensor's copy; anything else as it is."""
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def save_the_one_before() -> None:
    """A buffer is filled after it was written: the other ranks save what the last save was asked to."""
    original = saving.save_sharded
    buffer: list[dict[str, Any]] = []

    def save(tree: dict[str, Any], checkpoint_id: str) -> None:
        late = dist.get_rank() > 0 and buffer
        original(buffer.pop() if late else tree, checkpoint_id=checkpoint_id)
        buffer[:] = [tree_map(copied, tree)]

    saving.save_sharded = save  # type: ignore[assignment]


def ignore_full_disk() -> None:
    """The second save of a process runs out of space on the other ranks, and nobody looks at the error."""
    original = saving.save_sharded
    saves = 0

    def save(tree: dict[str, Any], checkpoint_id: str) -> None:
        nonlocal saves
        saves += 1
        original(tree, checkpoint_id=checkpoint_id)
        if dist.get_rank() > 0 and saves > 1:
            for file in shard_files(checkpoint_id):
                os.truncate(file, file.stat().st_size // 2)

    saving.save_sharded = save  # type: ignore[assignment]


MUTANTS = (
    Mutant(
        name="rank-zero-saves-alone",
        caught_by="checkpoints",
        also=frozenset({"completed", "recovered", "trajectory"}),
        worker=save_rank_zero_only,
    ),
    Mutant(name="shard-of-the-save-before", caught_by="checkpoints", worker=save_the_one_before),
    Mutant(name="ignores-a-full-disk", caught_by="checkpoints", worker=ignore_full_disk),
)
