"""The last collectives of each rank of a standing job, asked for from outside."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from chaos.agent.flight import answer, question
from chaos.process import Identity

PRESENT = "now"
BEFORE = "step before"


class _Entry(msgspec.Struct):
    """One collective, as torch's flight recorder tells it."""

    profiling_name: str
    time_created_ns: int
    input_sizes: list[list[int]] = []


class _Record(msgspec.Struct):
    entries: list[_Entry] = []


def ask(folder: Path, processes: Mapping[int, Identity]) -> set[int]:
    """Ask processes, by rank, for their collectives; returns the ranks that record them."""
    asked = set()
    for rank, process in processes.items():
        answer(folder, rank, process.pid).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # no pipe: it records nothing; no reader: it is gone, or about to write
            handle = os.open(question(folder, rank, process.pid), os.O_WRONLY | os.O_NONBLOCK)
            os.write(handle, b"?")
            os.close(handle)
            asked.add(rank)
    return asked


def read(folder: Path, rank: int, pid: int, ends_ns: list[int]) -> dict[str, list[str]] | None:
    """What a rank has begun since its last step, and what it began in the step before, in order; None while untold.

    ``ends_ns``: when its last steps ended, nanoseconds since the epoch. A collective is named with its shapes, as in
    ``gloo:all_gather 24x64``.
    """
    try:
        entries = msgspec.json.decode(answer(folder, rank, pid).read_bytes(), type=_Record).entries
    except (OSError, msgspec.MsgspecError):
        return None
    if len(ends_ns) < 2:
        return {PRESENT: [_name(entry) for entry in entries], BEFORE: []}
    before, last = ends_ns[-2:]
    return {
        PRESENT: [_name(entry) for entry in entries if entry.time_created_ns > last],
        BEFORE: [_name(entry) for entry in entries if before < entry.time_created_ns <= last],
    }


def close(folder: Path) -> None:
    """Remove the pipes of processes that are gone: whoever opened one to read it would wait for ever."""
    for pipe in folder.glob("*.ask"):
        pipe.unlink()


def _name(entry: _Entry) -> str:
    sizes = ["x".join(map(str, size)) for size in entry.input_sizes]
    return " ".join([entry.profiling_name, *sizes[:2]])
