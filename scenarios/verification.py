"""The command ``aftershock verify``: what it reads, what it prints, how it ends."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from chaos.exits import ExitCode, UsageError
from metrics.checkpoints.dcp import METADATA
from metrics.checkpoints.verify import Digests, Recorded, Verification, recorded_by_run, recorded_in, verify
from metrics.summary import check_record
from metrics.verdict import CODES, Verdict
from scenarios.view import COLOURS, finding_table, short


@dataclass(frozen=True)
class Asked:
    """What the user asked for. ``against``, ``record``: files of digests, to compare with and to write."""

    folder: Path
    worlds: int
    against: Path | None = None
    record: Path | None = None
    strict: bool = False


def run(asked: Asked, screen: Console) -> tuple[Verification, float]:
    """Verify, with a bar on a terminal; the findings, and the seconds that it took.

    Raises UsageError when there is no checkpoint, or no file to compare with or to write.
    """
    _check(asked)
    recorded = _recorded(asked)
    began = time.perf_counter()

    def begin(size: int) -> None:
        nonlocal began
        began = time.perf_counter()  # importing torch is over
        progress.update(task, total=size)

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task(f"verify {short(asked.folder)}", total=None)
        found = verify(
            asked.folder,
            recorded,
            asked.worlds,
            digests=asked.record is not None,
            begin=begin,
            told=lambda size: progress.advance(task, size),
        )
    seconds = time.perf_counter() - began
    if asked.record and recordable(found):
        _record(asked.record, Digests(checkpoint=asked.folder.resolve().name, pieces=found.digests))
    return found, seconds


def recordable(found: Verification) -> bool:
    """Whether there are digests worth keeping: of every piece, and no check fails."""
    return found.verdict is not Verdict.FAIL and bool(found.digests)


def _record(file: Path, digests: Digests) -> None:
    text = msgspec.json.format(msgspec.json.encode(digests), indent=1) + b"\n"
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        scratch.write_bytes(text)
        scratch.replace(file)
    except OSError as error:
        raise UsageError(f"--record {file}: {error.strerror}") from error
    finally:
        scratch.unlink(missing_ok=True)


def _check(asked: Asked) -> None:
    folder = asked.folder
    if not folder.is_dir():
        raise UsageError(f"{folder} is no directory; name the directory of a checkpoint, which holds {METADATA}")
    if not (folder / METADATA).exists() and not any(folder.glob("*.distcp")):
        below = sorted(path.parent for path in folder.glob(f"**/{METADATA}"))
        hint = f"; there is one in {below[-1]}" if below else ""
        raise UsageError(f"{folder} holds no {METADATA} and no shards: it is no DCP checkpoint{hint}")
    if asked.record and not asked.record.resolve().parent.is_dir():
        raise UsageError(f"--record {asked.record}: {asked.record.resolve().parent} is no directory")
    if asked.record and asked.record.exists() and not asked.record.is_file():
        raise UsageError(f"--record {asked.record}: it is there already, and no file that could be replaced")


def _recorded(asked: Asked) -> Recorded | None:
    if asked.against is None:
        return recorded_by_run(asked.folder)
    try:
        return recorded_in(asked.against)
    except (OSError, ValueError) as error:
        raise UsageError(f"--against {asked.against}: {error}") from error


def exit_code(found: Verification, strict: bool) -> ExitCode:
    """The code of the worst finding; ``strict`` takes what was not applicable for unknown."""
    unsure = strict and any(finding.verdict is Verdict.NOT_APPLICABLE for finding in found.findings)
    return ExitCode.UNKNOWN if unsure and found.verdict is Verdict.PASS else CODES[found.verdict]


def told(asked: Asked, found: Verification, seconds: float) -> dict[str, Any]:
    """The result as plain values, for ``--json``."""
    code = exit_code(found, asked.strict)
    return {
        "schema": 1,
        "checkpoint": str(asked.folder),
        "verdict": str(found.verdict),
        "exit_code": int(code),
        "pieces": found.pieces,
        "bytes": found.size,
        "seconds": round(seconds, 3),
        "findings": [msgspec.to_builtins(finding) for finding in found.findings],
    }


def show(asked: Asked, found: Verification, seconds: float, screen: Console) -> None:
    """Print the findings, how much was read, and how fast."""
    screen.print(finding_table(map(check_record, found.findings)))
    size, colour = found.size / 1e6, COLOURS[found.verdict]
    line = f": {found.pieces} pieces, {size:,.1f} MB in {seconds:.2f} s"
    screen.print(f"verdict  [bold {colour}]{found.verdict}[/]{line}", highlight=False)
    if asked.record and recordable(found):
        screen.print(f"digests  {short(asked.record)}: compare with --against", highlight=False, soft_wrap=True)
    elif asked.record:
        screen.print("digests  not recorded, since the checkpoint is not sound", highlight=False)
