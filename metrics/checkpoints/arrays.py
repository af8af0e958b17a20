"""Arrays whose numbers lie in files, compared as streams: memory does not grow with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from metrics.checkpoints.archive import CHUNK, LARGEST_VALUE, Layout, numbers
from metrics.checkpoints.pickled import BytesOnly, Unreadable

if TYPE_CHECKING:
    import numpy as np

NUMPY = {
    "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool",
    "complex64", "complex128",
}  # fmt: skip
"""Types that torch and numpy have in common, so that torch need not be imported for them."""


@dataclass(frozen=True)
class Array:
    """Numbers of one type and one shape; ``parts`` reads their bytes in order, in parts good until the next one.

    ``dtype``: numpy's, or torch's where numpy has none. ``sort``: what it is beside a tensor.
    """

    dtype: Any
    shape: tuple[int, ...]
    parts: Callable[[], Iterator[memoryview]]
    sort: str = ""

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        if self.sort == "bytes":
            return f"{self.numbers} bytes"
        return f"{self.sort} {str(self.dtype).removeprefix('torch.')} {self.shape}".strip()


@dataclass(frozen=True)
class Apart:
    """How two arrays of one type and shape differ: in how many numbers, and how far at most; no number: infinite.

    ``first``: the first number that differs, from 0.
    """

    odd: int = 0
    most: float = 0.0
    first: int = 0


def dtype_of(name: str) -> Any:
    """The type of that name, as torch names its own.

    Raises BytesOnly when there is none.
    """
    import numpy as np

    if name in NUMPY:
        return np.dtype(name)
    import torch

    if not isinstance(found := getattr(torch, name, None), torch.dtype):
        raise BytesOnly(f"it holds numbers of the unknown type {name}")
    return found


def raw(handle: int, begin: int, length: int) -> Array:
    """A stretch of a file as what it is: bytes."""
    return _of_layout(handle, dtype_of("uint8"), begin, (length,), (1,), "bytes")


def in_memory(dtype: Any, shape: tuple[int, ...], content: bytes, sort: str = "") -> Array:
    """An array whose bytes are at hand; they are one after the other, in order."""
    if not _sound(shape) or math.prod(shape) * dtype.itemsize != len(content):
        raise Unreadable(f"an array of shape {shape} has {len(content)} bytes")
    return Array(dtype, shape, lambda: iter((memoryview(content),)), sort)


def array(
    handle: int,
    dtype: Any,
    room: tuple[int, int],
    shape: tuple[int, ...],
    stride: tuple[int, ...] | None = None,
    offset: int = 0,
    sort: str = "",
) -> Array:
    """An array in a stretch of a file, ``room``: its first byte and its length in bytes.

    ``offset`` and ``stride`` are in numbers; without a stride the numbers lie in order.
    Raises Unreadable when it would go beyond the stretch, or has many more numbers than there are.
    """
    begin, length = room
    strides = _in_order(shape) if stride is None and _sound(shape) else stride or ()
    if not _sound((*shape, *strides, offset)) or len(strides) != len(shape):
        raise Unreadable(f"it describes an array of shape {shape} and strides {strides}")
    size = math.prod(shape) * dtype.itemsize
    last = offset + sum((count - 1) * step for count, step in zip(shape, strides, strict=True))
    if size and (last + 1) * dtype.itemsize > length:
        raise Unreadable(f"an array of shape {shape} goes beyond its {length} bytes")
    if size > max(length, LARGEST_VALUE) or dtype.itemsize > CHUNK:
        raise Unreadable(f"an array of {size} bytes is made of {length}")
    return _of_layout(handle, dtype, begin + offset * dtype.itemsize, shape, strides, sort)


def _in_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array whose numbers lie in order."""
    steps = itertools.accumulate(reversed(shape[1:]), int.__mul__, initial=1)
    return (*steps,)[::-1] if shape else ()


def _sound(sizes: tuple[Any, ...]) -> bool:
    return all(type(size) is int and 0 <= size < 1 << 62 for size in sizes)


def _of_layout(
    handle: int, dtype: Any, begin: int, shape: tuple[int, ...], stride: tuple[int, ...], sort: str
) -> Array:
    layout = Layout(cast(Any, dtype), shape, stride, begin)
    return Array(dtype, shape, lambda: numbers(handle, layout), sort)


def apart(mine: Array, control: Array) -> Apart:
    """How two arrays of one type and shape differ, bit by bit; NaN equals only NaN.

    Raises BadArchive or OSError when one cannot be read to its end.
    """
    import numpy as np

    size = mine.dtype.itemsize
    room = CHUNK - CHUNK % size
    sides = (_blocks(side.parts(), room) for side in (mine, control))
    odd, most, first, done = 0, 0.0, 0, 0
    for ours, theirs in zip(*sides, strict=True):
        one, other = (np.frombuffer(side, np.uint8).reshape(-1, size) for side in (ours, theirs))
        if not np.array_equal(one, other):
            places = np.flatnonzero((one != other).any(axis=1))
            first = first if odd else done + int(places[0])
            odd += len(places)
            most = max(most, _largest(one[places], other[places], mine.dtype))
        done += len(one)
    return Apart(odd, most, first)


def _blocks(parts: Iterator[memoryview], size: int) -> Iterator[memoryview]:
    """The same bytes in blocks of that size, the last one smaller."""
    held = bytearray()
    for part in parts:
        if not held and len(part) == size:
            yield part
            continue
        held += part
        whole = len(held) - len(held) % size
        for begin in range(0, whole, size):
            yield memoryview(bytes(held[begin : begin + size]))
        del held[:whole]
    if held:
        yield memoryview(bytes(held))


def _largest(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], dtype: Any) -> float:
    """The largest difference of numbers whose bytes differ; infinite where they are no floats."""
    import numpy as np

    first, second = _wide(one, dtype), _wide(other, dtype)
    if first is None or second is None:
        return math.inf
    with np.errstate(all="ignore"):
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        found = float(np.where(same, 0.0, np.abs(first - second)).max())
    return math.inf if math.isnan(found) else found


def _wide(rows: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any] | None:
    """Numbers in double precision; None where they are no floats. ``rows``: the bytes of each."""
    import numpy as np

    if isinstance(dtype, np.dtype):
        return rows.view(dtype).reshape(-1).astype(np.result_type(dtype, np.float64)) if dtype.kind in "fc" else None
    import torch

    if not dtype.is_floating_point or dtype.itemsize == 0:
        return None
    try:
        return torch.from_numpy(rows.copy()).view(dtype).reshape(-1).to(torch.float64).numpy()
    except RuntimeError:  # a type that torch does not convert
        return None
