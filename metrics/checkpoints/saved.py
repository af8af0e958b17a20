"""What ``torch.save`` or ``pickle`` wrote, as a tree of plain values and of arrays that are read where they lie.

Nothing is executed: not even what torch's own ``weights_only`` would call.
"""

from __future__ import annotations

import io
import os
import re
import struct
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from metrics.checkpoints.arrays import Array, array, dtype_of, in_memory, raw
from metrics.checkpoints.pickled import LARGEST, BytesOnly, Call, Symbol, Unreadable, read_pickle
from metrics.checkpoints.zips import Member, members

MAGIC = 0x1950A86A20F9469CFC6C
"""The number that a file of torch's legacy format begins with, as a pickle."""

LEGACY = b"\x80\x02\x8a\x0a" + MAGIC.to_bytes(10, "little") + b"."

HOUSEKEEPING = {"version", "byteorder", ".format_version", ".storage_alignment", ".data/serialization_id"}
"""Members of an archive of torch's that hold none of the values that were saved."""

STORAGES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128", "Untyped": "uint8",
}  # fmt: skip
"""Types of numbers by the classes that torch stores them as."""


@dataclass(eq=False)
class Storage:
    """Numbers in a row, in a file: the first of their bytes, and how many bytes there are.

    ``keep``: what must live as long as it is read.
    """

    dtype: Any
    handle: int
    begin: int
    size: int
    keep: Any = None


def saved(handle: int, begin: int, length: int) -> Any:
    """The value in a stretch of a file, whether an archive, of the legacy format, or a plain pickle.

    Raises Unreadable.
    """
    head = os.pread(handle, len(LEGACY), begin)
    if head.startswith(b"PK"):
        return _archive(members(handle, begin, length))
    if head == LEGACY:
        return _legacy(handle, begin, length)
    if not head.startswith(b"\x80"):
        raise Unreadable("it does not begin as a file of torch.save or a pickle does")
    if length > LARGEST:
        raise BytesOnly(f"its pickle has {length} bytes")
    text = io.BytesIO(os.pread(handle, length, begin))
    value = read_pickle(text)
    if text.tell() != length:
        raise BytesOnly(f"{length - text.tell()} bytes follow its pickle")
    return value


def is_archive(names: Mapping[str, Any]) -> bool:
    """Whether an archive with members of these names is one of torch's."""
    return any(name.partition("/")[2] == "data.pkl" for name in names)


def _archive(found: dict[str, Member]) -> Any:
    """The names of members begin with the name of the file that was saved to, which tells nothing."""
    by_name = {name.partition("/")[2]: member for name, member in found.items()}
    if "data.pkl" not in by_name or len(by_name) < len(found):
        raise Unreadable("it is no archive of torch's")
    order = by_name["byteorder"].content(16) if "byteorder" in by_name else b"little"
    if order != b"little":
        raise BytesOnly("its numbers are in big-endian order")
    text = io.BytesIO(by_name["data.pkl"].content(LARGEST))
    value = read_pickle(text, lambda pid: _stored(by_name, pid))
    others = {name: member for name, member in by_name.items() if not _known(name)}
    if not others:
        return value
    return {"": value, **{name: raw(one.handle, one.begin, one.length) for name, one in others.items()}}


def _known(name: str) -> bool:
    return name in HOUSEKEEPING or name == "data.pkl" or name.startswith("data/")


def _stored(by_name: Mapping[str, Member], pid: Any) -> Storage:
    """The numbers that an archive's pickle refers to; on which device they were does not matter."""
    match pid:
        case ("storage", Symbol() as kind, str() as key, _, int() as count):
            member, dtype = by_name.get(f"data/{key}"), _type_of(kind)
            if member is None or member.packed or count * dtype.itemsize != member.length:
                raise Unreadable(f"its numbers data/{key} are not those that it describes")
            return Storage(dtype, member.handle, member.begin, member.length)
    raise Unreadable("its pickle refers to what is no storage")


def _type_of(kind: Symbol) -> Any:
    name = kind.name.rpartition(".")[2].removesuffix("Storage")
    if name not in STORAGES:
        raise BytesOnly(f"it stores numbers as {kind.name}")
    return dtype_of(STORAGES[name])


def _legacy(handle: int, begin: int, length: int, keep: Any = None) -> Any:
    """Pickles in a row: magic number, version, machine, the value, the order of its storages; then these themselves."""
    text = io.BytesIO(os.pread(handle, min(length, LARGEST), begin))
    storages: dict[str, Storage] = {}

    def stored(pid: Any) -> Storage:
        match pid:
            case ("storage", Symbol() as kind, str() as key, _, int() as count, None):
                dtype = _type_of(kind)
                return storages.setdefault(key, Storage(dtype, handle, 0, count * dtype.itemsize, keep))
        raise Unreadable("its pickle refers to what is no storage")

    _, version, machine = (read_pickle(text) for _ in range(3))
    if version != 1001 or not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise BytesOnly(f"it is of version {version!r}, or its numbers are in big-endian order")
    value, keys = read_pickle(text, stored), read_pickle(text)
    if type(keys) is not list or any(type(key) is not str for key in keys) or set(keys) != storages.keys():
        raise Unreadable("its storages are not those that it describes")
    at = begin + text.tell()
    for storage in (storages[key] for key in keys):
        at = _placed(storage, at, begin + length)
    return value


def _placed(storage: Storage, at: int, end: int) -> int:
    """Say where a storage lies, whose length comes before it; returns where it ends."""
    head = os.pread(storage.handle, 8, at)
    storage.begin = at + 8
    after = storage.begin + storage.size
    if len(head) < 8 or struct.unpack("<q", head)[0] * storage.dtype.itemsize != storage.size or not at < after <= end:
        raise Unreadable(f"its storage at byte {at} is not as long as it describes")
    return after


def opened(value: Any) -> Any:
    """A value with the calls that make an array carried out; any other call stays one."""
    if type(value) is Storage:
        return array(value.handle, value.dtype, (value.begin, value.size), (value.size // value.dtype.itemsize,))
    if type(value) is not Call:
        return value
    match value.what.rpartition(".")[2], value.args:
        case "_rebuild_parameter", (data, _, _):
            return opened(data)
        case "_rebuild_tensor_v2", (storage, int() as offset, shape, stride, _, _, *rest) if not any(rest):
            return _tensor(storage, None, offset, shape, stride)
        case "_rebuild_tensor_v3", (storage, int() as offset, shape, stride, _, _, Symbol() as dtype, *rest) if not any(
            rest
        ):
            return _tensor(storage, dtype_of(dtype.name.removeprefix("torch.")), offset, shape, stride)
        case (("_reconstruct" | "_frombuffer" | "scalar"), _) if value.what.startswith("numpy."):
            return _numpy(value) or value
    return value


def _tensor(storage: Any, dtype: Any, offset: int, shape: Any, stride: Any) -> Array:
    """A view of a storage; one within a plain pickle is itself a file of the legacy format."""
    match storage:
        case Call("torch.storage._load_from_bytes", (bytes() as content,)):
            file = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the storage)
            file.write(content)
            file.flush()
            storage = _legacy(file.fileno(), 0, len(content), file)
    if type(storage) is not Storage or type(shape) is not tuple or type(stride) is not tuple:
        raise Unreadable("it describes a tensor of something else than numbers")
    made = array(storage.handle, dtype or storage.dtype, (storage.begin, storage.size), shape, stride, offset)
    return Array(made.dtype, made.shape, partial(_parts, storage, made))


def _parts(storage: Storage, made: Array) -> Iterator[memoryview]:
    """The bytes of an array; its storage, which goes along, keeps the file open."""
    yield from made.parts()


def _numpy(value: Call) -> Array | None:
    """An array of numpy's, or a number of its; None where it is none of plain numbers."""
    match value.what.rpartition(".")[2], value.args, value.state:
        case "_reconstruct", _, (1, tuple() as shape, kind, bool() as fortran, bytes() as content):
            order = "F" if fortran and len(shape) > 1 else "C"
        case "_frombuffer", (bytes() as content, kind, tuple() as shape, str() as order), None:
            pass
        case "scalar", (kind, bytes() as content), None:
            shape, order = (), "C"
        case _:
            return None
    dtype = _numpy_type(kind)
    if dtype is None:
        return None
    made = in_memory(dtype, shape, content, "numpy")
    if order == "C":
        return made
    import numpy as np

    turned = np.frombuffer(content, dtype).reshape(shape, order="F").tobytes()
    return in_memory(dtype, shape, turned, "numpy")


def _numpy_type(kind: Any) -> Any:
    """The type of an array's numbers; None for any but numbers, whose values need more than their bytes."""
    import numpy as np

    match kind:
        case Call("numpy.dtype", (str() as code, *_), (_, str() as order, *_)) if re.fullmatch(r"[biufc]\d{1,2}", code):
            try:
                return np.dtype((order if order in "<>" else "") + code)
            except TypeError:
                return None
    return None
