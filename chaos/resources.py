"""What a run takes of the machine, sampled once for each attempt: what grows from restart to restart is a leak."""

from __future__ import annotations

from dataclasses import dataclass, field

import psutil

from chaos.history import Event, HistoryWriter
from chaos.ledger import Account, Ledger
from chaos.process import Identity


@dataclass
class Resources:
    """An observer that samples all processes of the run when every rank of an attempt has completed a first step."""

    writer: HistoryWriter
    ledger: Ledger
    _sizes: dict[int, int] = field(default_factory=dict, init=False)
    _ranks: dict[int, set[int]] = field(default_factory=dict, init=False)
    _seen: set[int] = field(default_factory=set, init=False)

    def __call__(self, event: Event) -> None:
        """Take in an event; sample when an attempt is under way."""
        attempt = event.attempt
        if attempt is None or attempt in self._seen:
            return
        if event.kind == "attempt.start":
            self._sizes[attempt] = event.world_size or 0
        elif event.kind == "step.end" and event.rank is not None:
            self._ranks.setdefault(attempt, set()).add(event.rank)
            if len(self._ranks[attempt]) >= self._sizes.get(attempt, 1 << 30):
                self._seen.add(attempt)
                self.writer.emit("probe.resources", attempt=attempt, data=self._sample())

    def _sample(self) -> dict[str, int]:
        found = Account.read(self.ledger.path).processes()
        measured = [size for identity in found if (size := _measure(identity)) is not None]
        return {
            "processes": len(measured),
            "files": sum(files for files, _ in measured),
            "rss_mib": sum(rss for _, rss in measured) >> 20,
        }


def _measure(identity: Identity) -> tuple[int, int] | None:
    """Open files and resident bytes of a process; None when it is gone."""
    try:
        process = psutil.Process(identity.pid)
        return process.num_fds(), process.memory_info().rss
    except psutil.Error:
        return None
