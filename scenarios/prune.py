"""Removing old run directories: the newest of each scenario stay, and so does everything that did not pass.

A run, or a suite with all its members, is one unit: it stays whole or it goes whole. What cannot be read is kept.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.exits import ExitCode, UsageError
from chaos.history import History
from chaos.ledger import NAME as LEDGER
from chaos.ledger import Account
from metrics.verdict import RECORD, Record
from scenarios.suite import NAME as SUITE
from scenarios.sweep_record import NAME as SWEEP
from scenarios.view import WIDTH

VERDICT = "verdict.json"
UNIT_NAME = re.compile(r"(?P<time>\d{8}-\d{6})-(?P<name>.+)-(?P<id>[0-9a-f]{8})")
REMAINS = re.compile(r"\.pruning-[0-9a-f]{8}")
UNREADABLE = (OSError, ValueError, TypeError, KeyError, RecursionError)
"""What reading a damaged file may raise."""

T = TypeVar("T")


class Action(StrEnum):
    """What becomes of a directory."""

    KEPT = "kept"
    REMOVED = "removed"
    PLANNED = "would go"
    FAILED = "not removed"


GONE = (Action.REMOVED, Action.PLANNED)


class RunOutcome(msgspec.Struct, frozen=True):
    """What decides in ``verdict.json``; no more is read, so that runs of earlier versions can go, too."""

    exit_code: int


class MemberOutcome(msgspec.Struct, frozen=True):
    """What of a member of a suite decides."""

    directory: str


class SuiteOutcome(msgspec.Struct, frozen=True):
    """What decides in ``suite.json``."""

    suite: str
    exit_code: int
    asked: list[str]
    members: list[MemberOutcome]


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one directory below ``out`` and why.

    ``name``: of the scenario or suite, empty for what an interrupted prune left. ``size_bytes``: of all its files.
    """

    directory: str
    name: str
    action: Action
    reason: str
    size_bytes: int


class Pruning(msgspec.Struct, frozen=True, kw_only=True):
    """One prune. ``freed_bytes``: of what was removed, or would be.

    ``others``: how many entries of ``out`` are none of ours, and so left alone.
    """

    out: str
    keep: int
    dry_run: bool
    freed_bytes: int
    others: int
    directories: list[Fate]

    @property
    def failed(self) -> list[Fate]:
        """What could not be removed."""
        return [fate for fate in self.directories if fate.action == Action.FAILED]


@dataclass(frozen=True)
class Unit:
    """A run or a suite below ``out``. ``runs``: the directories of its runs. ``guard``: why it must stay, or empty."""

    folder: Path
    name: str
    runs: tuple[Path, ...]
    guard: str

    def leans_on(self) -> frozenset[str]:
        """The names of all directories on the way to runs whose control run serves for one of this unit's."""
        return frozenset(part for run in self.runs for origin in _origins(run) for part in Path(origin).parts)


@dataclass(frozen=True)
class Survey:
    """What lies below ``out``: units, remains of interrupted prunes, and how much that is none of ours."""

    units: tuple[Unit, ...]
    remains: tuple[Path, ...]
    others: int


def prune(out: Path, keep: int, *, dry_run: bool = False) -> Pruning:
    """Remove what is old and passed below ``out``, but the newest ``keep`` of each scenario or suite.

    Whatever cannot be removed is told in its fate. Raises UsageError when ``out`` does not hold runs.
    """
    found = survey(out)
    reasons = decide(found.units, keep)
    remove = _plan if dry_run else _remove
    fates = [_end(path, "", "left by an interrupted prune", remove) for path in found.remains]
    why = f"passed, older than the newest {keep}" if keep else "passed"
    for unit in sorted(sorted(found.units, key=_age, reverse=True), key=lambda unit: unit.name):
        if reason := reasons[unit]:
            fates.append(_fate(unit.folder, unit.name, Action.KEPT, reason, size_of(unit.folder)))
        else:
            fates.append(_end(unit.folder, unit.name, why, remove))
    return Pruning(
        out=str(out),
        keep=keep,
        dry_run=dry_run,
        freed_bytes=sum(fate.size_bytes for fate in fates if fate.action in GONE),
        others=found.others,
        directories=fates,
    )


def survey(out: Path) -> Survey:
    """Look at what lies below ``out``; links are not followed.

    Raises UsageError when it is no directory, or is that of a run or a suite itself.
    """
    try:
        names = os.listdir(out)
        folders = _folders(out)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror or error}; name the directory that holds the runs") from error
    for record in (RECORD, SUITE):
        if record in names:
            raise UsageError(f"--out {out}: it holds a {record}, so it is one run or suite; name the directory above")
    units = tuple(unit for folder in folders if (unit := unit_of(folder)))
    remains = tuple(folder for folder in folders if REMAINS.fullmatch(folder.name))
    return Survey(units, remains, len(names) - len(units) - len(remains))


def unit_of(folder: Path) -> Unit | None:
    """The run or suite in a directory; None for one that is not ours or no longer has the name that we gave it."""
    named = UNIT_NAME.fullmatch(folder.name)
    if named is None:
        return None
    if os.path.lexists(folder / SUITE):
        return _suite(folder, named["name"])
    record = _read(folder / RECORD, Record)
    if record is None or (record.scenario, record.run) != (named["name"], named["id"]):
        return None
    return Unit(folder, record.scenario, (folder,), in_place(folder) or failure(folder))


def _suite(folder: Path, name: str) -> Unit | None:
    """The suite in a directory; None when its record has another name than the directory."""
    record = _read(folder / SUITE, SuiteOutcome)
    if record is not None and record.suite != name:
        return None
    try:
        inner = _folders(folder)
    except OSError as error:
        return Unit(folder, name, (), f"it cannot be read: {error.strerror or error}")
    runs = tuple(path for path in inner if os.path.lexists(path / RECORD))
    return Unit(folder, name, runs, _in_place_in_suite(inner) or _failure_of_suite(folder, record))


def _in_place_in_suite(inner: Iterable[Path]) -> str:
    """What speaks against removing a suite in its ledgers: of its runs, or of the clusters that these share."""
    owners = [path for path in inner if os.path.lexists(path / LEDGER)]
    if not owners:
        return f"no {LEDGER} in it, so it may not be healed"
    return next((f"{path.name}: {reason}" for path in owners if (reason := in_place(path))), "")


def _failure_of_suite(folder: Path, record: SuiteOutcome | None) -> str:
    """Why a suite does not count as passed: by its record, or since a member has been judged anew; else empty."""
    if record is None:
        return f"its {SUITE} cannot be read"
    if len(record.members) < len(record.asked):
        return f"unfinished: {len(record.members)} of {len(record.asked)} members ran"
    if record.exit_code != ExitCode.PASS:
        return f"did not pass: exit code {record.exit_code}"
    names = [member.directory for member in record.members if member.directory]  # one that was skipped has none
    return next((f"{name}: {reason}" for name in names if (reason := failure(folder / name))), "")


def in_place(run: Path) -> str:
    """What a run's ledger says against removing it: its harness lives, or something is not undone; else empty."""
    try:
        account = Account.read(run / LEDGER)
        if account.owner.alive():
            return "running"
    except UNREADABLE:
        return f"its {LEDGER} cannot be read, so it may not be healed"
    return "not healed: run `aftershock heal` first" if account.open else ""


def failure(run: Path) -> str:
    """Why a run does not count as passed, from its ``verdict.json``; empty when it does."""
    verdict = SWEEP if os.path.lexists(run / SWEEP) else VERDICT
    if not os.path.lexists(run / verdict):
        return f"no {verdict}: interrupted, or never judged"
    outcome = _read(run / verdict, RunOutcome)
    if outcome is None:
        return f"its {verdict} cannot be read"
    return "" if outcome.exit_code == ExitCode.PASS else f"did not pass: exit code {outcome.exit_code}"


def decide(units: Iterable[Unit], keep: int) -> dict[Unit, str]:
    """Why each unit stays; an empty reason for those that go. Only what could go counts against ``keep``."""
    reasons = {unit: unit.guard for unit in units}
    by_name: dict[str, list[Unit]] = defaultdict(list)
    for unit in sorted((unit for unit in reasons if not unit.guard), key=_age, reverse=True):
        by_name[unit.name].append(unit)
    for group in by_name.values():
        reasons |= dict.fromkeys(group[:keep], f"passed, among the newest {keep}")
    return {**reasons, **_serving(reasons)}


def _serving(reasons: Mapping[Unit, str]) -> dict[Unit, str]:
    """The reasons of units that would go, but whose control run serves one that stays; also by way of others."""
    going = {unit.folder.name: unit for unit, reason in reasons.items() if not reason}
    staying = [unit for unit, reason in reasons.items() if reason]
    saved: dict[Unit, str] = {}
    while going and staying:
        unit = staying.pop()
        for name in unit.leans_on() & going.keys():
            staying.append(served := going.pop(name))
            saved[served] = f"its control run serves {unit.folder.name}"
    return saved


def _origins(run: Path) -> list[str]:
    """The run directories from which a run has taken its control run; none where its history cannot be read."""
    try:
        history = History.load(run)
    except UNREADABLE:
        return []
    return [str(event.data.get("from", "")) for event in history.select("control.shared")]


def _age(unit: Unit) -> str:
    """Sorts by the time in the name; the rest of the name settles a tie."""
    return unit.folder.name


def size_of(folder: Path) -> int:
    """Bytes of all files below a directory; links count for themselves, what vanishes meanwhile for nothing."""
    total = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, file)).st_size
    return total


def _plan(folder: Path) -> Action:
    """Stands for removing in a dry run."""
    return Action.PLANNED


def _remove(folder: Path) -> Action:
    """Remove a directory: out of its name first, so that an interruption leaves no half run behind.

    Raises OSError.
    """
    hidden = folder
    if not REMAINS.fullmatch(folder.name):
        hidden = folder.with_name(f".pruning-{uuid.uuid4().hex[:8]}")
        with contextlib.suppress(FileNotFoundError):  # another prune was faster
            folder.rename(hidden)
    while hidden.exists():
        with contextlib.suppress(FileNotFoundError):  # another prune removes the same remains
            shutil.rmtree(hidden)
    return Action.REMOVED


def _end(folder: Path, name: str, reason: str, remove: Callable[[Path], Action]) -> Fate:
    """Let a directory go, or tell why it could not."""
    size = size_of(folder)
    try:
        return _fate(folder, name, remove(folder), reason, size)
    except OSError as error:
        left = "" if os.path.lexists(folder) else "; the rest of it goes with the next prune"
        return _fate(folder, name, Action.FAILED, f"{error.strerror or error}{left}", size)


def _fate(folder: Path, name: str, action: Action, reason: str, size: int) -> Fate:
    return Fate(directory=folder.name, name=name, action=action, reason=reason, size_bytes=size)


def _read(file: Path, record: type[T]) -> T | None:
    """A stored record; None when it is missing, damaged or of another version."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=record)
    except UNREADABLE:
        return None


def _folders(parent: Path) -> list[Path]:
    """The directories directly below another one, without links, by name."""
    with os.scandir(parent) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))


STYLES = {Action.KEPT: "dim", Action.REMOVED: "green", Action.PLANNED: "yellow", Action.FAILED: "red"}


def show(done: Pruning, console: Console) -> None:
    """Print one row for each directory that is ours, and what it comes to."""
    if done.directories:
        table = Table(box=None, padding=(0, 2, 0, 0), width=WIDTH)
        table.add_column("directory", overflow="fold")
        table.add_column("", no_wrap=True)
        table.add_column("MiB", justify="right", no_wrap=True)
        table.add_column("why", ratio=1, overflow="fold")
        for fate in done.directories:
            action = Text(fate.action, style=STYLES[fate.action])
            table.add_row(Text(fate.directory), action, _mib(fate.size_bytes), Text(fate.reason))
        console.print(table)
    console.print(_sentence(done), highlight=False, soft_wrap=True, markup=False)


def _sentence(done: Pruning) -> str:
    """What a prune comes to: how many went and stayed, and how much that freed."""
    gone = sum(fate.action in GONE for fate in done.directories)
    stayed = len(done.directories) - gone
    others = f"; left alone, not ours: {done.others}" if done.others else ""
    if done.dry_run:
        return f"dry run, nothing was touched: {gone} would go, {_mib(done.freed_bytes)} MiB; {stayed} stay{others}"
    return f"{gone} removed, {_mib(done.freed_bytes)} MiB freed; {stayed} stay{others}"


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f}"
