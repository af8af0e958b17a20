"""Undoing what a ledger says is in place: after a run, after a dead harness, by a watcher. It needs nothing else."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tenacity

from chaos.ledger import POINTER, Account, Ledger, append, registry
from chaos.process import Identity
from chaos.storage import take_in


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
                append(path, {"done": number})
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
    left = account.processes()
    for identity in left:
        identity.send(signal.SIGKILL)
    if left:
        raise StillAlive(f"still alive after SIGKILL: {', '.join(str(identity.pid) for identity in left)}")


def _remove_directory(account: Account, entry: dict[str, Any]) -> None:
    """Remove a directory that the run made, which must lie in the registry of this user."""
    folder = Path(entry["path"])
    if folder.resolve().parent != registry():
        raise ValueError(f"{folder} is not in {registry()}, so it is left alone")
    if folder.exists():
        shutil.rmtree(folder)


def _continue(account: Account, entry: dict[str, Any]) -> None:
    """Let a process that an attack stopped go on; one that is gone, or whose pid is another's now, needs nothing."""
    Identity(entry["pid"], entry["start"]).send(signal.SIGCONT)


LATE_S = 300.0
"""What was written so long after the last event of a run is not the run's, seconds."""


def _take_in(account: Account, entry: dict[str, Any]) -> None:
    """Move what a job has stored below its run directory, once nobody writes there any more."""
    _end_processes(account, entry)
    into = Path(entry["into"])
    told = [file for name in ("history.jsonl", "events/*.jsonl") for file in into.parents[1].glob(name)]
    until_s = max((file.stat().st_mtime for file in told), default=0.0) + LATE_S
    take_in(Path(entry["experiment"]), entry["found"], into, until_s)


def _ends_with_its_process(account: Account, entry: dict[str, Any]) -> None:
    """A fault inside a training process: ending the processes, which comes next, is its end."""


Recipe = Callable[[Account, dict[str, Any]], None]

RECIPES: dict[str, Recipe] = {
    "directory": _remove_directory,
    "processes": _end_processes,
    "injection": _ends_with_its_process,
    "stopped": _continue,
    "storage": _take_in,
}


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
    return [heal_run(folder) for folder in sorted(registry().iterdir()) if folder.is_dir()]


def heal_run(folder: Path, *, even_if_owned: bool = False) -> Healing:
    """Clean up after the harness of one run, by its working directory; one that lives is left alone, unless asked."""
    try:
        owner, ledger = _pointer(folder)
    except (OSError, ValueError, KeyError, TypeError):
        # Without a pointer its harness was killed while making it, or is making it right now.
        age = _age(folder)
        if age is None:
            return Healing(folder.name, "gone already")
        return Healing(folder.name, "left alone: just being made") if age < 60 else _heal_without_ledger(folder)
    if owner.alive() and not even_if_owned:
        return Healing(folder.name, "left alone: its harness is running")
    try:
        errors = undo(ledger)
    except (OSError, ValueError):
        return _heal_without_ledger(folder)
    return Healing(folder.name, "not healed" if errors else "healed", tuple(errors))


def _pointer(folder: Path) -> tuple[Identity, Path]:
    """The owner and the ledger that a working directory points to."""
    pointer = json.loads((folder / POINTER).read_text())
    return Identity(pointer["pid"], pointer["start"]), Path(pointer["ledger"])


def close(ledger: Ledger) -> list[str]:
    """Undo everything of a run that is still open; returns what could not be undone, empty when all is."""
    try:
        return undo(ledger.path)
    except (FileNotFoundError, ValueError):  # somebody has removed or damaged the run directory
        return list(_heal_without_ledger(registry() / ledger.run_id).errors)


def _heal_without_ledger(folder: Path) -> Healing:
    """The run directory was deleted: the marker in the environment still proves which processes are the run's."""
    account = _account_without_ledger(folder)
    try:
        _end_processes(account, {})
        if folder.exists():
            shutil.rmtree(folder)
    except (OSError, StillAlive) as error:
        return Healing(folder.name, "not healed", (str(error),))
    return Healing(folder.name, "healed")


def _account_without_ledger(folder: Path) -> Account:
    return Account(folder / POINTER, folder.name, Identity(0, 0), {}, frozenset())


def _age(folder: Path) -> float | None:
    """Seconds since something in the folder was made; None when its own run has removed it meanwhile."""
    try:
        return time.time() - folder.stat().st_mtime
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class InPlace:
    """What a run has in place on this machine. ``left_s``: seconds until its watcher heals, None where unknown.

    ``entries``: the open entries of its ledger, in words. ``stopped``: pids of its processes that are stopped.
    """

    run_id: str
    state: str
    owner: int
    left_s: float | None
    entries: tuple[str, ...]
    processes: tuple[int, ...]
    stopped: tuple[int, ...]


def status() -> list[InPlace]:
    """What is in place of every run of this user, living or dead; touches nothing."""
    if not registry().is_dir():
        return []
    return [_in_place(folder) for folder in sorted(registry().iterdir()) if folder.is_dir()]


def _in_place(folder: Path) -> InPlace:
    owner, account, left = Identity(0, 0), _account_without_ledger(folder), None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        owner, path = _pointer(folder)
        account = Account.read(path)
        left = account.left_s
    processes = account.processes()
    return InPlace(
        run_id=folder.name,
        state="running" if owner.alive() else "left by a dead harness",
        owner=owner.pid,
        left_s=left,
        entries=tuple(_in_words(entry) for entry in account.open.values()),
        processes=tuple(identity.pid for identity in processes),
        stopped=tuple(identity.pid for identity in processes if identity.stopped()),
    )


def _in_words(entry: dict[str, Any]) -> str:
    """An entry of a ledger as its kind and what tells it from others."""
    told = (str(entry[key]) for key in ("path", "fault", "injection", "rank", "pid") if key in entry)
    return " ".join((entry["kind"], *told))
