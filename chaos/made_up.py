"""A stored run that is made up, on which a check of one's own can be tried without a cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RECORD: dict[str, Any] = {
    "schema": 2, "run": "00000000", "scenario": "made-up", "title": "A run that is made up.", "command": "", "seed": 0,
    "checkpoint_every": 10, "keep": 2, "max_failures": 3, "poll_s": 0.5, "control": False, "expect": "completes()",
    "timeouts": {}, "injections": [], "settings": {}, "versions": {},
}  # fmt: skip
"""What was asked for, but for the numbers of ranks and steps."""

BARE: dict[str, Any] = {"lr": None, "samples": []}
"""What a step tells beside its loss: nothing."""


def made_up(
    directory: Path, *, losses: Sequence[float] = (), workers: int = 2, events: Iterable[Mapping[str, Any]] = ()
) -> Path:
    """Write the record and the history of a run that ends well; returns its directory.

    ``losses``: the loss of each step, from 1, the same on every rank. ``events``: further ones, in their order, each
    with a ``kind`` and, where they apply, ``attempt``, ``rank``, ``step`` and ``data``; they come after the steps.
    """
    directory.mkdir(parents=True)
    steps: list[Mapping[str, Any]] = [
        {
            "kind": "step.end",
            "attempt": 0,
            "rank": rank,
            "world_size": workers,
            "step": step,
            "data": {**BARE, "loss": loss},
        }
        for step, loss in enumerate(losses, 1)
        for rank in range(workers)
    ]
    start: Mapping[str, Any] = {"kind": "run.start", "data": {"schema": 1, "run": RECORD["run"]}}
    exit_ = {"kind": "workload.exit", "data": {"code": 0}}
    ends: list[Mapping[str, Any]] = [exit_, {"kind": "run.healed", "data": {"errors": []}}, {"kind": "run.end"}]
    record = {**RECORD, "workers": workers, "steps": len(losses)}
    (directory / "scenario.json").write_text(json.dumps(record, indent=1))
    began = time.time_ns()
    lines = [
        {"wall_ns": began + at, "mono_ns": at, "node": "made-up", "pid": 1, **event}
        for at, event in enumerate([start, *steps, *events, *ends], 1)
    ]
    (directory / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory
