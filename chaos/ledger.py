"""The write-ahead record of everything that must be undone; ``chaos.healing`` needs nothing else.

An entry is written and flushed to disk before the thing exists: no ledger, no injection. ``done`` closes it.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import INSTALLATION
from chaos.exits import UsageError
from chaos.process import MARKER, Identity, current, ours

SCHEMA = 1
NAME = "ledger.jsonl"
POINTER = "ledger"
TTL_S = 3600.0
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
    def open(cls, directory: Path, run_id: str, ttl_s: float = TTL_S) -> Ledger:
        """Start the ledger of a run in its directory, naming this process as its owner.

        ``ttl_s``: seconds after which the run's watcher heals, whether or not the owner lives.
        """
        ledger = cls(directory / NAME, run_id)
        me = current()
        owner = {"pid": me.pid, "start": me.start}
        ledger._write({"schema": SCHEMA, "run": run_id, "owner": owner, "opened": time.time(), "ttl_s": ttl_s})
        return ledger

    def workspace(self) -> Path:
        """Make the run's working directory, which points back to this ledger, so that healing finds both.

        From then on a watcher process heals when this one cannot.
        """
        folder = registry() / self.run_id
        self.intend("directory", path=str(folder))
        self.intend("processes")
        registry().mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        me = current()
        pointer = {"ledger": str(self.path.resolve()), "pid": me.pid, "start": me.start}
        scratch = folder / f".{POINTER}"
        scratch.write_text(json.dumps(pointer))
        scratch.replace(folder / POINTER)  # at once: who sees a pointer sees a whole one
        self._watch(folder)
        return folder

    def _watch(self, folder: Path) -> None:
        watcher = subprocess.Popen(
            [sys.executable, "-P", "-m", "chaos.watcher", str(folder), str(self.path.resolve())],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            env={**os.environ, "PYTHONPATH": str(INSTALLATION), MARKER: self.run_id}, start_new_session=True,
        )  # fmt: skip
        self.started(watcher.pid)

    def intend(self, kind: str, **recipe: Any) -> int:
        """Record, durably, what is about to exist and how to undo it; returns the entry's number."""
        number, self._next = self._next, self._next + 1
        self._write({"entry": number, "kind": kind, **recipe})
        return number

    def done(self, number: int) -> None:
        """Record that an entry has been undone."""
        self._write({"done": number})

    def extend(self, ttl_s: float) -> None:
        """Let the run's time end so many seconds from now."""
        self._write({"extended": time.time(), "ttl_s": ttl_s})

    def started(self, session: int) -> None:
        """Record a session of processes that the run has started, under an entry of kind ``processes``."""
        self._write({"session": session})

    def _write(self, record: dict[str, Any]) -> None:
        append(self.path, record)


def append(path: Path, record: dict[str, Any]) -> None:
    """Add a record to a ledger, on disk when this returns.

    Raises OSError when it does not fit.
    """
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
    opened_s: float = 0.0
    ttl_s: float = TTL_S

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
            if "extended" in record:
                head = {**head, "opened": record["extended"], "ttl_s": record["ttl_s"]}
        if not {"pid", "start"} <= head["owner"].keys():
            raise ValueError(f"{path} is no ledger: it does not say who its owner is")
        owner = Identity(head["owner"]["pid"], head["owner"]["start"])
        times = float(head.get("opened", 0.0)), float(head.get("ttl_s", TTL_S))
        return cls(path, head["run"], owner, entries, frozenset(sessions), *times)

    @property
    def workspace(self) -> Path:
        """The run's working directory."""
        return registry() / self.run_id

    @property
    def left_s(self) -> float:
        """Seconds until the watcher heals whether or not the owner lives; negative when that is over."""
        return self.opened_s + self.ttl_s - time.time()

    def processes(self) -> list[Identity]:
        """The run's live processes; while one executes another program its environment is empty, so look twice."""
        look = (self.run_id, self.sessions, self.workspace)
        if left := ours(*look):
            return left
        time.sleep(0.05)
        return ours(*look)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record
