"""Firing what is armed for one rank: at the point, at most once per run, across all its restarts."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos import own
from chaos.agent.events import EventWriter, harmless
from chaos.agent.plan import NODE, Board, Injection, Plan
from chaos.faults.base import Attack, Fault, InjectedError, Proof, all_faults, find_fault
from chaos.triggers import TIME, Moment

HOLD_S = 60.0
"""How long a process waits at its point for an outsider that was asked to strike."""

LOOK_S = 0.002

TRAINING = ("first-step", "forward", "optimizer", "step")
"""Phases whose points only the thread that trains passes; a save may run in another one."""


@dataclass
class Firing:
    """The injections of a plan as one rank sees them. ``step`` tells the steps complete."""

    plan: Plan
    writer: EventWriter
    rank: int
    attempt: int
    step: Callable[[], int]
    _board: Board = field(init=False)
    _mine: list[Injection] = field(init=False)
    _peers: list[Injection] = field(init=False)
    _began: float | None = field(default=None, init=False)
    _thread: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._board = Board(self.plan.board)
        for source, copy in self.plan.sources.items():
            own.load(source, copy)
        node = os.environ.get(NODE, "")
        self._mine = [i for i in self.plan.injections if i.hits(self.rank, node)]
        others = [i for i in self.plan.injections if i not in self._mine]
        known = all_faults()
        self._peers = [i for i in others if i.fault in known and known[i.fault].with_peers]

    @property
    def phases(self) -> set[str]:
        """The points that something armed for this rank waits for."""
        return {part.point for injection in (*self._mine, *self._peers) for part in injection.trigger.chain}

    def begin_clock(self) -> None:
        """Let the time of triggers by time run: from the first step of the run that this rank has ever completed."""
        timed = [part.seconds for i in self._mine for part in i.trigger.chain if part.seconds is not None]
        if self._began is not None or not timed:
            return
        self._board.claim(f"steady-{self.rank}", str(time.time()))
        self._began = float(self._board.read(f"steady-{self.rank}") or time.time())
        for seconds in timed:
            left = max(0.0, self._began + seconds - time.time())
            timer = threading.Timer(left, harmless(self.reach), (TIME,))
            timer.daemon = True
            timer.start()

    def resume_clock(self) -> None:
        """After a restart the time has gone on."""
        if self._board.has(f"steady-{self.rank}"):
            self.begin_clock()

    def reach(self, phase: str, place: str = "") -> None:
        """This rank stands at a point: fire what is due. What a fault raises goes through to the workload.

        ``place``: the folder that the point is about, where it is about one.
        """
        if phase in TRAINING:
            self._thread = threading.get_ident()
        seconds = time.time() - self._began if self._began is not None else -math.inf
        moment = Moment(phase, self.step(), self.attempt, seconds)
        due = [injection for injection in self._mine if self._is_due(injection, moment)]
        accompanied = [injection for injection in self._peers if self._is_due(injection, moment)]
        for injection in due:
            self._fire(injection, phase, place)
        for injection in accompanied:
            if self._board.claim(f"peer-{self.rank}-{injection.id}"):
                _accompany(find_fault(injection.fault, injection.values))

    def _is_due(self, injection: Injection, moment: Moment) -> bool:
        """Whether its moment has come, after all that must come earlier; what comes earlier is noted durably."""
        chain = injection.trigger.chain
        who = injection.node or self.rank
        marks = [f"passed-{who}-{injection.id}-{i}" for i in range(len(chain) - 1)]
        passed = next((i for i, mark in enumerate(marks) if not self._board.has(mark)), len(marks))
        if not chain[passed].holds(moment):
            return False
        if passed < len(marks):
            self._board.claim(marks[passed])
            return False
        return not injection.follows or self._board.has(f"fired-{injection.follows}")

    def _fire(self, injection: Injection, phase: str, place: str) -> None:
        """The claim is durable before the fault, so a restarted rank finds it taken."""
        fault = find_fault(injection.fault, injection.values)
        elsewhere = phase == TIME or self._thread not in (None, threading.get_ident())
        if fault.in_training_thread and elsewhere:
            return  # at the next point that its thread passes, if its moment comes there
        if not self._board.claim(f"fired-{injection.id}"):
            return
        data = {"injection": injection.id, "fault": injection.fault, "phase": phase, "node": os.environ.get(NODE, "")}
        data |= {"place": place} if place else {}
        if isinstance(fault, Attack):
            self.writer.emit("fault.due", step=self.step(), data=data)
            self._hold(injection)
            return
        self.writer.emit("fault.fired", step=self.step(), data=data)
        self._do(fault, data)

    def _do(self, fault: Fault, data: dict[str, str]) -> None:
        begin = time.monotonic()
        try:
            fault.fire()
        except (InjectedError, MemoryError):
            raise
        except Exception as error:
            self.writer.emit("fault.failed", step=self.step(), data={**data, "error": repr(error)})
            return
        if fault.proof in (Proof.ENDED, Proof.BLOCKED, Proof.EXIT):
            self.writer.emit("fault.ended", step=self.step(), data={**data, "seconds": time.monotonic() - begin})

    def _hold(self, injection: Injection) -> None:
        """Stand still until the harness has confirmed its attack, or has given it up."""
        end = time.monotonic() + HOLD_S
        while not self._board.has(f"go-{injection.id}") and time.monotonic() < end:
            time.sleep(LOOK_S)


def _accompany(fault: Fault) -> None:
    """Take part in a fault of another rank; what becomes of it is meant for the workload.

    Raises InjectedError when the part fails, as that of a peer left waiting does.
    """
    try:
        fault.accompany()
    except Exception as error:
        raise InjectedError(f"fault {fault.name} on another rank: {error}") from error
