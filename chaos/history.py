"""The history of a run: one append-only event log, the only source of every measurement.

Training processes write their events to files of their own below ``events/``; the harness appends them to
``history.jsonl`` as they come. A reader takes both, so that a history is whole even when the harness died.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec

from chaos import kinds

SCHEMA = 1
NAME = "history.jsonl"
EVENTS = "events"


Few = Annotated[int, msgspec.Meta(ge=-1, le=10_000_000)]
"""Attempts and ranks; a line that tells of more is damaged. A group that failed to start is attempt -1 at first."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """Something that happened.

    ``wall_ns``: nanoseconds since the epoch. ``mono_ns``: nanoseconds of the machine's monotonic clock.
    ``node``: address of the node. ``step``: completed optimizer steps, from 1. ``data``: what the kind adds.
    """

    kind: str
    wall_ns: int
    mono_ns: int
    node: str
    pid: int
    attempt: Few | None = None
    rank: Few | None = None
    world_size: Few | None = None
    step: Annotated[int, msgspec.Meta(ge=0)] | None = None
    data: dict[str, Any] = {}

    @property
    def wall(self) -> float:
        """Seconds since the epoch."""
        return self.wall_ns / 1e9


class StoredStep(Event, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A ``step.end`` as it was stored, its data undecoded: of a long run's memory that is half.

    ``data`` is decoded each time that it is asked for.
    """

    @property  # type: ignore[misc]
    def data(self) -> dict[str, Any]:
        """What the kind adds."""
        return _DATA.decode(Event.data.__get__(self))  # type: ignore[attr-defined]


class _Line(Event, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    data: msgspec.Raw = msgspec.Raw(b"{}")  # type: ignore[assignment]


Observer = Callable[[Event], None]
"""Is told of every event of a run as it becomes known, in that order."""

_DECODER = msgspec.json.Decoder(Event)
_LINES = msgspec.json.Decoder(_Line)
_DATA = msgspec.json.Decoder(dict[str, Any])
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True)
class History:
    """The events of one run in the order of time, and how many lines could not be read."""

    events: tuple[Event, ...]
    unreadable: int = 0

    @classmethod
    def of(cls, events: Iterable[Event], unreadable: int = 0) -> History:
        """Put events in the order of time and drop exact repetitions."""
        same_time = itertools.groupby(sorted(events, key=lambda event: event.wall_ns), lambda event: event.wall_ns)
        return cls(tuple(event for _, group in same_time for event in _different(group)), unreadable)

    @classmethod
    def load(cls, directory: Path) -> History:
        """Read the history of a run directory.

        Raises FileNotFoundError when there is none.
        """
        files = [directory / NAME, *sorted((directory / EVENTS).glob("*.jsonl"))]
        if not files[0].exists():
            raise FileNotFoundError(f"{directory} holds no {NAME}: it is no run directory")
        return cls.of(*_read(files))

    @cached_property
    def _by_kind(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            found[event.kind].append(event)
        return dict(found)

    def select(self, kind: str, **where: Any) -> list[Event]:
        """Events of a kind whose named fields have the given values."""
        return [e for e in self._by_kind.get(kind, ()) if all(getattr(e, k) == v for k, v in where.items())]

    def first(self, kind: str, **where: Any) -> Event | None:
        """The earliest event of a kind, or None."""
        return next(iter(self.select(kind, **where)), None)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)


def _different(events: Iterable[Event]) -> Iterable[Event]:
    """The events without those that equal an earlier one, however either is spelt in its file."""
    found = list(events)
    return {_spelt(event): event for event in found}.values() if len(found) > 1 else found


def _spelt(event: Event) -> bytes:
    return _ENCODER.encode([getattr(event, field) for field in Event.__struct_fields__])


def _read(files: Iterable[Path]) -> tuple[list[Event], int]:
    """The events of these files, and how many lines could not be read."""
    events: list[Event] = []
    unreadable = 0
    words: dict[Any, Any] = {}
    for file in files:
        with file.open("rb") as lines:
            for line in lines:
                try:
                    events.append(_stored(line, words))
                except (msgspec.MsgspecError, RecursionError):
                    unreadable += line != b"\n"
    return events, unreadable


def _stored(line: bytes, words: dict[Any, Any]) -> Event:
    """The event of a line, its words and its pid being the same objects as those of all others before it."""
    read = _LINES.decode(line)
    whole: dict[str, Any] = {field: getattr(read, field) for field in _SHORT}
    for field in ("kind", "node", "pid"):
        whole[field] = words.setdefault(whole[field], whole[field])
    kinds.check(read.kind, read.data)
    if read.kind == "step.end":
        whole["data"] = bytes(read.data)
        return StoredStep(**whole)
    return Event(**whole, data=_DATA.decode(read.data))


_SHORT = [field for field in Event.__struct_fields__ if field != "data"]


class HistoryWriter:
    """Appends events to ``history.jsonl``, the harness's own and those it gathers, and tells each to the observers."""

    def __init__(self, directory: Path, observers: Iterable[Observer] = ()) -> None:
        (directory / EVENTS).mkdir(parents=True, exist_ok=True)
        self._observers = list(observers)
        self._handle = os.open(directory / NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def observe(self, observer: Observer) -> None:
        """Tell one more observer of every event from now on."""
        self._observers.append(observer)

    def emit(self, kind: str, wall_ns: int = 0, mono_ns: int = 0, **fields: Any) -> Event:
        """Record an event of the harness, now or at the given time."""
        wall, mono = wall_ns or time.time_ns(), mono_ns or time.monotonic_ns()
        event = Event(kind=kind, wall_ns=wall, mono_ns=mono, node="harness", pid=os.getpid(), **fields)
        self.append(event)
        return event

    def append(self, event: Event) -> None:
        """Append an event, wherever it was recorded."""
        line = _ENCODER.encode(event) + b"\n"
        if os.write(self._handle, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for observer in self._observers:
            observer(event)

    def close(self) -> None:
        """Flush to disk and close."""
        os.fsync(self._handle)
        os.close(self._handle)


class Tail:
    """Reads what training processes have appended to their event files since the last look."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / EVENTS
        self._read: dict[str, int] = {}

    def new(self) -> list[Event]:
        """Complete lines that are new, decoded; a line still being written waits for the next look."""
        found: list[Event] = []
        for entry in os.scandir(self._folder):
            position = self._read.get(entry.name, 0)
            if entry.stat().st_size > position:
                found += self._from(entry.path, entry.name, position)
        return found

    def _from(self, path: str, name: str, position: int) -> Iterator[Event]:
        with open(path, "rb") as file:
            file.seek(position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read[name] = position + len(whole)
        for line in whole.splitlines():
            try:
                yield _DECODER.decode(line)
            except (msgspec.MsgspecError, RecursionError):
                continue  # the reader of the stored history counts it
