"""What a job's processes do to files, noted by strace from the moment that each of them says that it is there."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from chaos import strace
from chaos.cluster.local import LocalCluster
from chaos.history import Event
from chaos.process import Identity

CONTROLLER = "controller"
ENDS_S = 10.0


@dataclass
class Recorder:
    """An observer of a run: it traces the controller and the workers of the first attempt, each into a file."""

    cluster: LocalCluster
    folder: Path
    _tracers: list[subprocess.Popen[bytes]] = field(default_factory=list, init=False)

    def __call__(self, event: Event) -> None:
        """Trace who has started."""
        if event.kind == "controller.start":
            self._trace(event, CONTROLLER)
        elif event.kind == "worker.start" and event.attempt == 0:
            self._trace(event, f"rank{event.rank}")

    def _trace(self, start: Event, name: str) -> None:
        """Trace the process of a start, unless it is gone: its pid may be another's by now."""
        if Identity(start.pid, int(start.data["start"])).alive():
            self._tracers.append(self.cluster.tool([*strace.record(self.log(name)), "-p", str(start.pid)]))

    def log(self, name: str) -> Path:
        """The file of a process: ``controller``, or ``rank0`` and so on."""
        return self.folder / f"{name}.strace"

    def close(self) -> None:
        """The traced processes have ended, or go on untraced; their notes are whole."""
        for tracer in self._tracers:
            strace.end(tracer, ENDS_S)
