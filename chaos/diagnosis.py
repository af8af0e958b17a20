"""Who stands where when a job hangs: every rank is asked from outside, which works with the interpreter lock held."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from chaos import flight, stacks
from chaos.agent.plan import Plan
from chaos.history import Event, HistoryWriter
from chaos.process import Identity
from chaos.stacks import COLLECTIVE, REPORT, Frame
from chaos.workers import Workers

STILL_S = 4.0
"""No event of any training process for so long, in a group that has made a step: time to ask."""

PATIENCE_S = 5.0
"""How long a process may take to write its stacks; one that has not by then is silent."""

TRAINING = "_run_target"
"""The function of Ray Train at the root of the thread that trains."""

LIBRARIES = ("/site-packages/", "/lib/python")

FAULTS = "/chaos/faults/"

ROOTS = ("/ray/train/v2/_internal/execution/worker_group/", "/ray/train/v2/_internal/util.py")
"""Files of Ray Train that are on the stack of every training thread, below the program's own."""


@dataclass
class Diagnosis:
    """An observer of a run's events; ``tick`` asks when nothing moves, once for each standstill."""

    plan: Plan
    writer: HistoryWriter
    _workers: Workers = field(default_factory=Workers, init=False)
    _running: bool = field(default=False, init=False)
    _stepping: bool = field(default=False, init=False)
    _moved_s: float = field(default=0.0, init=False)
    _asked_s: float = field(default=0.0, init=False)
    _begins: dict[int, int] = field(default_factory=dict, init=False)
    _recording: set[int] = field(default_factory=set, init=False)
    _ends_ns: dict[int, list[int]] = field(default_factory=dict, init=False)

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        self._workers(event)
        match event.kind:
            case "controller.state":
                self._running = event.data["to"] == "RUNNING"
            case "worker.start":
                self._stepping = False
                self._ends_ns.pop(event.rank or 0, None)
            case "step.end":
                self._stepping = True
                ends = self._ends_ns.setdefault(event.rank or 0, [])
                ends[:] = [*ends[-1:], event.wall_ns]
        if event.rank is not None and not event.kind.startswith("fault."):
            self._moved_s = event.mono_ns / 1e9

    def tick(self) -> None:
        """Ask, or read the answers, or do nothing."""
        now = time.monotonic()
        if not (self._running and self._stepping) or now - self._moved_s < STILL_S:
            self._asked_s, self._begins = 0.0, {}
        elif not self._asked_s:
            self._asked_s = now
            self._begins = stacks.ask(self.plan.stacks, self._workers.identities)
            self._recording = flight.ask(self.plan.stacks, self._workers.identities)
        elif self._begins:
            self._answers(now)

    def _answers(self, now: float) -> None:
        """Tell where all stand as soon as all have answered, or when they had time enough."""
        who = self._workers.identities
        asked = sorted(self._begins.keys() & who.keys())
        ranks = {str(rank): self._stand(rank, who[rank], self._begins[rank]) for rank in asked}
        if now - self._asked_s >= PATIENCE_S or all(self._is_told(int(rank), stand) for rank, stand in ranks.items()):
            self._begins = {}
            self.writer.emit("probe.hang", data={"still_s": now - self._moved_s, "ranks": ranks})

    def _stand(self, rank: int, process: Identity, begin: int) -> dict[str, Any]:
        """Where a rank stands: in what kind of call, in which frame, and where its program made that call."""
        if process.stopped():
            return {"standing": "stopped", "frame": "", "site": ""}
        collectives = flight.read(self.plan.stacks, rank, process.pid, self._ends_ns.get(rank, []))
        threads = stacks.read(self.plan.stacks, rank, process.pid, begin)
        training = next((frames for frames in threads if any(f.function == TRAINING for f in frames)), None)
        if training is None:
            return {"standing": "silent", "frame": "", "site": ""}
        return standing(training) | ({"collectives": collectives} if collectives else {})

    def _is_told(self, rank: int, stand: dict[str, Any]) -> bool:
        """Whether all that a rank can tell is there."""
        waits_in_collective = stand["standing"] == "collective" and rank in self._recording
        return stand["standing"] != "silent" and (not waits_in_collective or "collectives" in stand)


def standing(frames: list[Frame]) -> dict[str, Any]:
    """What a training thread waits in, from its stack, the innermost frame first.

    ``standing``: ``collective``, ``report`` or ``elsewhere``. ``frame``: the outermost frame of that call, which names
    the collective, else the innermost of all. ``site``: the program's own frame that made the call.
    """
    root = next((i for i, frame in enumerate(frames) if frame.function == TRAINING), len(frames))
    inner = [frame for frame in frames[:root] if not any(part in frame.file for part in ROOTS)]
    for kind, part in (("collective", COLLECTIVE), ("report", REPORT)):
        within = [i for i, frame in enumerate(inner) if part in frame.file]
        if within and all(_is_library(frame) for frame in inner[: within[0]]):
            return {"standing": kind, "frame": str(_named(inner, within)), "site": _site(inner[within[-1] + 1 :])}
    return {"standing": "elsewhere", "frame": str(inner[0]) if inner else "", "site": _site(inner)}


def _is_library(frame: Frame) -> bool:
    """Whether it is of Python or of a package, and of none of our faults, which may be installed as one."""
    return any(part in frame.file for part in LIBRARIES) and FAULTS not in frame.file


def _named(inner: list[Frame], within: list[int]) -> Frame:
    """The frame that names the call: the outermost one that is no wrapper."""
    return next((inner[i] for i in reversed(within) if inner[i].function not in ("wrapper", "inner")), inner[within[0]])


def _site(frames: list[Frame]) -> str:
    """The innermost frame outside all libraries."""
    own = next((frame for frame in frames if not _is_library(frame)), None)
    return str(own) if own else ""
