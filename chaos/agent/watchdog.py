"""The watchdog: no step on any rank for a while, and the controller restarts the group. Off unless a plan asks for it.

Every worker writes its latest step to a small file; the agent in the controller reads them at each poll. Where nothing
has moved for too long it raises Ray Train's own WorkerGroupError, which is retried like a worker's death, and counts
against ``max_failures`` like one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ray.train.v2.api.exceptions import WorkerGroupError

STARTING_S = 120.0
"""How long an attempt may take to its first step, where the watchdog's own time is shorter."""

WIDTH = 20
"""Bytes of a step in its file, so that one write replaces another whole."""


class NoProgress(TimeoutError):
    """A rank that completed no step for as long as the watchdog waits."""


def path_of(board: Path, attempt: int, rank: int) -> Path:
    """The file of one rank's latest step."""
    return board / f"progress-{attempt}-{rank}"


class Progress:
    """A worker's latest step, for the watchdog to read."""

    def __init__(self, board: Path, attempt: int, rank: int) -> None:
        self._handle = os.open(path_of(board, attempt, rank), os.O_WRONLY | os.O_CREAT, 0o644)

    def tell(self, step: int) -> None:
        """So many steps are complete."""
        os.pwrite(self._handle, f"{step:>{WIDTH}}".encode(), 0)


class Watchdog:
    """Watches one attempt of so many ranks; ``seconds`` without a step on any of them are too many."""

    def __init__(self, board: Path, attempt: int, ranks: int, seconds: float) -> None:
        self._files = {rank: path_of(board, attempt, rank) for rank in range(ranks)}
        self._seconds = seconds
        self._steps: dict[int, int | None] = {}
        self._moved = time.monotonic()

    def look(self) -> dict[int, int | None] | None:
        """The last step of each rank when nothing has moved for too long; None while all is well."""
        steps = {rank: _read(file) for rank, file in self._files.items()}
        if steps != self._steps:
            self._steps, self._moved = steps, time.monotonic()
        begun = any(step is not None for step in steps.values())
        patience = self._seconds if begun else max(self._seconds, STARTING_S)
        return self._steps if time.monotonic() - self._moved >= patience else None

    def error(self, steps: dict[int, int | None]) -> WorkerGroupError:
        """What to raise: the ranks that are furthest behind are named as the failed ones."""
        from ray.train.v2.api.exceptions import WorkerGroupError

        told = ", ".join(f"rank {rank} at step {step or 'none'}" for rank, step in sorted(steps.items()))
        message = f"no step on any rank for {self._seconds:g} s: {told}"
        least = min((step or 0 for step in steps.values()), default=0)
        behind: dict[int, Exception] = {
            rank: NoProgress(message) for rank, step in steps.items() if (step or 0) == least
        }
        return WorkerGroupError(message, behind)


def _read(file: Path) -> int | None:
    try:
        return int(file.read_bytes())
    except (OSError, ValueError):
        return None
