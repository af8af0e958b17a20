"""The training state of an elastic job, cut among its ranks, and checkpoints of it as torch writes them.

No process group is needed: what every rank would plan is planned here one after the other, and written by torch's own
writer.
"""

from __future__ import annotations

import functools
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner, create_default_global_save_plan
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import _create_write_items

from chaos.digest import piece_key, tensor_digest, tree_digests

SLOTS = 6
ROWS = 7
"""Rows of the weight: 3, 3, 1 on three ranks and 4, 3 on two."""


@dataclass(frozen=True)
class Shard:
    """A rank's rows of a tensor of so many rows, from ``begin`` on; ``piece``: (rows here, ...)."""

    piece: torch.Tensor
    begin: int
    rows: int

    @property
    def offsets(self) -> tuple[int, ...]:
        return (self.begin, *(0 for _ in self.piece.shape[1:]))

    @property
    def size(self) -> torch.Size:
        return torch.Size((self.rows, *self.piece.shape[1:]))


def whole(step: int) -> dict[str, Any]:
    """All values at a step, uncut and by name, in double precision."""
    weight = torch.arange(2.0 * ROWS, dtype=torch.float64).reshape(ROWS, 2) / 7 + step
    return {
        "model.weight": weight,
        "model.scale": torch.tensor(0.5, dtype=torch.float64),
        "optimizer.state.weight.exp_avg": weight / 10,
        "optimizer.param_groups.weight.lr": 0.001 * step,
        "scheduler.last": [0.001 * step, 0.5],
        "progress.step": step,
        **{f"random.slot{slot}": torch.tensor([step, slot], dtype=torch.uint8) for slot in range(SLOTS)},
    }


def held(values: dict[str, Any], rank: int, world: int) -> dict[str, Any]:
    """What one rank holds of those values: its rows, its slots, and all that is no matrix; and its stamp."""
    own = {name: value for name, value in values.items() if not name.startswith("random.")}
    own |= {
        name: value for name, value in values.items() if name in {f"random.slot{s}" for s in range(rank, 99, world)}
    }
    for name, value in own.items():
        if isinstance(value, torch.Tensor) and value.dim() == 2:
            share = -(-len(value) // world)
            own[name] = Shard(value[rank * share : (rank + 1) * share].clone(), rank * share, len(value))
    return {**own, f"stamp.rank{rank}": torch.tensor([values["progress.step"]])}


def digests(tree: dict[str, Any]) -> dict[str, str]:
    """As the agent digests the state of one rank."""
    shards = {name: leaf for name, leaf in tree.items() if isinstance(leaf, Shard)}
    found = tree_digests({name: leaf for name, leaf in tree.items() if name not in shards})
    for name, shard in shards.items():
        found[piece_key(name, shard.offsets)] = tensor_digest(name, shard.size, shard.offsets, shard.piece)
    return found


@functools.cache
def _shares(rank: int, world: int, step: int) -> dict[str, str]:
    return digests(held(whole(step), rank, world))


def shares(rank: int, world: int, step: int) -> dict[str, str]:
    """Digests of what one rank of a group of that size saves at a step."""
    return dict(_shares(rank, world, step))


class _Planner(DefaultSavePlanner):
    def __init__(self, tree: dict[str, Any]) -> None:
        super().__init__()
        self.tree = tree

    def plan(self, taken: set[str]) -> SavePlan:
        items = []
        for name, leaf in self.tree.items():
            if isinstance(leaf, Shard):
                items.append(_item(name, leaf))
            elif name not in taken:
                items += _create_write_items(name, leaf)
        taken.update(self.tree)
        return SavePlan(items)

    def resolve_data(self, write_item: WriteItem) -> Any:
        leaf = self.tree[write_item.index.fqn]
        if write_item.type is WriteItemType.BYTE_IO:
            text = io.BytesIO()
            torch.save(leaf, text)
            return text
        return leaf.piece if isinstance(leaf, Shard) else leaf


def _item(name: str, shard: Shard) -> WriteItem:
    offsets = torch.Size(shard.offsets)
    data = TensorWriteData(
        chunk=ChunkStorageMetadata(offsets=offsets, sizes=shard.piece.size()),
        properties=TensorProperties.create_from_tensor(shard.piece),
        size=shard.size,
    )
    return WriteItem(index=MetadataIndex(name, offsets), type=WriteItemType.SHARD, tensor_data=data)


def save(folder: Path, trees: list[dict[str, Any]]) -> Path:
    """Write a checkpoint of what each rank holds: values by name, in order of ranks."""
    writer = FileSystemWriter(folder)
    writer.set_up_storage_writer(is_coordinator=True)
    planners, taken = [_Planner(tree) for tree in trees], set[str]()
    plans = [writer.prepare_local_plan(planner.plan(taken)) for planner in planners]
    plans, metadata = create_default_global_save_plan(plans)
    plans = writer.prepare_global_plan(plans)
    written = [writer.write_data(plan, planner).wait() for plan, planner in zip(plans, planners, strict=True)]
    writer.finish(metadata, written)
    return folder


def save_values(folder: Path, values: dict[str, Any], world: int) -> Path:
    """Write a checkpoint of those values as a group of that size does."""
    return save(folder, [held(values, rank, world) for rank in range(world)])


@functools.cache
def stored(step: int, world: int) -> dict[str, bytes]:
    """The files of a checkpoint at a step."""
    with tempfile.TemporaryDirectory() as folder:
        save_values(Path(folder), whole(step), world)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}
