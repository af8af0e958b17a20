"""Stacks of training processes, asked for from outside: who stands where when nothing moves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from chaos.agent.session import STACKS
from chaos.process import Identity

FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$', re.M)


@dataclass(frozen=True)
class Frame:
    """One frame of a stack, the innermost first."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function} ({Path(self.file).name}:{self.line})"


def ask(processes: Iterable[Identity]) -> None:
    """Make processes write their stacks; only those that have the handler, since its signal ends others."""
    for process in processes:
        process.send(STACKS)


def read(folder: Path, rank: int, pid: int) -> list[list[Frame]]:
    """The threads' stacks as last written by a process; none where it has written nothing."""
    path = folder / f"rank{rank}-{pid}.txt"
    text = path.read_text(errors="replace") if path.exists() else ""
    return [frames for part in re.split(r"\n(?=Thread |Current thread )", text) if (frames := _frames(part))]


def _frames(text: str) -> list[Frame]:
    return [Frame(m["file"], int(m["line"]), m["function"]) for m in FRAME.finditer(text)]


def inside(stacks: list[list[Frame]], part: str) -> Frame | None:
    """The innermost frame, of any thread, in a file whose path contains that part; None where there is none."""
    return next((frame for frames in stacks for frame in frames if part in frame.file), None)
