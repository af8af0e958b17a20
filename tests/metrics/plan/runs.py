"""A run directory as the planner reads it: the run that the README shows, with its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from chaos.history import NAME, Event
from metrics.goodput import BUCKETS
from metrics.summary import SCHEMA, GoodputRecord, PhaseTime, RecoveryRecord, Summary, TimeRecord

RUN = "20261130-051925-kill-worker-4937e630"

PHASES_S = {
    "detect": 0.104, "grace": 0.0, "teardown": 0.187, "schedule": 0.0, "start": 8.776, "rendezvous": 0.887,
    "setup": 5.618, "restore": 0.595, "replay": 7.922,
}  # fmt: skip

DOWN_S = 15.572
"""What comes before the load, by hand."""

SAVES, STALL_S = 4, 1.2


def recovery(missing: str = "", **phases: float) -> RecoveryRecord:
    told = {**PHASES_S, **phases}
    return RecoveryRecord(
        injection="kill-0", fault="kill", rank=1, step=25, phase="step", total_s=sum(told.values()), missing=missing,
        step_before=25, resume_step=20, lost_steps=5, lost_samples=240,
        phases=[PhaseTime(name, seconds, "1 ms") for name, seconds in told.items()],
    )  # fmt: skip


def summary(*recoveries: RecoveryRecord, **changes: Any) -> Summary:
    seconds = {**dict.fromkeys(BUCKETS, 0.0), "save_stall": STALL_S}
    values: dict[str, Any] = dict(
        schema=SCHEMA, run="4937e630", scenario="kill-worker", title="t", verdict="pass", exit_code=0, reason="r",
        seed=0, workers=2, steps=40, expect="recovers()", restarts=1, injections=[],
        recoveries=list(recoveries or [recovery()]), checks=[],
        time=TimeRecord(wall_s=124.5, cluster_start_s=7.5, workload_s=67.5, control_s=42.4, harness_s=7.2),
        goodput=GoodputRecord(wall_s=67.5, share=0.167, rank_seconds_lost=112.4, seconds=seconds),
        repeat="c", known_issue="", versions={},
    )  # fmt: skip
    return Summary(**{**values, **changes})


def write(place: Path, told: Summary | None = None, saves: int = SAVES) -> Path:
    """Store it: the verdict, and a history of its saves by two ranks."""
    directory = place / "runs" / RUN
    directory.mkdir(parents=True)
    (directory / "verdict.json").write_bytes(msgspec.json.encode(told or summary()))
    where = {"kind": "checkpoint.transfer.begin", "node": "w0", "pid": 1, "attempt": 0}
    events = [
        Event(**where, wall_ns=step, mono_ns=step, rank=rank, step=step)
        for step in range(10, 10 * saves + 1, 10)
        for rank in (0, 1)
    ]
    (directory / NAME).write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return directory
