"""What a run of a user's script leaves in the user's storage is moved away, so that nothing resumes from it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

MARKER = ".validate_storage_marker"
"""The file by which Ray Train tries whether it can write to a storage."""


def take_in(experiment: Path, found: Collection[str], into: Path) -> None:
    """Move what has come into an experiment directory since a job's start below a folder; ``found`` was there before.

    An experiment directory that is empty then goes too. Raises OSError where something cannot be moved.
    """
    if not experiment.is_dir():
        return
    into.mkdir(parents=True, exist_ok=True)
    for name in sorted(os.listdir(experiment)):
        if name not in found:
            shutil.move(experiment / name, into / name)
    if not os.listdir(experiment):
        experiment.rmdir()
