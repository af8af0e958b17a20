"""The training processes of a run that are there, by what was told of their starts and exits."""

from __future__ import annotations

from dataclasses import dataclass, field

from chaos.history import Event
from chaos.process import Identity


@dataclass
class Workers:
    """An observer of a run's events. A process is known by its pid: that of an older group may go after a new start."""

    _starts: dict[int, Event] = field(default_factory=dict, init=False)

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        if event.kind == "worker.start":
            self._starts[event.pid] = event
        elif event.kind == "process.exit":
            self._starts.pop(event.data["pid"], None)

    @property
    def identities(self) -> dict[int, Identity]:
        """Every process by its rank, the one that started last where there are two."""
        return {e.rank or 0: Identity(e.pid, int(e.data["start"])) for e in self._starts.values()}
