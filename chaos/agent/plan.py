"""What the harness tells the agent: where to write, and which faults to fire."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.triggers import Trigger

NODE = "AFTERSHOCK_NODE"
"""Environment variable of a node's processes that holds the node's name."""

VARIABLE = "AFTERSHOCK_PLAN"
"""Environment variable of the training script that names the plan file."""


@dataclass(frozen=True, kw_only=True)
class Injection:
    """One firing of one fault on one rank, or on whichever worker of a node comes to the point first.

    ``values``: the fault's own settings. ``follows``: the injection that must have fired before, empty for none.
    """

    id: str
    fault: str
    rank: int | None
    trigger: Trigger
    values: dict[str, Any] = field(default_factory=dict)
    follows: str = ""
    node: str = ""

    @property
    def where(self) -> str:
        """The victim, in words."""
        return f"node {self.node}" if self.rank is None else f"rank {self.rank}"

    def hits(self, rank: int, node: str) -> bool:
        """Whether a worker is its victim."""
        return node == self.node if self.rank is None else rank == self.rank

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Injection:
        """The injection whose fields were stored as a dict."""
        return cls(**{**stored, "trigger": Trigger.of(stored["trigger"])})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The agent's orders for one run of a workload.

    ``watchdog_s``: seconds without a step on any rank after which the group is restarted; 0 for no watchdog.
    ``steps_of``: the steps of checkpoints that an earlier life of the same job has stored, by name. ``sources``: the
    files of faults that are the user's own, and the run's copies of them, which are read; or installed modules.
    """

    run_id: str
    directory: str
    injections: tuple[Injection, ...] = ()
    watchdog_s: float = 0.0
    steps_of: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def events(self) -> Path:
        """Folder of the event files."""
        return Path(self.directory, "events")

    @property
    def board(self) -> Path:
        """Folder of small durable records that outlive a worker: claims, marks, and the steps of reports."""
        return Path(self.directory, "board")

    @property
    def stacks(self) -> Path:
        """Folder of the stacks that processes write when asked."""
        return Path(self.directory, "stacks")

    def write(self) -> Path:
        """Store the plan in the run directory and make its folders; returns its path."""
        for folder in (self.events, self.board, self.stacks):
            folder.mkdir(parents=True, exist_ok=True)
        path = Path(self.directory, "plan.json")
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1))
        return path

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """Read a stored plan."""
        stored = json.loads(Path(path).read_text())
        injections = tuple(Injection.of(injection) for injection in stored.pop("injections"))
        return cls(**stored, injections=injections)

    @classmethod
    def from_environment(cls) -> Plan | None:
        """The plan that the environment names; None outside a run."""
        path = os.environ.get(VARIABLE)
        return cls.read(path) if path else None


class Board:
    """The small durable records of a run, shared by all its processes and their successors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def claim(self, name: str, text: str = "") -> bool:
        """Take a name once per run, durably; False when it was taken before."""
        try:
            handle = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        os.write(handle, text.encode())
        os.fsync(handle)
        os.close(handle)
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return True

    def has(self, name: str) -> bool:
        """Whether a name is taken."""
        return (self._folder / name).exists()

    def read(self, name: str) -> str | None:
        """What was written with a name; None when it is not taken, or not written yet."""
        path = self._folder / name
        return (path.read_text() or None) if path.exists() else None
