"""A run whose ranks are brought to points one by one, and faults that only note that they fired."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

from chaos.agent.events import EventWriter
from chaos.agent.firing import Firing
from chaos.agent.plan import Injection, Plan
from chaos.faults.base import Fault, InjectedError, Proof
from chaos.history import Event, Tail
from chaos.schedule import Arming
from chaos.schedule import plan as scheduled
from chaos.targets import Inventory, Node, Rank
from chaos.triggers import Trigger


@dataclasses.dataclass(frozen=True)
class Note(Fault):
    """Only notes that it fired, and in which thread. ``raises``: what it raises then, empty for nothing."""

    name = "note"
    effect, certifies, not_certified = "a note", "nothing at all", "anything else"
    proof = Proof.TOLD

    raises: str = ""

    def fire(self) -> None:
        NOTED.append(threading.current_thread().name)
        if self.raises:
            raise {"injected": InjectedError, "memory": MemoryError, "value": ValueError}[self.raises]("told")


class NoteHere(Note):
    """Fires in the training thread only."""

    name = "note-here"
    in_training_thread = True


class NoteTogether(Note):
    """Its peers note that they took part."""

    name = "note-together"
    with_peers = True

    def accompany(self) -> None:
        NOTED.append("peer")


NOTED: list[str] = []


class World:
    """A run whose ranks are brought to points one by one; restarted as often as wanted."""

    def __init__(self, directory: Path, *injections: Injection) -> None:
        directory.mkdir(exist_ok=True)
        self.plan = Plan(run_id="r", directory=str(directory), injections=injections)
        self.plan.write()
        self.writer = EventWriter(self.plan.events, "n")
        self.step = 0
        self.lives: dict[int, Firing] = {}
        self.attempt = 0

    def restart(self) -> None:
        """Every process is gone; the next one that is asked for is a new one."""
        self.lives, self.attempt = {}, self.attempt + 1

    def rank(self, rank: int) -> Firing:
        """The process of a rank."""
        if rank not in self.lives:
            self.lives[rank] = Firing(self.plan, self.writer, rank, self.attempt, lambda: self.step)
        return self.lives[rank]

    def reach(self, phase: str, step: int = 0, rank: int = 0) -> int:
        """Bring a rank to a point; how often something has been noted so far."""
        self.step = step
        self.rank(rank).reach(phase)
        return len(NOTED)

    def seen(self, *kinds: str) -> list[Event]:
        """The events so far, those of some kinds if they are given."""
        return [e for e in Tail(Path(self.plan.directory)).new() if not kinds or e.kind in kinds]

    def told(self, *kinds: str) -> list[tuple[str, str]]:
        """Kind and injection of the events so far."""
        return [(e.kind, e.data["injection"]) for e in self.seen(*kinds)]


def note(trigger: Trigger, rank: int | None = 0, fault: str = "note", **fields: Any) -> Injection:
    return Injection(id=fields.pop("id", "note-0"), fault=fault, rank=rank, trigger=trigger, **fields)


def repeated(trigger: Trigger, times: int, victim: Rank | Node | None = None) -> tuple[Injection, ...]:
    return scheduled([Arming(Note(), trigger.repeat(times), victim or Rank(0))], Inventory(2), 0)
