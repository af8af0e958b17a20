"""A checkpoint of torch.distributed.checkpoint as a tree of its values, however its tensors are cut into shards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metrics.checkpoints.archive import BadArchive, Layout, numbers
from metrics.checkpoints.arrays import Array, dtype_of
from metrics.checkpoints.dcp import METADATA, BadCheckpoint, Stored, coherent, read_metadata
from metrics.checkpoints.layout import Place, places_of
from metrics.checkpoints.pickled import Unreadable
from metrics.checkpoints.saved import saved
from metrics.checkpoints.scan import Looked, scan
from metrics.checkpoints.trees import Broken
from metrics.checkpoints.values import STAMP

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import Metadata


def shards(folder: Path) -> set[str]:
    """The files of a checkpoint that its metadata account for, by name, metadata included.

    Raises BadCheckpoint.
    """
    return {METADATA} | {place.file for place in places_of(folder, read_metadata(folder))}


def tree_of(folder: Path) -> dict[str, Any]:
    """Every value by name, but stamps, which are those of ranks; what cannot be read is Broken.

    Raises BadCheckpoint when the metadata cannot be read.
    """
    metadata = read_metadata(folder)
    places = places_of(folder, metadata)
    looked = sorted(scan(folder, places, digests=False, checksums=False), key=lambda one: one.place.name)
    by_name = {name: list(group) for name, group in groupby(looked, key=lambda one: one.place.name)}
    with coherent(folder):
        names = [name for name in metadata.state_dict_metadata if not name.startswith(STAMP)]
        return {name: _value(folder, metadata, name, by_name.get(name, [])) for name in names}


def _value(folder: Path, metadata: Metadata, name: str, pieces: list[Looked]) -> Any:
    try:
        if flaw := next((one for one in pieces if one.flaw), None):
            raise BadCheckpoint(f"{folder / flaw.place.file}: {flaw.flaw}")
        if len(pieces) == 1 and pieces[0].place.shape is None:
            return _plain(folder, pieces[0].place)
        return _rows(folder, pieces) or _whole(folder, name)
    except BadCheckpoint as error:
        return Broken(str(error))


def _plain(folder: Path, place: Place) -> Any:
    try:
        handle = os.open(folder / place.file, os.O_RDONLY)
        try:
            return saved(handle, place.begin, place.length)
        finally:
            os.close(handle)
    except (Unreadable, BadArchive, OSError) as error:
        raise BadCheckpoint(f"{folder / place.file}: {error}") from error


def _rows(folder: Path, pieces: list[Looked]) -> Array | None:
    """A tensor that is whole or cut into rows, read piece after piece; None for one that is not.

    Its bytes in order are those of its pieces, whatever the number of ranks that saved it.
    """
    full = sorted((one for one in pieces if 0 not in one.place.sizes), key=lambda one: one.place.offsets)
    shape, row = (pieces[0].place.shape or () if pieces else ()), 0
    for one in full:
        begin, *others = one.place.offsets or (0,)
        if one.layout is None or begin != row or any(others) or one.place.sizes[1:] != shape[1:]:
            return None
        row += one.place.sizes[0] if shape else 1
    if not full or row != (shape[0] if shape else 1):
        return None
    stretches = [(folder / one.place.file, one.layout) for one in full if one.layout]
    dtype = dtype_of(str(full[0].place.dtype).removeprefix("torch."))
    return Array(dtype, shape, lambda: _parts(stretches))


def _parts(stretches: list[tuple[Path, Layout]]) -> Iterator[memoryview]:
    for file, layout in stretches:
        handle = os.open(file, os.O_RDONLY)
        try:
            yield from numbers(handle, layout)
        finally:
            os.close(handle)


def _whole(folder: Path, name: str) -> Any:
    """A tensor that is cut in another way, put together in memory when it is read."""
    stored = Stored(folder)
    described = stored.value(name)
    dtype = dtype_of(str(described.dtype).removeprefix("torch."))
    return Array(dtype, tuple(described.shape), lambda: iter((_bytes(stored, name),)))


def _bytes(stored: Stored, name: str) -> memoryview:
    import torch

    found: torch.Tensor = stored.value(name).contiguous()
    return memoryview(found.reshape(-1).view(torch.uint8).numpy().data if found.numel() else b"").cast("B")
