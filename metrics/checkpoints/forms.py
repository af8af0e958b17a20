"""The forms in which a file of a checkpoint holds values, told by its content, and how each is read."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, cast

from metrics.checkpoints.archive import CHUNK, BadArchive, Window
from metrics.checkpoints.arrays import Array, array, dtype_of, raw
from metrics.checkpoints.pickled import BytesOnly, Unreadable
from metrics.checkpoints.saved import LEGACY, is_archive, saved
from metrics.checkpoints.zips import Member, members

LARGEST_TEXT = 8 << 20
"""Bytes of JSON beyond which it is not read by value: what it says is held in memory."""

TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
"""Types of numbers by their names in safetensors."""


@dataclass(frozen=True)
class File:
    """An open file: its name in the checkpoint, and its length in bytes."""

    name: str
    handle: int
    size: int


def form_of(file: File) -> str:
    """What a file holds: torch.save, safetensors, numpy, pickle, JSON, zip; empty for anything else."""
    head = os.pread(file.handle, len(LEGACY), 0)
    if head.startswith(b"PK\x03\x04"):
        return _form_of_zip(file)
    if head == LEGACY:
        return "torch.save"
    if head.startswith(b"\x93NUMPY"):
        return "numpy"
    if len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5:
        return "pickle"
    endings = {".safetensors": "safetensors", ".json": "JSON", ".jsonl": "JSON"}
    return next((form for ending, form in endings.items() if file.name.endswith(ending)), "")


def _form_of_zip(file: File) -> str:
    try:
        names = members(file.handle, 0, file.size)
    except Unreadable:
        return "zip"
    if is_archive(names):
        return "torch.save"
    return "numpy" if names and all(name.endswith(".npy") for name in names) else "zip"


def values(file: File, form: str) -> Any:
    """What a file of that form holds, as a tree of plain values and arrays.

    Raises Unreadable.
    """
    match form:
        case "torch.save" | "pickle":
            return saved(file.handle, 0, file.size)
        case "safetensors":
            return _safetensors(file)
        case "numpy":
            return _numpy(file)
        case "JSON":
            return _text(file, 0, file.size, lines=file.name.endswith(".jsonl"))
        case "zip":
            return _members(file)
    return content(file)


def content(file: File) -> Any:
    """A file as bytes: those of each member of an archive, else those of the whole file."""
    if os.pread(file.handle, 4, 0) == b"PK\x03\x04":
        try:
            return _members(file)
        except Unreadable:
            pass
    return raw(file.handle, 0, file.size)


def _members(file: File) -> dict[str, Array]:
    """The bytes of each member. What torch saves begins each name with that of the file, which is left out."""
    found = members(file.handle, 0, file.size)
    named = {name.partition("/")[2]: one for name, one in found.items()} if is_archive(found) else found
    return {name: Array(dtype_of("uint8"), (one.size,), one.parts, "bytes") for name, one in named.items()}


def _safetensors(file: File) -> dict[str, Any]:
    """Eight bytes say how long the header is, which is JSON and says where each tensor lies behind it."""
    head = os.pread(file.handle, 8, 0)
    if len(head) < 8:
        raise Unreadable(f"it is cut short at byte {file.size}")
    (length,) = struct.unpack("<Q", head)
    if length > file.size - 8:
        raise Unreadable(f"its header claims to have {length} bytes, the file has {file.size}")
    header = _text(file, 8, length)
    if type(header) is not dict:
        raise Unreadable("its header is no table of tensors")
    begin = 8 + length
    tensors = {name: what for name, what in header.items() if name != "__metadata__"}
    found = {name: _tensor(file, begin, name, what) for name, what in tensors.items()}
    return found | {name: header[name] for name in header if name == "__metadata__"}


def _tensor(file: File, begin: int, name: str, what: Any) -> Array:
    match what:
        case {"dtype": str() as kind, "shape": list() as shape, "data_offsets": [int() as first, int() as end]}:
            if kind not in TYPES:
                raise BytesOnly(f"its tensor {name} is of the unknown type {kind}")
            if not 0 <= first <= end <= file.size - begin:
                raise Unreadable(f"its header places {name} at byte {first} to {end}")
            made = array(file.handle, dtype_of(TYPES[kind]), (begin + first, end - first), tuple(shape))
            if made.numbers * made.dtype.itemsize != end - first:
                raise Unreadable(f"its header gives {name} {end - first} bytes and the shape {made.shape}")
            return made
    raise Unreadable(f"its header does not describe {name}")


def _numpy(file: File) -> Any:
    if os.pread(file.handle, 2, 0) != b"PK":
        return _npy(Window(file.handle, 0, file.size), file.handle, 0, file.size)
    return {name.removesuffix(".npy"): _npz(one) for name, one in members(file.handle, 0, file.size).items()}


def _npz(member: Member) -> Array:
    if not member.packed:
        return _npy(Window(member.handle, member.begin, member.length), member.handle, member.begin, member.length)
    with _Stream(member) as stream:
        shape, fortran, dtype = _npy_header(stream)
        skip = stream.taken
    if fortran:
        raise BytesOnly(f"its packed member {member.name} is an array whose first dimension runs fastest")
    if math.prod(shape) * dtype.itemsize != member.size - skip:
        raise Unreadable(f"its packed member {member.name} is not the array that it describes")
    return Array(dtype, shape, lambda: _after(member.parts(), skip), "numpy")


class _Stream:
    """The first bytes of a packed member, as a file to read from."""

    def __init__(self, member: Member) -> None:
        self._parts, self._held, self.taken = member.parts(), b"", 0

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *error: object) -> None:
        cast(Any, self._parts).close()

    def read(self, size: int) -> bytes:
        """As many bytes, fewer at the end."""
        size = min(size, CHUNK)
        while len(self._held) < size and (part := next(self._parts, None)):
            self._held += part
        found, self._held = self._held[:size], self._held[size:]
        self.taken += len(found)
        return found


def _after(parts: Iterator[memoryview], skip: int) -> Iterator[memoryview]:
    for part in parts:
        yield part[skip:] if skip < len(part) else part[:0]
        skip = max(0, skip - len(part))


def _npy(stream: Window, handle: int, begin: int, length: int) -> Array:
    shape, fortran, dtype = _npy_header(stream)
    skip = stream.tell()
    strides = None
    if fortran:
        strides = tuple(math.prod(shape[:dim]) for dim in range(len(shape)))
    return array(handle, dtype, (begin + skip, length - skip), shape, strides, sort="numpy")


def _npy_header(stream: Any) -> tuple[tuple[int, ...], bool, Any]:
    """Shape, whether the first dimension runs fastest, and type of the numbers; any but plain ones need a pickle."""
    from numpy.lib import format as npy

    try:
        version = npy.read_magic(cast(BinaryIO, stream))
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(cast(BinaryIO, stream))
    except (ValueError, OSError, BadArchive, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise Unreadable(f"it is no array of numpy's: {error}") from error
    if dtype.hasobject or not dtype.itemsize:
        raise BytesOnly("it holds an array of objects, which only executing a pickle could make")
    return shape, fortran, dtype


def _text(file: File, begin: int, length: int, *, lines: bool = False) -> Any:
    """A stretch of a file as JSON, or as a list of it, one a line."""
    if length > LARGEST_TEXT:
        raise BytesOnly(f"its text has {length} bytes")
    text = os.pread(file.handle, length, begin)
    try:
        return [json.loads(line) for line in islice(text.splitlines(), LARGEST_TEXT)] if lines else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is no JSON: {error}") from error
