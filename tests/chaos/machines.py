"""Stand-ins for the nodes of a cluster, and the stage on which an attack on them takes place."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from chaos.ledger import Ledger
from chaos.process import Identity


@dataclass
class Machines:
    """Nodes that note, in order, what is done to them; with a ledger they pass for the cluster of a run.

    ``on``: the processes of each, the first of them its raylet. ``broken``: what fails, and with what error.
    """

    ledger: Ledger | None = None
    on: dict[str, list[Identity]] = field(default_factory=dict)
    broken: dict[str, Exception] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    def lose(self, name: str) -> int:
        self._do("lose", name)
        lost = self.on.pop(name, [])
        for process in lost:
            process.send(signal.SIGKILL)
        while any(process.alive() for process in lost):
            time.sleep(0.001)
        return len(lost)

    def join(self, name: str = "") -> Iterator[float]:
        yield 0.01
        self._do("join", name)
        yield 0.01
        self.done.append("joined")

    def raylet(self, name: str) -> Identity | None:
        return next(iter(self.on.get(name, [])), None)

    def drain(self, name: str, notice_s: float) -> Iterator[float]:
        yield 0.01
        self._do("drain", f"{name} {notice_s:g}")

    def _do(self, what: str, whom: str) -> None:
        self.done.append(f"{what} {whom}".strip())
        if what in self.broken:
            raise self.broken[what]


@dataclass
class Stage:
    """Notes, in order, what an attack does to its scene, among what it does to the nodes."""

    nodes: Machines = field(default_factory=Machines)
    node: str = "w0"

    @property
    def done(self) -> list[str]:
        return self.nodes.done

    def release(self) -> None:
        self.done.append("released")

    def confirm(self, evidence: str) -> None:
        self.done.append(evidence)
