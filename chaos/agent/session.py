"""One life of one training process as the agent sees it: its steps, its restore, the faults armed in it."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from chaos.agent.events import EventWriter, harmless
from chaos.agent.firing import Firing
from chaos.agent.plan import Plan
from chaos.agent.points import Reach, listen, only_makes_state
from chaos.agent.watchdog import Progress

STACKS = signal.SIGRTMIN + 9
"""The signal that makes a process write the stacks of its threads; its handler runs even with the lock held."""


class Session:
    """Counts optimizer steps, gathers what the workload volunteers, and fires what is armed for this rank."""

    def __init__(self, plan: Plan, writer: EventWriter, rank: int, attempt: int, steps_done: int) -> None:
        self._plan = plan
        self._writer = writer
        self._firing = Firing(plan, writer, rank, attempt, lambda: self.step)
        self._counts: dict[int, int] = {}
        self._samples: list[list[int]] = []
        self._samples_ns = 0
        self._loss: float | None = None
        self._data_begun = False
        self._restore: Restore | None = None
        self._removers: list[Callable[[], None]] = []
        self.step = steps_done
        self._steps_before = steps_done
        self._progress = Progress(plan.board, attempt, rank) if plan.watchdog_s else None

    def start(self, checkpoint_path: str | None) -> None:
        """Begin to listen: to torch's optimizers, to what is armed, and to reads of a checkpoint where there is one."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        phases = self._firing.phases
        if checkpoint_path:
            reach = self.reach if "restore" in phases else None
            self._restore = Restore(checkpoint_path, self._writer, reach)
        self._removers = [register_optimizer_step_post_hook(self._after_optimizer_step).remove]
        self._removers += listen(phases, self.reach)
        self._firing.resume_clock()

    def stop(self) -> None:
        """Stop listening."""
        for remove in self._removers:
            remove()

    @harmless
    def reach(self, phase: str, place: str = "") -> None:
        """This process stands at a point where something may be due; ``place``: the folder it is about."""
        self._firing.reach(phase, place)

    def samples(self, ids: Iterable[int]) -> None:
        """Add samples to the step under way, as ranges [first, last]."""
        if not self._data_begun:
            self._data_begun = True
            self._writer.emit("data.begin")
        now = time.time_ns()
        for i in ids:
            self._samples_ns = self._samples_ns or now
            if self._samples and self._samples[-1][1] == i - 1:
                self._samples[-1][1] = i
            else:
                self._samples.append([i, i])

    def loss(self, value: float) -> None:
        """Set the loss of the step under way."""
        self._loss = value

    def state(self, name: str, tree: Any) -> None:
        """Record digests of every part of a state tree."""
        if name == "restored":
            self._end_restore(exact=True)
        from chaos.digest import tree_digests

        begin = time.monotonic_ns()
        parts = tree_digests(tree)
        cost = time.monotonic_ns() - begin
        self._writer.emit("state", step=self.step, data={"name": name, "parts": parts, "cost_ns": cost})

    @harmless
    def _after_optimizer_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Several optimizers fold into one step: a step is counted by the optimizer that has stepped most often."""
        if only_makes_state(2):
            return
        count = self._counts[id(optimizer)] = self._counts.get(id(optimizer), 0) + 1
        if self._steps_before + count <= self.step:
            return
        self.step = self._steps_before + count
        self._end_restore(exact=False)
        rate = optimizer.param_groups[0].get("lr")
        data = {"loss": self._loss, "lr": float(rate) if rate is not None else None, "samples": self._samples}
        if self._samples_ns:
            data["data_ns"] = self._samples_ns
        self._writer.emit("step.end", step=self.step, data=data)
        self._samples, self._samples_ns, self._loss = [], 0, None
        if self._progress is not None:
            self._progress.tell(self.step)
        self._firing.begin_clock()
        self._firing.reach("step")

    def _end_restore(self, exact: bool) -> None:
        restore, self._restore = self._restore, None
        if restore is not None:
            restore.end(exact)


class Restore:
    """Watches one process read its checkpoint, by Python's audit events of opened files."""

    def __init__(self, path: str, writer: EventWriter, reach: Reach | None = None) -> None:
        self._reach = reach
        self._prefix = path.rstrip("/") + "/"
        self._writer = writer
        self._last: tuple[int, int] | None = None
        self._listening = True
        self._lock = threading.Lock()
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        """Note an opened file; audit hooks cannot be removed, so after the restore this returns at once."""
        if self._listening and event == "open":
            self._opened(args[0])

    @harmless
    def _opened(self, name: Any) -> None:
        if not isinstance(name, (str, bytes, os.PathLike)) or not os.fsdecode(name).startswith(self._prefix):
            return
        with self._lock:
            begun = self._last is not None
            self._last = (time.time_ns(), time.monotonic_ns())
        if not begun:
            self._writer.emit("restore.begin", data={"checkpoint": os.path.basename(self._prefix[:-1])})
            if self._reach is not None:
                self._reach("restore", self._prefix[:-1])

    def end(self, exact: bool) -> None:
        """Close the restore: now when the workload said so, else at the last file opened, a lower bound."""
        self._listening = False
        if self._last is not None:
            wall, mono = (0, 0) if exact else self._last
            self._writer.emit("restore.end", wall_ns=wall, mono_ns=mono, data={"exact": exact})


def write_stacks_on_signal(folder: Path, rank: int) -> None:
    """Let this process write the stacks of all its threads to a file of its own whenever it is sent ``STACKS``."""
    path = folder / f"rank{rank}-{os.getpid()}.txt"
    faulthandler.register(STACKS, file=path.open("w"), all_threads=True)


_current: Session | None = None


def begin(session: Session | None) -> None:
    """Make a session the one of this process."""
    global _current
    _current = session


def session() -> Session | None:
    """The session of this process; None outside a run."""
    return _current
