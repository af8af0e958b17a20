"""Stacks of training processes, asked for from outside: who stands where when nothing moves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.agent.session import STACKS
from chaos.process import Identity

COLLECTIVE = "/torch/distributed/"
"""A part of the path of every file in which a process waits for others in a collective."""

REPORT = "/ray/train/"
"""The same of a report to Ray Train, which waits for the reports of all ranks."""

FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$', re.M)


@dataclass(frozen=True)
class Frame:
    """One frame of a stack, the innermost first."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function} ({Path(self.file).name}:{self.line})"


def path_of(folder: Path, rank: int, pid: int) -> Path:
    """Where a process writes its stacks, as ``chaos.agent.session`` names it."""
    return folder / f"rank{rank}-{pid}.txt"


def ask(folder: Path, processes: Mapping[int, Identity]) -> dict[int, int]:
    """Make processes, by rank, write their stacks; returns where in each rank's file the answer will begin.

    Only for processes that have the handler, since its signal ends others.
    """
    begins = {}
    for rank, process in processes.items():
        path = path_of(folder, rank, process.pid)
        begins[rank] = path.stat().st_size if path.exists() else 0
        process.send(STACKS)
    return begins


def read(folder: Path, rank: int, pid: int, begin: int = 0) -> list[list[Frame]]:
    """The threads' stacks that a process has written from that place on; none where it has written nothing."""
    path = path_of(folder, rank, pid)
    text = path.read_bytes()[begin:].decode(errors="replace") if path.exists() else ""
    return [frames for part in re.split(r"\n(?=Thread |Current thread )", text) if (frames := _frames(part))]


def _frames(text: str) -> list[Frame]:
    return [Frame(m["file"], int(m["line"]), m["function"]) for m in FRAME.finditer(text)]


def inside(stacks: list[list[Frame]], part: str) -> Frame | None:
    """The innermost frame, of any thread, in a file whose path contains that part; None where there is none."""
    return next((frame for frames in stacks for frame in frames if part in frame.file), None)
