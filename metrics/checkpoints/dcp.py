"""Reading a checkpoint of torch.distributed.checkpoint from its files, without executing anything in it.

``.metadata`` is a pickle: it is read with an allow-list of the classes that torch itself puts there. Values are read
one at a time, each with ``weights_only``, and put together of their pieces.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # importing torch takes seconds, which a command that reads no checkpoint need not wait for
    import torch
    from torch.distributed.checkpoint.metadata import Metadata

METADATA = ".metadata"

ALLOWED = {
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StorageMeta"},
    "torch.serialization": {"_get_layout"},
    "pathlib": {"PosixPath", "PurePosixPath", "Path"},
    "collections": {"OrderedDict"},
}


class BadCheckpoint(Exception):
    """The files are no complete, readable checkpoint; the message names the file and what is wrong with it."""


class _Careful(pickle._Unpickler):
    """Looks up only what is allowed.

    The unpickler in Python, for the one in C reserves whatever memory a hostile pickle claims to need.
    """

    def find_class(self, module: str, name: str) -> Any:
        import torch

        if name in ALLOWED.get(module, ()):
            return super().find_class(module, name)
        if module == "torch" and (name == "Size" or isinstance(getattr(torch, name, None), torch.dtype)):
            return getattr(torch, name)
        raise BadCheckpoint(f"{METADATA} asks for {module}.{name}, which no torch checkpoint needs")


def read_metadata(folder: Path) -> Metadata:
    """The metadata of a checkpoint directory.

    Raises BadCheckpoint when it is absent, cut, foreign or hostile.
    """
    from torch.distributed.checkpoint.metadata import Metadata

    file = folder / METADATA
    if not file.exists():
        raise BadCheckpoint(f"{file} is missing: the save never finished, or this is no DCP checkpoint")
    try:
        found = _Careful(io.BytesIO(file.read_bytes())).load()
    except BadCheckpoint:
        raise
    except Exception as error:
        raise BadCheckpoint(f"{file} cannot be read: {error!r}") from error
    if not isinstance(found, Metadata):
        raise BadCheckpoint(f"{file} holds a {type(found).__name__}, not the metadata of a checkpoint")
    return found


@contextmanager
def coherent(folder: Path) -> Iterator[None]:
    """What goes wrong within, by what the metadata say, is the checkpoint's fault."""
    try:
        yield
    except BadCheckpoint:
        raise
    except (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise BadCheckpoint(f"{folder / METADATA} contradicts itself: {error!r}") from error


class Stored:
    """A checkpoint directory whose values are read by name, whole, one at a time.

    Raises BadCheckpoint, as all its methods, when the files are no complete, readable checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        metadata = read_metadata(folder)
        self._places: dict[str, list[tuple[Any, Any]]] = {}
        with coherent(folder):
            self._described = dict(metadata.state_dict_metadata)
            for index, info in (metadata.storage_data or {}).items():
                self._places.setdefault(index.fqn, []).append((index, info))
            if foreign := sorted(self._places.keys() - self._described.keys()):
                raise BadCheckpoint(f"{folder / METADATA} places {foreign[0]}, which it does not describe")

    @property
    def names(self) -> list[str]:
        """Names of all values, sorted."""
        with coherent(self.folder):
            return sorted(self._described)

    def value(self, name: str) -> Any:
        """One value: a tensor, put together of all its pieces, or a plain value."""
        from torch.distributed.checkpoint.metadata import TensorStorageMetadata

        with coherent(self.folder):
            described = self._described[name]
            found = [(index, _read(self.folder, index, info)) for index, info in self._places.get(name, ())]
            if isinstance(described, TensorStorageMetadata):
                pieces = [(_offsets(index, described), piece) for index, piece in found]
                return _whole(self.folder / METADATA, name, described, pieces)
            ((_, value),) = found
            return value


def _whole(file: Path, name: str, described: Any, pieces: list[tuple[tuple[int, ...], Any]]) -> torch.Tensor:
    """A tensor of all its pieces, which must cover it without overlap; each comes with the offsets of its first number.

    The numbers are counted before room is made for them: metadata may claim any size.
    """
    import torch

    numbers = sum(piece.numel() for _, piece in pieces)
    if numbers != described.size.numel():
        raise BadCheckpoint(f"{file}: the pieces of {name} hold {numbers} of {described.size.numel()} numbers")
    whole = torch.empty(described.size, dtype=described.properties.dtype)
    filled = torch.zeros(described.size, dtype=torch.bool)
    for offsets, piece in ((offsets, piece) for offsets, piece in pieces if piece.numel()):
        place = tuple(slice(begin, begin + length) for begin, length in zip(offsets, piece.shape, strict=True))
        if whole[place].shape != piece.shape or piece.dtype != whole.dtype or filled[place].any():
            raise BadCheckpoint(f"{file}: the pieces of {name} do not fit together at {offsets}")
        whole[place], filled[place] = piece, True
    return whole


def _offsets(index: Any, described: Any) -> tuple[int, ...]:
    """Where a piece begins in its tensor; one without offsets is the whole of it."""
    return tuple(index.offset) if index.offset is not None else (0,) * len(described.size)


def _read(folder: Path, index: Any, info: Any) -> Any:
    """What is stored at one place, decoded."""
    file = folder / info.relative_path
    if not file.resolve().is_relative_to(folder.resolve()):
        raise BadCheckpoint(f"{folder / METADATA} points outside the checkpoint: {info.relative_path}")
    if info.offset < 0 or info.length < 0:
        raise BadCheckpoint(f"{folder / METADATA} places {index.fqn} at {info.offset}, {info.length} bytes long")
    return _decode(file, info.offset, info.length, index.fqn)


def _decode(file: Path, offset: int, length: int, name: str) -> Any:
    import torch

    if not file.exists():
        raise BadCheckpoint(f"{file} is missing; it should hold {name}")
    with file.open("rb") as stream:
        stream.seek(offset)
        text = stream.read(length)
    if len(text) < length:
        raise BadCheckpoint(f"{file} is cut short: {name} should end at byte {offset + length}")
    try:
        return torch.load(io.BytesIO(text), map_location="cpu", weights_only=True)
    except Exception as error:
        raise BadCheckpoint(f"{file}: {name} cannot be decoded: {error!r}") from error
