"""A run as it goes on: an observer that keeps what a server shows of it before there is a verdict."""

from __future__ import annotations

import threading
from collections import Counter

from chaos.history import Event
from chaos.live import Live
from metrics.prometheus import catalogue as c
from metrics.prometheus.exposition import put_faults
from metrics.prometheus.families import Families

PHASES = ("cluster", "launch", "steady", "inject", "recover", "wait", "finish", "control", "again", "heal", "judge")
"""The phases of a run, in order."""


class LiveRun:
    """A run that goes on. Call it with each event, from one thread; another one may ask for its samples meanwhile.

    A step counts for the job when its slowest rank has completed it, so of all ranks the lowest step is shown.
    """

    def __init__(self, scenario: str, steps: int) -> None:
        self.scenario = scenario
        self._steps = steps
        self._live = Live()
        self._phase = ""
        self._faults: dict[str, Counter[str]] = {}
        self._names: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()
        self._restarts = 0
        self._resizing = False
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Take in an event of the run."""
        with self._lock:
            self._live(event)
            self._take(event)

    def _take(self, event: Event) -> None:
        match event.kind:
            case "run.phase":
                self._phase = str(event.data["phase"])
            case "run.end":
                self._phase = "judge"
            case "fault.armed" | "fault.fired" | "fault.confirmed":
                self._count(event.kind.removeprefix("fault."), event)
            case "controller.state" if event.data["to"] == "RESIZING":
                self._resizing = True
            case "attempt.start" if event.attempt:
                self._restarts += not self._resizing
                self._resizing = False

    def _count(self, state: str, event: Event) -> None:
        """Each injection counts once; the event that confirms it names no fault."""
        injection = str(event.data["injection"])
        if (injection, state) not in self._told:
            self._told.add((injection, state))
            name = self._names.setdefault(injection, str(event.data.get("fault")))
            self._faults.setdefault(name, Counter())[state] += 1

    def put(self, into: Families) -> None:
        """What is known so far."""
        with self._lock:
            labels = {"scenario": self.scenario}
            into.put(c.RUN_IN_PROGRESS, 1, **labels)
            into.states(c.RUN_PHASE, PHASES, self._phase, "phase", **labels)
            into.put(c.RUN_STEP, self._live.step, **labels)
            if self._steps:
                into.put(c.RUN_TARGET_STEP, self._steps, **labels)
            into.put(c.RUN_RESTARTS, self._restarts, **labels)
            put_faults(self._faults, self.scenario, into)
