"""Whether the metadata of a checkpoint and its files fit together: every byte and every number in its place, once."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metrics.checkpoints.dcp import METADATA, BadCheckpoint, coherent, inside

if TYPE_CHECKING:
    import torch
    from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

UNFINISHED = (".distcp", ".tmp", ".partial")
"""How the names of files end that only a save leaves: one that the metadata do not name belongs to another save."""

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes of a part of a tensor, by dimension."""


@dataclass(frozen=True)
class Place:
    """Where one piece lies. ``sizes`` and ``dtype`` are those of its part of a tensor; None for a plain value.

    ``shape``: of the whole tensor. ``transformed``: whether its bytes were compressed or changed otherwise.
    """

    name: str
    file: str
    begin: int
    length: int
    shape: tuple[int, ...] | None = None
    offsets: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    transformed: bool = False

    @property
    def key(self) -> str:
        """As records name the piece."""
        from chaos.digest import piece_key

        return self.name if self.shape is None else piece_key(self.name, self.offsets)

    @property
    def counts(self) -> bool:
        """Whether records know the piece: not the empty shard of a tensor that is not empty."""
        return self.shape is None or 0 not in self.sizes or 0 in self.shape

    @property
    def end(self) -> int:
        """The first byte after it."""
        return self.begin + self.length


def places_of(folder: Path, metadata: Metadata) -> list[Place]:
    """All pieces that the metadata place, by file and position.

    Raises BadCheckpoint when they contradict themselves.
    """
    with coherent(folder):
        described = {name: _described(folder, name, what) for name, what in metadata.state_dict_metadata.items()}
        stored = (metadata.storage_data or {}).items()
        found = [_place(folder, described, index, info) for index, info in stored]
        return sorted(found, key=lambda place: (place.file, place.begin))


@dataclass(frozen=True)
class _Described:
    """What the metadata say of a value: of a tensor its shape, its type, and the sizes of its parts by offsets."""

    shape: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None
    sizes: Mapping[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)


def _described(folder: Path, name: Any, what: Any) -> _Described:
    import torch
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata, TensorStorageMetadata

    if type(what) is BytesStorageMetadata:
        return _Described()
    if type(what) is not TensorStorageMetadata or not isinstance(what.properties.dtype, torch.dtype):
        raise BadCheckpoint(f"{folder / METADATA} describes {name} as a {type(what).__name__}")
    boxes = [what.size, *(part for chunk in what.chunks for part in (chunk.offsets, chunk.sizes))]
    if not all(type(box) is torch.Size for box in boxes):
        raise BadCheckpoint(f"{folder / METADATA} describes {name} with a shape that is none")
    sizes = {tuple(chunk.offsets): tuple(chunk.sizes) for chunk in what.chunks}
    return _Described(tuple(what.size), what.properties.dtype, sizes)


def _place(folder: Path, described: Mapping[str, _Described], index: Any, info: Any) -> Place:
    if index.fqn not in described:
        raise BadCheckpoint(f"{folder / METADATA} places {index.fqn}, which it does not describe")
    what, file, begin, length = described[index.fqn], inside(folder, info.relative_path), info.offset, info.length
    if type(begin) is not int or type(length) is not int:
        raise BadCheckpoint(f"{folder / METADATA} places {index.fqn} at {type(begin).__name__}, no number")
    transformed = bool(getattr(info, "transform_descriptors", None))
    if (what.shape is None) != (index.offset is None):
        raise BadCheckpoint(f"{folder / METADATA} places {index.fqn} as what it is not described as")
    if what.shape is None:
        return Place(index.fqn, file, begin, length, transformed=transformed)
    offsets = tuple(index.offset)
    if offsets not in what.sizes:
        raise BadCheckpoint(f"{folder / METADATA} places {index.fqn} at {offsets}, where it has no part")
    return Place(index.fqn, file, begin, length, what.shape, offsets, what.sizes[offsets], what.dtype, transformed)


def flaws_of_files(folder: Path, places: list[Place]) -> Iterator[str]:
    """What is wrong with the files: missing, cut, overlapping, with bytes of nobody; files of another save."""
    for file, group in itertools.groupby(places, key=lambda place: place.file):
        yield from _flaws_of_file(folder / file, list(group))
    for path in _beside(folder, places):
        # A rank without a piece of its own writes an empty file.
        if path.name.endswith(UNFINISHED) and path.stat().st_size:
            yield f"{path.name} belongs to no piece: it is of another save"


def other_files(folder: Path, places: list[Place]) -> list[str]:
    """Files beside the checkpoint's own, which are no remains of a save: Ray and users may put some there."""
    return [str(path.relative_to(folder)) for path in _beside(folder, places) if not path.name.endswith(UNFINISHED)]


def _beside(folder: Path, places: list[Place]) -> list[Path]:
    """Files that no piece lies in, but for those of checkpoints that lie below."""
    known = {folder / place.file for place in places} | {folder / METADATA}
    others = [path.parent for path in folder.rglob(METADATA) if path.parent != folder]
    found = (path for path in folder.rglob("*") if path.is_file() and path not in known)
    return sorted(path for path in found if not any(path.is_relative_to(other) for other in others))


def _flaws_of_file(path: Path, held: list[Place]) -> Iterator[str]:
    if not path.is_file():
        yield f"{path.name} is missing; it should hold {len(held)} pieces, first {held[0].name}"
        return
    size, reached = path.stat().st_size, 0
    for place in held:
        if place.begin < 0 or place.length < 0:
            yield f"{path.name}: {place.name} is placed at byte {place.begin}, {place.length} bytes long"
            return
        if place.begin != reached:
            word = "overlaps the piece before it" if place.begin < reached else "has bytes of nobody before it"
            yield f"{path.name}: {place.name} {word}: begins at byte {place.begin}, not {reached}"
        reached = place.end
    if size < reached:
        lost = [place for place in held if place.end > size]
        yield f"{path.name} is cut short at byte {size} of {reached}: {len(lost)} pieces are lost, first {lost[0].name}"
    elif size > reached:
        yield f"{path.name} goes on after its last piece: {size - reached} bytes belong to nothing"


def flaws_of_values(metadata: Metadata, places: list[Place]) -> Iterator[str]:
    """What is wrong with the values: not stored, stored twice, parts of a tensor that leave a gap or overlap."""
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    stored: dict[str, list[Place]] = defaultdict(list)
    for place in places:
        stored[place.name].append(place)
    if isinstance(paths := metadata.planner_data, dict):
        for name, path in paths.items():
            if isinstance(path, tuple) and ".".join(map(str, path)) != name:
                yield f"{name} has the path of another value"
    for name, described in metadata.state_dict_metadata.items():
        if isinstance(described, TensorStorageMetadata):
            yield from _flaws_of_tensor(name, described, stored[name])
        elif len(stored[name]) != 1:
            yield f"{name} is stored {len(stored[name])} times"


def _flaws_of_tensor(name: str, described: TensorStorageMetadata, stored: list[Place]) -> Iterator[str]:
    shape = tuple(described.size)
    boxes = [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in described.chunks]
    there = [place.offsets for place in stored if math.prod(place.sizes)]
    if absent := sorted({offsets for offsets, sizes in boxes if math.prod(sizes)} - set(there)):
        yield f"{name}: the part at {absent[0]} is not stored"
    if len(there) > len(set(there)):
        yield f"{name}: a part is stored twice"
    full = [box for box in boxes if math.prod(box[1])]
    if beyond := [box for box in full if not _within(box, shape)]:
        yield f"{name}: the part at {beyond[0][0]} goes beyond the shape {shape}"
    elif pair := _overlapping(full):
        yield f"{name}: the parts at {pair[0][0]} and {pair[1][0]} overlap"
    elif (covered := sum(math.prod(sizes) for _, sizes in full)) != math.prod(shape):
        yield f"{name}: its parts hold {covered} of {math.prod(shape)} numbers"


def _within(box: Box, shape: tuple[int, ...]) -> bool:
    offsets, sizes = box
    if not len(offsets) == len(sizes) == len(shape):
        return False
    parts = zip(offsets, sizes, shape, strict=True)
    return all(begin >= 0 and size >= 0 and begin + size <= whole for begin, size, whole in parts)


def _overlapping(boxes: Iterable[Box]) -> tuple[Box, Box] | None:
    """Two boxes that share a number, found by a sweep over the dimension in which they are cut most."""
    boxes = list(boxes)
    dims = range(len(boxes[0][0]) if boxes else 0)
    dim = max(dims, key=lambda dim: len({box[0][dim] for box in boxes}), default=None)
    active: list[Box] = []
    for box in sorted(boxes, key=lambda box: 0 if dim is None else box[0][dim]):
        active = [other for other in active if dim is None or other[0][dim] + other[1][dim] > box[0][dim]]
        if clash := next((other for other in active if _share(box, other)), None):
            return clash, box
        active.append(box)
    return None


def _share(one: Box, other: Box) -> bool:
    sides = zip(*one, *other, strict=True)
    return all(a < b + b_size and b < a + a_size for a, a_size, b, b_size in sides)


def unread(metadata: Metadata, placed: Mapping[str, set[tuple[int, ...]]], world: int) -> Iterator[str]:
    """What a group of that size could not load, by torch's own read plans, of tensors cut along the first dimension.

    ``placed``: offsets of the parts that can be read, by name.
    """
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

    for name, described in metadata.state_dict_metadata.items():
        if not isinstance(described, TensorStorageMetadata):
            if name not in placed:
                yield name
            continue
        for part in _cut(tuple(described.size), world):
            items = create_read_items_for_chunk_list(name, described, [part])
            read = sum(math.prod(item.lengths) for item in items)
            held = all(tuple(item.storage_index.offset or ()) in placed.get(name, ()) for item in items)
            if read != math.prod(part.sizes) or not held:
                yield name
                break


def _cut(shape: tuple[int, ...], world: int) -> Iterator[Any]:
    """The part of each rank, as ``fully_shard`` cuts: rows in equal shares, the last ones smaller or empty."""
    import torch
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

    if not shape:
        yield ChunkStorageMetadata(torch.Size(()), torch.Size(()))
        return
    share = -(-shape[0] // world)
    for rank in range(world):
        begin = min(rank * share, shape[0])
        rows = min(share, shape[0] - begin)
        if rows:
            rest = (0,) * (len(shape) - 1)
            yield ChunkStorageMetadata(torch.Size((begin, *rest)), torch.Size((rows, *shape[1:])))
