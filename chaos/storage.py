"""What a run of a user's script leaves in the user's storage is moved away, so that nothing resumes from it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path

MARKER = ".validate_storage_marker"
"""The file by which Ray Train tries whether it can write to a storage."""


def listed(folder: Path) -> list[str]:
    """The names of what lies in a folder, in a spelling that JSON can hold; none where there is no folder.

    Raises OSError where it cannot be looked into.
    """
    return sorted(_spelt(name) for name in os.listdir(folder)) if folder.is_dir() else []


def take_in(experiment: Path, found: Collection[str], into: Path, until_s: float | None = None) -> None:
    """Move what has come into an experiment directory since a job's start below a folder; ``found`` was there before.

    ``until_s``: what was written to after that time, in seconds since the epoch, is another job's and stays. An
    experiment directory that is empty then goes too. Raises OSError where something cannot be moved.
    """
    if not experiment.is_dir():
        return
    into.mkdir(parents=True, exist_ok=True)
    for name in sorted(os.listdir(experiment)):
        if _spelt(name) not in found and (until_s is None or _written_s(experiment / name) <= until_s):
            _move(experiment / name, into / name)
    if not os.listdir(experiment):
        with contextlib.suppress(OSError):  # a link to a folder stays
            experiment.rmdir()


def _move(source: Path, target: Path) -> None:
    """Move at once, or again from the start where an earlier move was cut short."""
    part = target.with_name(f".{target.name}.part")
    if part.is_dir():
        shutil.rmtree(part)
    shutil.move(source, part)
    part.rename(target)


def _written_s(path: Path) -> float:
    """When it, or anything in it, was last written to."""
    inside = path.rglob("*") if path.is_dir() else ()
    return max(float(one.lstat().st_mtime) for one in (path, *inside))


def _spelt(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()
