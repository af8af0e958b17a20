"""One life of one training process as the agent sees it: its steps, its restore, the faults armed in it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from chaos.agent.events import EventWriter, harmless
from chaos.agent.plan import Injection, Plan
from chaos.faults.base import find_fault

NEAR = 8
"""How many callers up from an optimizer's step the one is looked for that only makes state."""


class Session:
    """Counts optimizer steps, gathers what the workload volunteers, and fires what is armed for this rank."""

    def __init__(self, plan: Plan, writer: EventWriter, rank: int, steps_done: int) -> None:
        self._plan = plan
        self._writer = writer
        self._rank = rank
        self._counts: dict[int, int] = {}
        self._samples: list[list[int]] = []
        self._loss: float | None = None
        self._data_begun = False
        self._restore: Restore | None = None
        self._remove: Callable[[], None] = lambda: None
        self.step = steps_done
        self._steps_before = steps_done

    def start(self, checkpoint_path: str | None) -> None:
        """Begin to listen: to torch's optimizers and, where there is one, to reads of the checkpoint."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        if checkpoint_path:
            self._restore = Restore(checkpoint_path, self._writer)
        self._remove = register_optimizer_step_post_hook(self._after_optimizer_step).remove

    def stop(self) -> None:
        """Stop listening to optimizers."""
        self._remove()

    def samples(self, ids: Iterable[int]) -> None:
        """Add samples to the step under way, as ranges [first, last]."""
        if not self._data_begun:
            self._data_begun = True
            self._writer.emit("data.begin")
        for i in ids:
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
        if _only_makes_state():
            return
        count = self._counts[id(optimizer)] = self._counts.get(id(optimizer), 0) + 1
        if self._steps_before + count <= self.step:
            return
        self.step = self._steps_before + count
        self._end_restore(exact=False)
        rate = optimizer.param_groups[0].get("lr")
        data = {"loss": self._loss, "lr": float(rate) if rate is not None else None, "samples": self._samples}
        self._writer.emit("step.end", step=self.step, data=data)
        self._samples, self._loss = [], None
        for injection in self._plan.injections:
            if injection.rank == self._rank and injection.step == self.step:
                self._fire(injection)

    def _end_restore(self, exact: bool) -> None:
        restore, self._restore = self._restore, None
        if restore is not None:
            restore.end(exact)

    def _fire(self, injection: Injection) -> None:
        """Fire at most once per run: the claim is durable before the fault, so a restarted rank finds it taken."""
        if claim(self._plan, f"fired-{injection.id}"):
            fault = find_fault(injection.fault)
            data = {"injection": injection.id, "fault": injection.fault}
            self._writer.emit("fault.fired", step=self.step, data=data)
            fault.fire()


def _only_makes_state() -> bool:
    """Whether torch takes this step to make empty optimizer state before a load: it is none of the training's."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(NEAR):
        if frame is None:
            return False
        if frame.f_code.co_name == "_init_optim_state":
            return True
        frame = frame.f_back
    return False


class Restore:
    """Watches one process read its checkpoint, by Python's audit events of opened files."""

    def __init__(self, path: str, writer: EventWriter) -> None:
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

    def end(self, exact: bool) -> None:
        """Close the restore: now when the workload said so, else at the last file opened, a lower bound."""
        self._listening = False
        if self._last is not None:
            wall, mono = (0, 0) if exact else self._last
            self._writer.emit("restore.end", wall_ns=wall, mono_ns=mono, data={"exact": exact})


def claim(plan: Plan, name: str) -> bool:
    """Take a name once per run, durably; False when it was taken before."""
    try:
        handle = os.open(plan.board / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    os.fsync(handle)
    os.close(handle)
    folder = os.open(plan.board, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return True


_current: Session | None = None


def begin(session: Session | None) -> None:
    """Make a session the one of this process."""
    global _current
    _current = session


def session() -> Session | None:
    """The session of this process; None outside a run."""
    return _current
