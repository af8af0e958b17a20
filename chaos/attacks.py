"""Faults that only an outsider can do, carried out by the harness while the victim stands at its point."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from chaos.agent.plan import Board, Injection, Plan
from chaos.cluster.local import ClusterFailed, LocalCluster
from chaos.faults.base import Attack, find_fault
from chaos.history import Event, HistoryWriter
from chaos.process import Identity


@dataclass
class Strike:
    """One attack under way on one victim; the scene of its fault."""

    injection: Injection
    fault: Attack
    victim: Identity
    due: Event
    writer: HistoryWriter
    board: Board
    nodes: LocalCluster
    folder: Path
    controller: Identity | None
    entry: int | None = None
    began_ns: int = field(default_factory=time.monotonic_ns)
    steps: Generator[float] | None = None
    next_s: float = 0.0

    @property
    def node(self) -> str:
        """Name of the victim's node."""
        return str(self.due.data.get("node", ""))

    @property
    def place(self) -> str:
        """The folder that the victim's point is about."""
        return str(self.due.data.get("place", ""))

    def release(self) -> None:
        """Let the victim leave its point."""
        self.board.claim(f"go-{self.injection.id}")

    def confirm(self, evidence: str) -> None:
        """Tell that the effect was seen."""
        after = (time.monotonic_ns() - self.began_ns) / 1e6
        data = {"injection": self.injection.id, "evidence": evidence, "after_ms": after, "seen": "at once"}
        self.tell("fault.confirmed", data)

    def tell(self, kind: str, data: dict[str, object]) -> None:
        """Record an event of this injection, at the victim's own attempt, rank and step."""
        due = self.due
        self.writer.emit(kind, attempt=due.attempt, rank=due.rank, step=due.step, data=data)


@dataclass
class Attacks:
    """All attacks of a run: an observer that begins one when its victim says that it is due, driven by ``tick``."""

    plan: Plan
    writer: HistoryWriter
    cluster: LocalCluster
    _workers: dict[int, Identity] = field(default_factory=dict, init=False)
    _controller: Identity | None = field(default=None, init=False)
    _strikes: list[Strike] = field(default_factory=list, init=False)
    _closed: bool = field(default=False, init=False)

    def __call__(self, event: Event) -> None:
        """Remember who the workers and the controller are; begin what is due."""
        if event.kind == "controller.start" and "start" in event.data:
            self._controller = Identity(event.pid, int(event.data["start"]))
        elif event.kind == "worker.start":
            self._workers[event.pid] = Identity(event.pid, int(event.data["start"]))
        elif event.kind == "fault.due" and not self._closed:
            self._begin(event)

    def _begin(self, due: Event) -> None:
        injection = next(i for i in self.plan.injections if i.id == due.data["injection"])
        victim, fault = self._workers.get(due.pid), find_fault(injection.fault, injection.values)
        if victim is None or not isinstance(fault, Attack):
            return
        place = Board(self.plan.board), self.cluster, Path(self.plan.directory, "logs"), self._controller
        strike = Strike(injection, fault, victim, due, self.writer, *place)
        if touched := fault.touches(victim, strike):
            entry = {"pid": touched.pid, "start": touched.start, "injection": injection.id}
            strike.entry = self.cluster.ledger.intend("stopped", **entry)
        strike.tell("fault.fired", {**due.data})
        strike.steps = fault.attack(victim, strike)
        self._strikes.append(strike)
        self._advance(strike)

    def tick(self) -> None:
        """Take the next step of every attack whose time has come; end those whose victim is gone."""
        for strike in list(self._strikes):
            if not strike.fault.outlives and not strike.victim.alive():
                self._end(strike)
            elif time.monotonic() >= strike.next_s:
                self._advance(strike)

    def _advance(self, strike: Strike) -> None:
        try:
            pause = next(strike.steps, None) if strike.steps else None
        except (ClusterFailed, OSError) as error:
            strike.tell("fault.failed", {**strike.due.data, "error": str(error)})
            pause = None
        if pause is None:
            self._end(strike)
        else:
            strike.next_s = time.monotonic() + pause

    def _end(self, strike: Strike) -> None:
        """Heal it: closing its steps undoes what they did."""
        if strike.steps is not None:
            strike.steps.close()
        strike.release()
        self._strikes.remove(strike)
        if strike.entry is not None:
            self.cluster.ledger.done(strike.entry)
        seconds = (time.monotonic_ns() - strike.began_ns) / 1e9
        strike.tell("fault.healed", {"injection": strike.injection.id, "seconds": seconds})

    def close(self) -> None:
        """Heal whatever still goes on, and begin nothing any more."""
        self._closed = True
        for strike in list(self._strikes):
            self._end(strike)
