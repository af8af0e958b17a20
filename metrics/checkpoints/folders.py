"""The files of a checkpoint folder, found and opened with care: links may lead out of it, and names may be anything."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from metrics.checkpoints.dcp import BadCheckpoint
from metrics.checkpoints.forms import File

LOGS = "events.out.tfevents.*"
"""Files that are passed over: their names and every entry hold times and the name of the machine."""


def files_of(folder: Path) -> dict[str, Path]:
    """Everything in a folder that is no folder itself, by its name from there, sorted; a file is all that it holds.

    Raises BadCheckpoint when a folder cannot be listed.
    """
    if not folder.is_dir():
        return {folder.name: folder}

    def refuse(error: OSError) -> None:
        raise BadCheckpoint(f"{error.filename} cannot be read: {error.strerror}")

    found = {}
    for place, below, names in os.walk(folder, onerror=refuse):
        links = [name for name in below if (Path(place) / name).is_symlink()]
        for path in (Path(place) / name for name in (*names, *links)):
            if not fnmatch(path.name, LOGS):
                found[path.relative_to(folder).as_posix()] = path
    return dict(sorted(found.items()))


@contextmanager
def opened_file(folder: Path, name: str, path: Path) -> Iterator[File]:
    """A regular file of a checkpoint, open for reading.

    Raises BadCheckpoint when it is none, cannot be read, or is a link out of the checkpoint.
    """
    root = folder if folder.is_dir() else folder.parent
    try:
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            raise BadCheckpoint(f"{path} is a link that leads out of the checkpoint")
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, RuntimeError) as error:
        raise BadCheckpoint(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise BadCheckpoint(f"{path} cannot be read: it is no regular file")
        yield File(name, handle, status.st_size)
    finally:
        os.close(handle)
