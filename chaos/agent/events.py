"""Writing events from inside a training process: one ``write()`` each, so that a SIGKILL loses nothing."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from chaos.faults.base import InjectedError
from chaos.process import current

F = TypeVar("F", bound=Callable[..., Any])


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
"""Made once: ``json.dumps`` with arguments would make one for each event."""


class EventWriter:
    """The event file of one process. ``common`` fields are added to every event."""

    def __init__(self, folder: Path, node: str) -> None:
        me = current()
        self._handle = os.open(
            folder / f"{node}-{me.pid}-{me.start}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644
        )
        global _latest
        _latest = self
        self._pid = me.pid
        self._node = node
        self.common: dict[str, int] = {}

    def emit(self, kind: str, wall_ns: int = 0, mono_ns: int = 0, **fields: Any) -> None:
        """Record an event, now or at the given time."""
        record = {
            "kind": kind,
            "wall_ns": wall_ns or time.time_ns(),
            "mono_ns": mono_ns or time.monotonic_ns(),
            "node": self._node,
            "pid": self._pid,
            **self.common,
            **fields,
        }
        os.write(self._handle, _encode(record) + b"\n")


def _encode(record: dict[str, Any]) -> bytes:
    """One line of JSON; a number that JSON lacks, as the loss of a diverged run, becomes its name in words."""
    try:
        return _ENCODER.encode(record).encode()
    except ValueError:
        return _ENCODER.encode(_finite(record)).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


_latest: EventWriter | None = None


def harmless(method: F) -> F:
    """Keep an agent method's own mistakes away from the workload; they become events ``agent.error``.

    What a fault raises on purpose goes through.
    """

    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except (InjectedError, MemoryError):
            raise
        except Exception as error:
            _tell(f"{method.__qualname__}: {error!r}")
            return None

    return cast(F, wrapped)


def _tell(text: str) -> None:
    """Record a mistake of the agent's; where that is not possible, standard error is what is left."""
    if _latest is not None:
        with contextlib.suppress(OSError):
            _latest.emit("agent.error", data={"error": text})
            return
    with contextlib.suppress(Exception):
        print(f"aftershock: {text}", file=sys.stderr)
