"""What the harness tells the agent: where to write, and which faults to fire."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "AFTERSHOCK_PLAN"
"""Environment variable of the training script that names the plan file."""


@dataclass(frozen=True, kw_only=True)
class Injection:
    """One fault on resolved targets: fire ``fault`` in the process of ``rank`` right after ``step`` completes."""

    id: str
    fault: str
    rank: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The agent's orders for one run of a workload."""

    run_id: str
    directory: str
    injections: tuple[Injection, ...] = ()

    @property
    def events(self) -> Path:
        """Folder of the event files."""
        return Path(self.directory, "events")

    @property
    def board(self) -> Path:
        """Folder of small durable records that outlive a worker: fired-once claims, and the steps of reports."""
        return Path(self.directory, "board")

    def write(self) -> Path:
        """Store the plan in the run directory and make its folders; returns its path."""
        self.events.mkdir(parents=True, exist_ok=True)
        self.board.mkdir(exist_ok=True)
        path = Path(self.directory, "plan.json")
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1))
        return path

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """Read a stored plan."""
        stored = json.loads(Path(path).read_text())
        injections = tuple(Injection(**injection) for injection in stored.pop("injections"))
        return cls(**stored, injections=injections)

    @classmethod
    def from_environment(cls) -> Plan | None:
        """The plan that the environment names; None outside a run."""
        path = os.environ.get(VARIABLE)
        return cls.read(path) if path else None
