"""Following a run while it goes on: new events, the exits of workers, the end of the driver.

Measurements come from the events; how often this looks decides only how soon the harness knows.
"""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chaos.history import Event, HistoryWriter, Tail
from chaos.process import Identity, exit_cause

LOOK_S = 0.02

REAPED_S = 0.02
"""How long a dead process may wait for its parent to take note."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP reached the harness."""


@dataclass(frozen=True)
class Exit:
    """A worker process that is gone: the event of its start, and when its end was seen (nanoseconds).

    ``cause``: how it ended, as the kernel tells it; empty where it does not.
    """

    start: Event
    wall_ns: int
    mono_ns: int
    seen: str
    cause: str

    @classmethod
    def now(cls, start: Event, seen: str, cause: str = "") -> Exit:
        """It is seen to be gone: ``at once`` by its pidfd, or ``late``, being gone before anyone looked."""
        return cls(start, time.time_ns(), time.monotonic_ns(), seen, cause)


def _cause(handle: int) -> str:
    """How the process of a pidfd ended; the kernel tells it once the parent has taken note, a moment later."""
    end = time.monotonic() + REAPED_S
    while not (cause := exit_cause(handle)) and time.monotonic() < end:
        time.sleep(0.001)
    return cause


@dataclass
class ExitWatch:
    """Tells of the exit of worker processes as it happens, by pidfds: no poll, no other's process by mistake."""

    _poll: select.poll = field(default_factory=select.poll, init=False)
    _workers: dict[int, Event] = field(default_factory=dict, init=False)

    def add(self, start: Event) -> Exit | None:
        """Watch the worker that an event ``worker.start`` announces; one that is gone already is returned."""
        identity = Identity(start.pid, int(start.data["start"]))
        try:
            handle = os.pidfd_open(start.pid)
        except ProcessLookupError:
            return Exit.now(start, "late")
        if not identity.alive():
            os.close(handle)
            return Exit.now(start, "late")
        self._poll.register(handle, select.POLLIN)
        self._workers[handle] = start
        return None

    def wait(self, seconds: float) -> list[Exit]:
        """Wait for exits up to a time."""
        gone = []
        for handle, _ in self._poll.poll(seconds * 1000):
            end = Exit.now(self._workers.pop(handle), "at once")
            gone.append(dataclasses.replace(end, cause=_cause(handle)))
            self._poll.unregister(handle)
            os.close(handle)
        return gone

    @property
    def workers(self) -> list[Event]:
        """The starts of those that are not gone."""
        return list(self._workers.values())

    def close(self) -> None:
        """Stop watching."""
        for handle in self._workers:
            self._poll.unregister(handle)
            os.close(handle)
        self._workers.clear()


@dataclass
class Watch:
    """All eyes on one run of a workload; whatever is seen goes to the history.

    ``ticks`` are called after each look.
    """

    directory: Path
    writer: HistoryWriter
    driver: subprocess.Popen[bytes]
    deadline: float
    ticks: tuple[Callable[[], None], ...] = ()
    _tail: Tail = field(init=False)
    _exits: ExitWatch = field(init=False)
    _ended: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._tail = Tail(self.directory)
        self._exits = ExitWatch()

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
        """Take in what happened, waiting for exits up to a time.

        What a process wrote before its end is taken in before its end.
        """
        gone = self._exits.wait(seconds)
        for event in self._tail.new():
            self.writer.append(event)
            if event.kind == "worker.start" and (late := self._exits.add(event)):
                gone.append(late)
        for end in gone:
            self._tell(end)
        for tick in self.ticks:
            tick()

    def _tell(self, end: Exit) -> None:
        start = end.start
        self.writer.emit(
            "process.exit",
            wall_ns=end.wall_ns,
            mono_ns=end.mono_ns,
            attempt=start.attempt,
            rank=start.rank,
            data={"pid": start.pid, "start": start.data["start"], "seen": end.seen, "cause": end.cause},
        )

    def gone(self, seconds: float) -> list[Event]:
        """Wait until every worker is gone, up to a time; returns the starts of those that are not."""
        end = time.monotonic() + seconds
        while self._exits.workers and time.monotonic() < end:
            self.look()
        return self._exits.workers

    def close(self) -> None:
        """Take in the latest events and let go of the workers; ``look`` still works."""
        try:
            self.look(0)
        finally:
            self._exits.close()


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_by_signals() -> None:
    """Make the signals that ask for an end raise Interrupted in the main thread, once; then they are ignored."""

    def handler(number: int, frame: object) -> None:
        ignore_signals()
        raise Interrupted(signal.Signals(number).name)

    for number in ENDING:
        signal.signal(number, handler)


def ignore_signals() -> None:
    """Let nothing interrupt the healing."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def restore_signals() -> None:
    """Back to what a Python program does by itself."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
