"""Following a run while it goes on: new events, the exits of workers, the end of the driver.

Measurements come from the events; how often this looks decides only how soon the harness knows.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chaos.history import Event, HistoryWriter, Tail
from chaos.process import Identity

LOOK_S = 0.02


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM reached the harness."""


@dataclass
class ExitWatch:
    """Tells of the exit of worker processes as it happens, by pidfds: no poll, no other's process by mistake."""

    writer: HistoryWriter
    _poll: select.poll = field(default_factory=select.poll, init=False)
    _workers: dict[int, Event] = field(default_factory=dict, init=False)

    def add(self, start: Event) -> None:
        """Watch the worker that an event ``worker.start`` announces; one that is gone already is told at once."""
        identity = Identity(start.pid, int(start.data["start"]))
        try:
            handle = os.pidfd_open(start.pid)
        except ProcessLookupError:
            self._gone(start, seen="late")
            return
        if identity.alive():
            self._poll.register(handle, select.POLLIN)
            self._workers[handle] = start
        else:
            os.close(handle)
            self._gone(start, seen="late")

    def wait(self, seconds: float) -> None:
        """Wait for exits up to a time, and tell of each."""
        for handle, _ in self._poll.poll(seconds * 1000):
            start = self._workers.pop(handle)
            self._poll.unregister(handle)
            os.close(handle)
            self._gone(start, seen="at once")

    def _gone(self, start: Event, seen: str) -> None:
        data = {"pid": start.pid, "start": start.data["start"], "seen": seen}
        self.writer.emit("process.exit", attempt=start.attempt, rank=start.rank, data=data)

    def close(self) -> None:
        """Stop watching."""
        for handle in self._workers:
            self._poll.unregister(handle)
            os.close(handle)
        self._workers.clear()


@dataclass
class Watch:
    """All eyes on one run of a workload; whatever is seen goes to the history."""

    directory: Path
    writer: HistoryWriter
    driver: subprocess.Popen[bytes]
    deadline: float
    _tail: Tail = field(init=False)
    _exits: ExitWatch = field(init=False)
    _ended: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._tail = Tail(self.directory)
        self._exits = ExitWatch(self.writer)

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed (seconds of the monotonic clock)."""
        return time.monotonic() > self.deadline

    def until(self, condition: Callable[[], bool]) -> bool:
        """Look on until the condition holds; False when the driver ended, or the deadline passed, before that."""
        while not condition():
            if self._ended or self.expired:
                return False
            ended = self.driver.poll() is not None
            self.look()
            self._ended = ended
        return True

    def look(self, seconds: float = LOOK_S) -> None:
        """Take in what happened, waiting for exits up to a time."""
        self._exits.wait(seconds)
        for event in self._tail.new():
            self.writer.append(event)
            if event.kind == "worker.start":
                self._exits.add(event)

    def close(self) -> None:
        """Take in the latest events and let go of the workers; ``look`` still works."""
        self.look(0)
        self._exits.close()


def interrupt_by_signals() -> None:
    """Make SIGINT and SIGTERM raise Interrupted in the main thread."""

    def handler(number: int, frame: object) -> None:
        raise Interrupted(signal.Signals(number).name)

    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, handler)


def ignore_signals() -> None:
    """Let nothing interrupt the healing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
