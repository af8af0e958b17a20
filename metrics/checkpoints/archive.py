"""One stored value as ``torch.save`` writes it: an uncompressed zip archive, here within a shard file.

torch itself decodes it, but for a tensor's numbers and executing nothing. Numbers are read as a stream where they lie,
so that memory does not grow with tensors.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch

CHUNK = 1 << 20
"""Bytes that are read at a time: large enough to hash at full speed, small enough for the cache of a core."""

LARGEST_VALUE = 64 << 20
"""Bytes of a plain value beyond which it is not decoded: decoding takes memory."""

HOSTILE = ("nt", "os", "posix", "subprocess", "sys")
"""Modules that a stored value has no business with."""


class BadArchive(Exception):
    """The bytes are no value as ``torch.save`` writes it; the message says why."""


class Undecided(Exception):
    """The value cannot be judged: decoding it would execute what it asks for, or take too much memory."""


@dataclass(frozen=True)
class Record:
    """One record of an archive: its first byte in the file, its length in bytes, its CRC-32 (0: none was recorded)."""

    name: str
    begin: int
    length: int
    crc: int


@dataclass(frozen=True)
class Layout:
    """A stored tensor: its type, its shape and strides in numbers, and the first of its bytes in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    begin: int

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """How many bytes its numbers have."""
        return self.numbers * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether its numbers lie one after the other, in the order of its dimensions."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size != 1 and stride != step:
                return self.numbers == 0
            step *= size
        return True


class Archive:
    """The archive at ``begin`` of an open file, ``length`` bytes long.

    It is opened by torch's own reader, so that what torch would refuse is refused here.
    Raises BadArchive, as all its methods, when the bytes are no such archive.
    """

    def __init__(self, handle: int, begin: int, length: int) -> None:
        import torch

        self._length = length
        small = length <= CHUNK
        self._window = io.BytesIO(os.pread(handle, length, begin)) if small else Window(handle, begin, length)
        try:
            self._reader = reader = cast(Any, torch._C).PyTorchFileReader(self._window)
            names = reader.get_all_records()
            self._places = {n: (begin + reader.get_record_offset(n), reader.get_record_size(n)) for n in names}
        except (RuntimeError, ValueError) as error:
            raise BadArchive(f"its archive cannot be read: {_line(error)}") from error
        if any(first + size > begin + length for first, size in self._places.values()):
            raise BadArchive("a record goes beyond its archive")
        self._sums = self._checksums()

    def _checksums(self) -> dict[str, int]:
        """The checksum recorded for each record; each is opened, for torch's reader opens none before it reads it."""
        found = {}
        try:
            with zipfile.ZipFile(self._window) as archive:
                for info in archive.infolist():
                    archive.open(info).close()
                    found[info.filename.partition("/")[2]] = info.CRC
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, struct.error) as error:
            raise BadArchive(f"its archive cannot be read: {_line(error)}") from error
        return found

    def records(self, *, numbers: bool = True) -> tuple[Record, ...]:
        """All records, or all but a tensor's numbers, with the checksums that torch recorded for them."""
        wanted = (name for name in self._places if numbers or not name.startswith("data/"))
        return tuple(Record(name, *self._places[name], self._sums.get(name, 0)) for name in wanted)

    def value(self) -> Any:
        """What is stored, decoded.

        Raises Undecided when that would execute something, or take too much memory.
        """
        if self._length > LARGEST_VALUE:
            raise Undecided(f"it is a plain value of {self._length} bytes, too long to decode in bounded memory")
        return self._load()

    def _load(self) -> Any:
        import torch

        self._window.seek(0)
        try:
            return torch.load(cast(IO[bytes], self._window), map_location="cpu", weights_only=True)
        except Exception as error:
            raise self._undecoded(error) from error

    def _undecoded(self, error: Exception) -> BadArchive | Undecided:
        """Why it could not be decoded: it is broken, hostile, or of a class that would have to be executed."""
        from torch.serialization import get_unsafe_globals_in_checkpoint

        self._window.seek(0)
        try:
            asked = get_unsafe_globals_in_checkpoint(cast(IO[bytes], self._window))
        except Exception:
            asked = []
        if hostile := [name for name in asked if name.split(".")[0] in HOSTILE]:
            return BadArchive(f"it asks for {hostile[0]}, which no checkpoint needs")
        if asked:
            return Undecided(f"only executing {asked[0]} could decode it")
        if isinstance(error, (MemoryError, RecursionError)) or "can't allocate memory" in str(error):
            return Undecided(f"decoding it takes too much memory: {_line(error)}")
        return BadArchive(f"it cannot be decoded: {_line(error)}")

    def layout(self) -> Layout:
        """Where and how the tensor lies that this archive holds; its numbers are not read.

        Raises Undecided when only executing code of others could decode it.
        """
        import torch

        with torch.serialization.skip_data():
            found = self._load()
        if not isinstance(found, torch.Tensor):
            raise BadArchive(f"it holds a {type(found).__name__}, not a tensor")
        if found.layout is not torch.strided or type(found) not in (torch.Tensor, torch.nn.Parameter):
            raise Undecided(f"it is a {type(found).__name__} of layout {found.layout}")
        if found.is_quantized or found.is_conj() or found.is_neg():
            raise Undecided("its numbers are not stored as they are")
        if [name for name in self._places if name.startswith("data/")] != ["data/0"]:
            raise BadArchive("it holds other numbers than those of one tensor")
        first, size = self._places["data/0"]
        if size != found.untyped_storage().nbytes():
            raise BadArchive("its numbers are not those that it describes")
        if self._reader.has_record("byteorder") and self._reader.get_record("byteorder") != b"little":
            raise Undecided("its numbers are in big-endian order")
        begin = first + int(found.storage_offset()) * found.dtype.itemsize
        layout = Layout(found.dtype, tuple(found.shape), found.stride(), begin)
        if layout.size > max(size, LARGEST_VALUE):
            raise Undecided(f"its {layout.size} bytes are made of {size}")
        return layout


def _line(error: Exception) -> str:
    return (str(error) or repr(error)).splitlines()[0]


def spoilt(handle: int, records: Iterable[Record]) -> str:
    """The first record whose bytes do not have the checksum recorded for them; empty for none."""
    for record in records:
        crc = 0
        for part in stream(handle, record.begin, record.length) if record.crc else ():
            crc = zlib.crc32(part, crc)
        if crc != record.crc:
            return record.name
    return ""


def numbers(handle: int, layout: Layout) -> Iterator[memoryview]:
    """The bytes of a tensor's numbers in the order of its dimensions, in parts that are good until the next one."""
    return stream(handle, layout.begin, layout.size) if layout.contiguous else _gathered(handle, layout)


def stream(handle: int, begin: int, length: int) -> Iterator[memoryview]:
    """The bytes of a file from there on, in parts that are good until the next one.

    Raises BadArchive when the file ends before.
    """
    room = memoryview(bytearray(min(length, CHUNK)))
    while length > 0:
        got = os.preadv(handle, [room[: min(length, CHUNK)]], begin)
        if not got:
            raise BadArchive(f"the file ends at byte {begin}, {length} bytes too early")
        yield room[:got]
        begin, length = begin + got, length - got


def _gathered(handle: int, layout: Layout) -> Iterator[memoryview]:
    """The same for a tensor whose numbers do not lie in order."""
    import numpy as np

    size = layout.dtype.itemsize
    with os.fdopen(os.dup(handle), "rb") as file:
        whole = np.memmap(file, np.uint8, mode="r")
    strides = (*(stride * size for stride in layout.stride), 1)
    view = np.lib.stride_tricks.as_strided(whole[layout.begin :], (*layout.shape, size), strides, writeable=False)
    return _blocks(view)


def _blocks(view: Any) -> Iterator[memoryview]:
    """The bytes of an array in order, in blocks that are small enough."""
    import numpy as np

    rows = CHUNK // max(1, view.nbytes // view.shape[0])
    if view.nbytes > CHUNK and not rows and view.ndim > 1:
        for row in view:
            yield from _blocks(row)
        return
    for first in range(0, view.shape[0], max(1, rows)):
        yield np.ascontiguousarray(view[first : first + max(1, rows)]).reshape(-1).data


class Window(io.RawIOBase):
    """A part of a file as a file of its own; the open file's own position is left alone."""

    def __init__(self, handle: int, begin: int, length: int) -> None:
        self._handle, self._begin, self._length, self._at = handle, begin, length, 0

    def seekable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position, which may lie beyond the end; negative ones are refused with ValueError."""
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence] + offset
        if self._at < 0:
            raise ValueError(f"position {self._at}")
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the position on; returns how many bytes there were."""
        room = memoryview(buffer)[: max(0, self._length - self._at)]
        got = os.preadv(self._handle, [room], self._begin + self._at) if len(room) else 0
        self._at += got
        return got
