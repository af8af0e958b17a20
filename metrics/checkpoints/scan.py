"""Reading every piece of a checkpoint once, as a stream: can it be decoded, and what is its digest?

Pieces are described one after the other, which is work for Python; their bytes are then read in parallel, which is not.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from metrics.checkpoints.archive import Archive, BadArchive, Layout, Record, Undecided, numbers, spoilt
from metrics.checkpoints.dcp import BadCheckpoint, read_metadata
from metrics.checkpoints.layout import Place, places_of

BATCH = 64 << 20
"""Bytes of one file that one thread reads in a go."""


@dataclass(frozen=True)
class Looked:
    """What was found of one piece: its digest, or what is wrong with it, or why that cannot be told.

    ``records``: the records of its archive, where checksums are asked for; ``checksummed``: whether they all had one,
    and the right one. ``layout``: where the numbers of a tensor lie.
    """

    place: Place
    digest: str = ""
    flaw: str = ""
    undecided: str = ""
    layout: Layout | None = None
    records: tuple[Record, ...] = ()
    checksummed: bool = False


def scan(
    folder: Path,
    places: list[Place],
    *,
    digests: bool,
    checksums: bool,
    told: Callable[[int], None] = lambda size: None,
) -> list[Looked]:
    """Look at every piece, in order.

    ``told`` is told how many bytes were just read, by several threads.
    """
    groups = itertools.groupby(places, key=lambda place: place.file)
    described = [one for file, group in groups for one in _described(folder / file, list(group), digests, checksums)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        batches = list(_batches(described))
        looked = pool.map(lambda batch: _read(folder, batch, digests, told), batches)
        return [one for found in looked for one in found]


class Unjudged(BadCheckpoint):
    """A piece may be whole, but only executing it, or too much memory, could tell."""


def pieces(folder: Path) -> list[Looked]:
    """Every piece of a checkpoint with its digest, but the empty shards of tensors that are not empty.

    Raises BadCheckpoint when one cannot be read or decoded, and Unjudged when only executing it could tell.
    """
    looked = scan(folder, places_of(folder, read_metadata(folder)), digests=True, checksums=False)
    if odd := next((one for one in looked if not one.digest), None):
        kind = BadCheckpoint if odd.flaw else Unjudged
        raise kind(f"{folder / odd.place.file}: {odd.place.name}: {odd.flaw or odd.undecided}")
    return [one for one in looked if one.place.counts]


def _described(file: Path, places: list[Place], digests: bool, checksums: bool) -> list[Looked]:
    if not file.is_file():
        return [Looked(place, flaw="its file is missing") for place in places]
    try:
        handle = os.open(file, os.O_RDONLY)
    except OSError as error:
        return [Looked(place, flaw=f"its file cannot be opened: {error}") for place in places]
    try:
        return [_look(handle, place, digests, checksums) for place in places]
    finally:
        os.close(handle)


def _look(handle: int, place: Place, digests: bool, checksums: bool) -> Looked:
    """Decode a plain value, or describe a tensor."""
    from chaos.digest import value_digest

    try:
        archive = _opened(handle, place)
        if place.shape is not None:
            # A digest stands for the checksum of a tensor's numbers, but for nothing else that torch reads.
            records = archive.records(numbers=checksums)
            return Looked(place, layout=_fitting(archive.layout(), place), records=records)
        value = archive.value()
        return Looked(place, value_digest(place.name, value) if digests else "", records=archive.records())
    except Undecided as error:
        return Looked(place, undecided=str(error))
    except (RecursionError, UnicodeError, ValueError) as error:
        return Looked(place, undecided=f"it has no digest: {error!r}")
    except (BadArchive, OSError) as error:
        return Looked(place, flaw=str(error))


def _opened(handle: int, place: Place) -> Archive:
    if place.transformed:
        raise Undecided("it was compressed or otherwise changed on its way to storage")
    if place.begin < 0 or place.length <= 0:
        raise BadArchive(f"it is placed at byte {place.begin}, {place.length} bytes long")
    if (size := os.fstat(handle).st_size) < place.end:
        raise BadArchive(f"its file is cut short at byte {size}; it should end at byte {place.end}")
    return Archive(handle, place.begin, place.length)


def _fitting(layout: Layout, place: Place) -> Layout:
    if layout.dtype != place.dtype or layout.shape != place.sizes:
        stored = f"{layout.dtype} of shape {layout.shape}"
        raise BadArchive(f"it is a tensor of {stored}; the metadata say {place.dtype} of shape {place.sizes}")
    return layout


def _batches(described: list[Looked]) -> Iterator[list[Looked]]:
    """Pieces of one file that lie behind each other, about as many as a batch takes."""
    batch: list[Looked] = []
    for one in described:
        first = batch[0].place if batch else one.place
        if one.place.file != first.file or one.place.end - first.begin > BATCH:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


def _read(folder: Path, batch: list[Looked], digests: bool, told: Callable[[int], None]) -> list[Looked]:
    """Read the bytes of all pieces of a batch that could be described."""
    if all(one.flaw or one.undecided for one in batch):
        return batch
    found = []
    try:
        handle = os.open(folder / batch[0].place.file, os.O_RDONLY)
    except OSError as error:
        return [replace(one, digest="", flaw=f"its file cannot be opened: {error}") for one in batch]
    try:
        for one in batch:
            found.append(one if one.flaw or one.undecided else _streamed(handle, one, digests))
            told(max(0, one.place.length))
        return found
    finally:
        os.close(handle)


def _streamed(handle: int, one: Looked, digests: bool) -> Looked:
    """A described piece with its digest and its checksums."""
    from chaos.digest import numbers_digest

    place, layout, digest = one.place, one.layout, one.digest
    try:
        if digests and layout and place.shape is not None:
            parts = numbers(handle, layout)
            digest = numbers_digest(place.name, layout.dtype, place.shape, place.offsets, layout.shape, parts)
        if bad := spoilt(handle, one.records):
            return replace(one, flaw=f"the checksum of its record {bad} is wrong")
    except (BadArchive, OSError) as error:
        return replace(one, flaw=str(error))
    checksummed = all(record.crc or not record.length for record in one.records)
    return replace(one, digest=digest, checksummed=checksummed)
