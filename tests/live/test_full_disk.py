"""A disk that is full at the start, and one that fills up under a run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.exits import ExitCode
from tests.live.command import await_event, left_of, run_directory, start


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts a memory disk of some MiB; needs root."""
    mounted = []

    def mount(mebibytes: int) -> Path:
        folder = tmp_path / "disk"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a memory disk cannot be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_too_little_space_is_refused_before_anything_starts(disk: Callable[[int], Path]) -> None:
    out = disk(64)
    process = start(out)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.USAGE, output + errors
    assert "a run needs 256" in errors and errors.count("\n") == 1
    assert list(out.iterdir()) == []


def test_a_disk_that_fills_up_ends_the_run_healed(disk: Callable[[int], Path]) -> None:
    out = disk(320)
    process = start(out)
    directory = run_directory(out)
    await_event(directory, process, "cluster.node.up", name="head")
    _fill(out)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == ExitCode.ABORTED, output + errors
    assert "No space left on device" in errors and errors.count("\n") == 1
    assert left_of(directory.name.rsplit("-", 1)[1]) == []


def _fill(folder: Path) -> None:
    with (folder / "filler").open("wb") as file:
        try:
            while True:
                os.write(file.fileno(), b"\0" * 65536)
        except OSError:
            return
