"""Confirming that a fault took effect: nothing counts as injected before its effect was seen."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass, field

from chaos import stacks
from chaos.agent.plan import Plan
from chaos.faults.base import Fault, Proof, find_fault
from chaos.history import Event, HistoryWriter
from chaos.workers import Workers

QUIET_S = 1.5
"""No step on any rank for so long: time to ask who stands where."""

WRITTEN_S = 0.3
"""How long a process may take to write its stacks."""

AGAIN_S = 3.0
"""When the answers do not convince, how much later they are asked for again."""


@dataclass
class Waiting:
    """A fault that has fired and is not confirmed yet.

    ``asked_s``: when stacks were asked for, 0 for not yet. ``begins``: where each rank's answer begins in its file.
    """

    fired: Event
    fault: Fault
    asked_s: float = 0.0
    begins: dict[int, int] = field(default_factory=dict)


@dataclass
class Confirm:
    """An observer of a run's events; ``tick`` does what needs looking at from time to time."""

    plan: Plan
    writer: HistoryWriter
    _waiting: dict[str, Waiting] = field(default_factory=dict, init=False)
    _workers: Workers = field(default_factory=Workers, init=False)
    _last_step_ns: int = field(default=0, init=False)

    def __call__(self, event: Event) -> None:
        """Take in an event, and confirm what it proves."""
        self._workers(event)
        match event.kind:
            case "fault.fired":
                self._fired(event)
            case "step.end":
                self._last_step_ns = max(self._last_step_ns, event.mono_ns)
            case "process.exit":
                self._exit(event)
            case "worker.error":
                self._error(event)
            case "fault.ended":
                self._ended(event)

    def _fired(self, event: Event) -> None:
        injection = next((i for i in self.plan.injections if i.id == event.data["injection"]), None)
        if injection is not None:
            self._waiting[injection.id] = Waiting(event, find_fault(injection.fault, injection.values))

    def _of(self, proof: Proof) -> list[Waiting]:
        return [waiting for waiting in self._waiting.values() if waiting.fault.proof is proof]

    def _exit(self, event: Event) -> None:
        """A process that dies much later, or in another way, did not die of the fault."""
        for waiting in self._of(Proof.EXIT):
            after_s = (event.mono_ns - waiting.fired.mono_ns) / 1e9
            cause, seen = event.data.get("cause", ""), event.data["seen"]
            soon = after_s <= waiting.fault.within_s or seen == "late"
            fits = cause in ("", waiting.fault.cause) or not waiting.fault.cause
            if waiting.fired.pid == event.data["pid"] and soon and fits:
                how = f", ended by {cause}" if cause.startswith("SIG") else f", {cause}" if cause else ""
                self._confirm(waiting, f"process {event.data['pid']} left the process table{how}", event, seen)

    def _error(self, event: Event) -> None:
        for waiting in self._of(Proof.ERROR):
            fired = waiting.fired
            same = (fired.attempt, fired.rank) == (event.attempt, event.rank)
            if same and event.data["error"] == waiting.fault.error:
                self._confirm(waiting, f"the controller received {event.data['error']} from rank {event.rank}", event)

    def _ended(self, event: Event) -> None:
        for waiting in self._of(Proof.ENDED):
            wanted, seconds = getattr(waiting.fault, "seconds", 0.0), event.data["seconds"]
            if waiting.fired.data["injection"] == event.data["injection"] and seconds >= wanted:
                self._confirm(waiting, f"rank {event.rank} stood there for {seconds:.2f} s, and went on", event)

    def tick(self) -> None:
        """Look at blocked faults: when nothing has moved for a while, ask every process where it stands."""
        for waiting in self._of(Proof.BLOCKED):
            now = time.monotonic()
            still_s = now - max(self._last_step_ns, waiting.fired.mono_ns) / 1e9
            if still_s < QUIET_S:
                waiting.asked_s = 0.0
            elif not waiting.asked_s or now - waiting.asked_s >= AGAIN_S:
                waiting.asked_s = now
                waiting.begins = stacks.ask(self.plan.stacks, self._workers.identities)
            elif waiting.begins and now - waiting.asked_s >= WRITTEN_S:
                self._blocked(waiting, still_s)

    def _blocked(self, waiting: Waiting, still_s: float) -> None:
        """Confirmed when whoever must stand inside the fault does."""
        fired, begins = waiting.fired, waiting.begins
        waiting.begins = {}
        folder, who = self.plan.stacks, self._workers.identities
        found = {rank: stacks.read(folder, rank, who[rank].pid, begins[rank]) for rank in begins.keys() & who.keys()}
        inside = _file_of(waiting.fault)
        within = {rank: frame for rank, threads in found.items() if (frame := stacks.inside(threads, inside))}
        culprit = {fired.rank or 0}
        expected = found.keys() - culprit if waiting.fault.with_peers else culprit
        if not expected or not expected <= within.keys():
            return
        told = [f"rank {rank} stands in {within[rank]}" for rank in sorted(expected)]
        for rank in sorted(found.keys() - expected):
            frame = stacks.inside(found[rank], stacks.COLLECTIVE) or stacks.inside(found[rank], stacks.REPORT)
            told += [f"rank {rank} in {frame}"] if frame else []
        self._confirm(waiting, f"{'; '.join(told)}; no step for {still_s:.1f} s", None)

    def _confirm(self, waiting: Waiting, evidence: str, event: Event | None, seen: str = "at once") -> None:
        fired = waiting.fired
        del self._waiting[fired.data["injection"]]
        after_ms = ((event.mono_ns if event else time.monotonic_ns()) - fired.mono_ns) / 1e6
        data = {"injection": fired.data["injection"], "evidence": evidence, "after_ms": after_ms, "seen": seen}
        self.writer.emit("fault.confirmed", attempt=fired.attempt, rank=fired.rank, step=fired.step, data=data)


def _file_of(fault: Fault) -> str:
    """The file of the code that must be on a stack while the fault lasts."""
    return inspect.getfile(type(fault).accompany if fault.with_peers else type(fault).fire)
