"""Finding stored runs below a folder and reading of each no more than is asked for.

A run is a directory with a ``verdict.json``. The folder may be a run, a suite, or hold runs, suites or folders of
them, ``DEPTH`` levels down. What cannot be used is never an error: it is left out, with a reason, and counted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from chaos.exits import ExitCode
from chaos.history import NAME as HISTORY
from metrics.summary import SCHEMA
from metrics.verdict import RECORD

VERDICT = "verdict.json"
SUITE = "suite.json"
SWEEP = "sweep.json"
DEPTH = 3
"""How many levels below the folder are looked at."""

STAMP = re.compile(r"(\d{8}-\d{6})-.+-[0-9a-f]{8}")
"""The name that a run directory was given, with the local time of its start."""


class Reason(StrEnum):
    """Why a directory is left out."""

    UNFINISHED = f"unfinished (no {VERDICT})"
    DAMAGED = f"damaged (its {VERDICT} cannot be read)"
    OTHER_SCHEMA = f"of another schema version (in {VERDICT})"
    ABORTED = "aborted (exit code 6)"
    SWEEP = "a sweep (it has no verdict)"
    FOREIGN = "no run"


class Judged(Protocol):
    """What every record of a stored run tells."""

    @property
    def schema(self) -> int: ...  # noqa: D102
    @property
    def exit_code(self) -> int: ...  # noqa: D102


class _Head(msgspec.Struct, frozen=True):
    schema: int


R = TypeVar("R", bound=Judged)


@dataclass(frozen=True)
class Stored(Generic[R]):
    """A run directory and what was read of its verdict."""

    directory: Path
    record: R

    @property
    def began(self) -> str:
        """When the run began, as ``2026-11-30 07:02:14``: by the directory's name, else its history, else empty."""
        return _stamped(self.directory.name) or _first_event(self.directory)


@dataclass(frozen=True)
class Survey(Generic[R]):
    """What lies below a folder: the runs that can be used, and the directories that cannot, by reason."""

    runs: list[Stored[R]] = field(default_factory=list)
    left_out: dict[Reason, list[Path]] = field(default_factory=dict)

    def told(self) -> list[str]:
        """One line for each reason, with the number of directories and the first of them."""
        return [f"left out {len(paths)}, {reason}: {_some(paths)}" for reason, paths in self.left_out.items()]


def survey(folder: Path, record: type[R]) -> Survey[R]:
    """Read the verdicts below a folder, of each only the fields of ``record``, in the order of the directories' names.

    Raises OSError when the folder cannot be listed.
    """
    found: Survey[R] = Survey()
    decoder = msgspec.json.Decoder(record)
    own = _read(folder, decoder)
    reads = [(folder, own)] if own is not None else list(_walk(folder, decoder, DEPTH))
    for directory, read in reads:
        if isinstance(read, Reason):
            found.left_out.setdefault(read, []).append(directory)
        else:
            found.runs.append(Stored(directory, read))
    return found


def _walk(folder: Path, decoder: msgspec.json.Decoder[R], depth: int) -> Iterator[tuple[Path, R | Reason]]:
    """What is below a folder: each run, and each directory in which there is none."""
    in_suite = os.path.lexists(folder / SUITE)
    for directory in _folders(folder):
        read = _read(directory, decoder)
        if read is not None:
            yield directory, read
        elif not in_suite:
            inner = list(_walk_quietly(directory, decoder, depth - 1)) if depth > 1 else []
            ours = [(path, one) for path, one in inner if one is not Reason.FOREIGN]
            yield from inner if ours or os.path.lexists(directory / SUITE) else [(directory, Reason.FOREIGN)]


def _walk_quietly(folder: Path, decoder: msgspec.json.Decoder[R], depth: int) -> Iterator[tuple[Path, R | Reason]]:
    """The same; nothing where the folder cannot be listed."""
    try:
        yield from _walk(folder, decoder, depth)
    except OSError:
        return


def _read(directory: Path, decoder: msgspec.json.Decoder[R]) -> R | Reason | None:
    """The record of a run, or why it cannot be used; None for a directory that is no run's."""
    base = os.fspath(directory)
    try:
        with open(f"{base}/{VERDICT}", "rb", buffering=0) as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return _without_verdict(base)
    except OSError:
        return Reason.DAMAGED
    try:
        record = decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Reason.OTHER_SCHEMA if _other_schema(text) else Reason.DAMAGED
    if record.schema != SCHEMA:
        return Reason.OTHER_SCHEMA
    return Reason.ABORTED if record.exit_code == ExitCode.ABORTED else record


def _without_verdict(base: str) -> Reason | None:
    if os.path.lexists(f"{base}/{SWEEP}"):
        return Reason.SWEEP
    return Reason.UNFINISHED if os.path.lexists(f"{base}/{RECORD}") else None


def _other_schema(text: bytes) -> bool:
    try:
        return msgspec.json.decode(text, type=_Head).schema != SCHEMA
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _folders(parent: Path) -> list[Path]:
    """The directories directly below another one, without links and hidden ones, by name."""
    with os.scandir(parent) as entries:
        names = [e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
    return [parent / name for name in sorted(names)]


def _stamped(name: str) -> str:
    """The time in the name that a run directory was given; empty where it has another name."""
    named = STAMP.fullmatch(name)
    try:
        return f"{datetime.strptime(named[1], '%Y%m%d-%H%M%S'):%Y-%m-%d %H:%M:%S}" if named else ""
    except ValueError:
        return ""


def _first_event(directory: Path) -> str:
    """The time of the first event of a run's history; empty where it has none that can be read."""
    try:
        with (directory / HISTORY).open("rb") as file:
            wall_ns = msgspec.json.decode(file.readline(), type=dict)["wall_ns"]
        return f"{datetime.fromtimestamp(wall_ns / 1e9):%Y-%m-%d %H:%M:%S}"
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return ""


def _some(paths: list[Path]) -> str:
    return paths[0].name + (", ..." if len(paths) > 1 else "")
