"""Reading a checkpoint of torch.distributed.checkpoint from its files, without executing anything in it.

``.metadata`` is a pickle: it is read with an allow-list of the classes that torch itself puts there. Values are read
one at a time, each with ``weights_only``, and put together of their pieces.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

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
    "collections": {"OrderedDict"},
}


PATHS = {"Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"}
"""Classes of ``pathlib``, of any version of Python, that may be asked for; all are read as one that touches no disk."""


class BadCheckpoint(Exception):
    """The files are no complete, readable checkpoint; the message names the file and what is wrong with it."""


_BUILD: Any = pickle._Unpickler.dispatch[pickle.BUILD[0]]


class _Careful(pickle._Unpickler):
    """Looks up only what is allowed, changes no class, and reads nothing that torch's own reader would refuse.

    The unpickler in Python, for the one in C reserves whatever memory a hostile pickle claims to need.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]
    read: Callable[[int], bytes]
    pop_mark: Callable[[], list[Any]]
    _unframer: Any

    def __init__(self, text: bytes) -> None:
        self._text = io.BytesIO(text)
        self._length = len(text)
        super().__init__(self._text)

    def find_class(self, module: str, name: str) -> Any:
        import torch

        if name in ALLOWED.get(module, ()):
            return super().find_class(module, name)
        if module in ("pathlib", "pathlib._local") and name in PATHS:
            return PurePosixPath
        if module == "torch" and (name == "Size" or isinstance(getattr(torch, name, None), torch.dtype)):
            return getattr(torch, name)
        raise BadCheckpoint(f"{METADATA} asks for {module}.{name}, which no torch checkpoint needs")

    def load_frame(self) -> None:
        """A frame must be there as a whole: the unpickler in C refuses one that is not, the one in Python does not."""
        (size,) = struct.unpack("<Q", self.read(8))
        if size > self._length - self._text.tell():
            raise pickle.UnpicklingError("pickle data was truncated")
        self._unframer.load_frame(size)

    def load_build(self) -> None:
        """Give an object its state; a class or a function, which all others would share, gets none."""
        if callable(self.stack[-2]):
            raise BadCheckpoint(f"{METADATA} changes {self.stack[-2]!r}")
        _BUILD(self)

    def load_setitem(self) -> None:
        """Put one item into a dict."""
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1][_key(key)] = value

    def load_setitems(self) -> None:
        """Put several items into a dict."""
        items = self.pop_mark()
        self.stack[-1].update((_key(key), value) for key, value in zip(items[::2], items[1::2], strict=True))

    dispatch[pickle.FRAME[0]] = load_frame
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    del dispatch[pickle.BYTEARRAY8[0]]


def _key(key: Any) -> Any:
    """A key of a dict as torch has them; hashing any other could take for ever."""
    from torch.distributed.checkpoint.metadata import MetadataIndex

    parts = (key.fqn, *(key.offset or ()), key.index) if type(key) is MetadataIndex else (key,)
    if not all(part is None or type(part) in (str, int) for part in parts):
        raise BadCheckpoint(f"{METADATA} has a {type(key).__name__} as a key")
    return key


def read_metadata(folder: Path) -> Metadata:
    """The metadata of a checkpoint directory.

    Raises BadCheckpoint when it is absent, cut, foreign or hostile.
    """
    from torch.distributed.checkpoint.metadata import Metadata

    file = folder / METADATA
    if not file.exists():
        raise BadCheckpoint(f"{file} is missing: the save never finished, or this is no DCP checkpoint")
    try:
        if not file.is_file():
            raise BadCheckpoint(f"{file} cannot be read: it is no regular file")
        found = _Careful(file.read_bytes()).load()
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
    file = folder / inside(folder, info.relative_path)
    if info.offset < 0 or info.length < 0:
        raise BadCheckpoint(f"{folder / METADATA} places {index.fqn} at {info.offset}, {info.length} bytes long")
    return _decode(file, info.offset, info.length, index.fqn)


def inside(folder: Path, name: Any) -> str:
    """The name of a file of the checkpoint, which may itself be a link.

    Raises BadCheckpoint when it is none, or leads out of the directory.
    """
    if type(name) is not str:
        raise BadCheckpoint(f"{folder / METADATA} names a {type(name).__name__} as file")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise BadCheckpoint(f"{folder / METADATA} points outside the checkpoint: {name}")
    return name


def _decode(file: Path, offset: int, length: int, name: str) -> Any:
    import torch

    if not file.is_file():
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
