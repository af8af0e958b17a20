"""The write-ahead record of everything that must be undone, and the healing that needs nothing else.

An entry is written and flushed to disk before the thing exists. ``done`` closes it. What is still open when the owner
is dead is undone by ``heal``: by the next ``aftershock heal``, or at the start of the next run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tenacity

from chaos.exits import UsageError
from chaos.process import Identity, current, ours

SCHEMA = 1
NAME = "ledger.jsonl"
POINTER = "ledger"
LONGEST_SOCKET = 107
LONGEST_BELOW = len("/12345678/head/session_2026-01-01_00-00-00_123456_1234567/sockets/plasma_store")


def registry() -> Path:
    """Where the working directories of this user's runs lie, short enough for Ray's socket names."""
    return Path(tempfile.gettempdir()).resolve() / f"aftershock-{os.getuid()}"


def check_registry() -> None:
    """Refuse a registry that runs cannot live in, before anything is started.

    Raises UsageError when it cannot be made, belongs to another user, or is too deep for the sockets of Ray.
    """
    folder = registry()
    way_out = "set TMPDIR to a short directory of your own"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made ({error.strerror}): {way_out}") from error
    if folder.stat().st_uid != os.getuid():
        raise UsageError(f"{folder} belongs to another user: {way_out}")
    if len(str(folder)) > LONGEST_SOCKET - LONGEST_BELOW:
        raise UsageError(f"{folder} is too long for Ray's sockets ({LONGEST_SOCKET} bytes in all): {way_out}")


@dataclass
class Ledger:
    """The ledger of one run, owned by the harness that opened it."""

    path: Path
    run_id: str
    _next: int = field(default=0, init=False)

    @classmethod
    def open(cls, directory: Path, run_id: str) -> Ledger:
        """Start the ledger of a run in its directory, naming this process as its owner."""
        ledger = cls(directory / NAME, run_id)
        me = current()
        ledger._write({"schema": SCHEMA, "run": run_id, "owner": {"pid": me.pid, "start": me.start}})
        return ledger

    def workspace(self) -> Path:
        """Make the run's working directory; it points back to this ledger, so that healing finds both."""
        folder = registry() / self.run_id
        self.intend("directory", path=str(folder))
        registry().mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        me = current()
        pointer = {"ledger": str(self.path.resolve()), "pid": me.pid, "start": me.start}
        scratch = folder / f".{POINTER}"
        scratch.write_text(json.dumps(pointer))
        scratch.replace(folder / POINTER)  # at once: who sees a pointer sees a whole one
        return folder

    def intend(self, kind: str, **recipe: Any) -> int:
        """Record, durably, what is about to exist and how to undo it; returns the entry's number."""
        number, self._next = self._next, self._next + 1
        self._write({"entry": number, "kind": kind, **recipe})
        return number

    def done(self, number: int) -> None:
        """Record that an entry has been undone."""
        self._write({"done": number})

    def started(self, session: int) -> None:
        """Record a session of processes that the run has started, under an entry of kind ``processes``."""
        self._write({"session": session})

    def close(self) -> list[str]:
        """Undo everything that is still open; returns what could not be undone, empty when all is."""
        try:
            return undo(self.path)
        except FileNotFoundError:  # somebody has removed the run directory
            folder = registry() / self.run_id
            return list(_heal_without_ledger(folder).errors) if folder.exists() else []

    def _write(self, record: dict[str, Any]) -> None:
        _append(self.path, record)


def _append(path: Path, record: dict[str, Any]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        line = json.dumps(record).encode() + b"\n"
        if os.write(handle, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Account:
    """What a ledger says: who owns the run and which entries are still open, by number."""

    path: Path
    run_id: str
    owner: Identity
    open: dict[int, dict[str, Any]]
    sessions: frozenset[int]

    @classmethod
    def read(cls, path: Path) -> Account:
        """Read a ledger; a last line cut short by a crash is ignored, since what it announced was not begun.

        Raises ValueError when the file is no ledger.
        """
        records = list(_records(path))
        if not records or records[0].get("schema") != SCHEMA:
            raise ValueError(f"{path} is no ledger of this version")
        head, entries, sessions = records[0], {}, set()
        if not isinstance(head.get("owner"), dict) or not isinstance(head.get("run"), str):
            raise ValueError(f"{path} is no ledger: it does not name its run and owner")
        for record in records[1:]:
            if "entry" in record:
                entries[record["entry"]] = record
            elif "done" in record:
                entries.pop(record["done"], None)
            if "session" in record:
                sessions.add(int(record["session"]))
        owner = Identity(head["owner"]["pid"], head["owner"]["start"])
        return cls(path, head["run"], owner, entries, frozenset(sessions))

    @property
    def workspace(self) -> Path:
        """The run's working directory."""
        return registry() / self.run_id


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def undo(path: Path) -> list[str]:
    """Undo every open entry of a ledger, in reverse; errors are collected and returned, never hidden."""
    account = Account.read(path)
    errors = []
    for number in sorted(account.open, reverse=True):
        entry = account.open[number]
        try:
            RECIPES[entry["kind"]](account, entry)
        except Exception as error:
            errors.append(f"{entry['kind']} {number}: {error}")
        else:
            with contextlib.suppress(OSError):  # a full disk must not stop the healing: undoing twice does no harm
                _append(path, {"done": number})
    return errors


class StillAlive(Exception):
    """Processes of the run survived SIGKILL so far."""


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(StillAlive),
    wait=tenacity.wait_fixed(0.05),
    stop=tenacity.stop_after_delay(15),
    reraise=True,
)
def _end_processes(account: Account, entry: dict[str, Any]) -> None:
    """Kill whatever provably belongs to the run until nothing is left; new children are found on the next pass."""
    left = _alive(account)
    for identity in left:
        identity.send(signal.SIGKILL)
    if left:
        raise StillAlive(f"still alive after SIGKILL: {', '.join(str(identity.pid) for identity in left)}")


def _alive(account: Account) -> list[Identity]:
    """The run's processes; while a process executes another program its environment is empty, so look twice."""
    look = (account.run_id, account.sessions, account.workspace)
    if left := ours(*look):
        return left
    time.sleep(0.05)
    return ours(*look)


def _remove_directory(account: Account, entry: dict[str, Any]) -> None:
    """Remove a directory that the run made, which must lie in the registry of this user."""
    folder = Path(entry["path"])
    if folder.resolve().parent != registry():
        raise ValueError(f"{folder} is not in {registry()}, so it is left alone")
    if folder.exists():
        shutil.rmtree(folder)


Recipe = Callable[[Account, dict[str, Any]], None]

RECIPES: dict[str, Recipe] = {"processes": _end_processes, "directory": _remove_directory}


@dataclass(frozen=True)
class Healing:
    """What healing did with one run: cleaned, or left alone because its owner lives, or what went wrong."""

    run_id: str
    action: str
    errors: tuple[str, ...] = ()


def heal() -> list[Healing]:
    """Clean up after every dead harness of this user; the runs of a living one are left alone."""
    if not registry().is_dir():
        return []
    return [_heal_one(folder) for folder in sorted(registry().iterdir()) if folder.is_dir()]


def _heal_one(folder: Path) -> Healing:
    try:
        pointer = json.loads((folder / POINTER).read_text())
        owner, ledger = Identity(pointer["pid"], pointer["start"]), Path(pointer["ledger"])
    except (OSError, ValueError, KeyError, TypeError):
        # Without a pointer its harness was killed while making it, or is making it right now.
        young = _age(folder) < 60
        return Healing(folder.name, "left alone: just being made") if young else _heal_without_ledger(folder)
    if owner.alive():
        return Healing(folder.name, "left alone: its harness is running")
    try:
        errors = undo(ledger)
    except (OSError, ValueError):
        return _heal_without_ledger(folder)
    return Healing(folder.name, "not healed" if errors else "healed", tuple(errors))


def _heal_without_ledger(folder: Path) -> Healing:
    """The run directory was deleted: the marker in the environment still proves which processes are the run's."""
    account = Account(folder / POINTER, folder.name, Identity(0, 0), {}, frozenset())
    try:
        _end_processes(account, {})
        shutil.rmtree(folder)
    except (OSError, StillAlive) as error:
        return Healing(folder.name, "not healed", (str(error),))
    return Healing(folder.name, "healed")


def _age(folder: Path) -> float:
    """Seconds since something in the folder was made."""
    return time.time() - folder.stat().st_mtime
