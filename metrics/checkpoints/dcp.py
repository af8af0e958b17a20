"""Reading a checkpoint of torch.distributed.checkpoint from its files, without executing anything in it.

``.metadata`` is a pickle: it is read with an allow-list of the classes that torch itself puts there. Pieces are read
one at a time, each with ``weights_only``.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # importing torch takes seconds, which a command that reads no checkpoint need not wait for
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


class _Careful(pickle.Unpickler):
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


@dataclass(frozen=True)
class Piece:
    """One stored piece: its key as in records, the file it lies in, its digest, and its value if it is small."""

    key: str
    file: str
    digest: str
    value: Any


def pieces(folder: Path) -> Iterator[Piece]:
    """Every piece of a checkpoint, decoded one at a time.

    Raises BadCheckpoint when a file is missing or cut, or a piece cannot be decoded.
    """
    metadata = read_metadata(folder)
    try:
        places = sorted((metadata.storage_data or {}).items(), key=lambda item: _place(item[1]))
        for index, info in places:
            piece = _piece(folder, index, info, metadata.state_dict_metadata[index.fqn])
            if piece is not None:
                yield piece
    except BadCheckpoint:
        raise
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        raise BadCheckpoint(f"{folder / METADATA} contradicts itself: {error!r}") from error


def _piece(folder: Path, index: Any, info: Any, described: Any) -> Piece | None:
    """One piece, read and decoded; None for the empty shard of a tensor that is not empty."""
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    from chaos.digest import piece_key, tensor_digest, value_digest

    file = folder / info.relative_path
    if not file.resolve().is_relative_to(folder.resolve()):
        raise BadCheckpoint(f"{folder / METADATA} points outside the checkpoint: {info.relative_path}")
    if info.offset < 0 or info.length < 0:
        raise BadCheckpoint(f"{folder / METADATA} places {index.fqn} at {info.offset}, {info.length} bytes long")
    value = _decode(file, info.offset, info.length, index.fqn)
    if not isinstance(described, TensorStorageMetadata):
        return Piece(index.fqn, info.relative_path, value_digest(index.fqn, value), value)
    if not value.numel() and described.size.numel():
        return None
    offsets = tuple(index.offset) if index.offset is not None else (0,) * len(described.size)
    digest = tensor_digest(index.fqn, tuple(described.size), offsets, value)
    small = value if value.numel() <= 16 else None
    return Piece(piece_key(index.fqn, offsets), info.relative_path, digest, small)


def _place(info: Any) -> tuple[str, int]:
    return str(info.relative_path), int(info.offset)


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
