"""Stored runs of many nights, made up: their noise, their verdicts, their directories. Nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from metrics.goodput import BUCKETS
from metrics.recovery import PHASES
from metrics.summary import (
    CheckRecord,
    GoodputRecord,
    PhaseTime,
    RecoveryRecord,
    Summary,
    TimeRecord,
)

SPREAD = float(np.sqrt(np.log1p(0.15**2)))
"""Standard deviation of the logarithm, for a coefficient of variation of 15 %."""

OUTLIERS, OUTLIER = 0.02, 3.0
CHECKS = ("history", "fault", "residue", "recovered", "restarts", "lost-steps", "completed", "resume-step")
BEGIN = datetime(2026, 1, 1, 2, 0, 0)
CODES = {"pass": 0, "fail": 1, "unknown": 2}


def noise(random: np.random.Generator, histories: int, nights: int) -> np.ndarray:
    """Logarithms of recoveries around 0, one history a row: lognormal, with 2 % outliers of three times."""
    lognormal = random.normal(0.0, SPREAD, (histories, nights))
    return lognormal + np.log(OUTLIER) * (random.random((histories, nights)) < OUTLIERS)


def summary(
    scenario: str = "kill-worker", seconds: float | None = 20.0, verdict: str = "pass", **changes: Any
) -> Summary:
    """A run whose recovery took so long, in nine equal phases; None for one that has no recovery."""
    failed = {} if verdict == "pass" else {"lost-steps": verdict}
    values: dict[str, Any] = dict(
        schema=1, run="0badcafe", scenario=scenario, title="t", verdict=verdict, exit_code=CODES[verdict], reason="r",
        seed=0, workers=2, steps=40, expect="recovers()", restarts=1, injections=[], repeat="c", known_issue="",
        recoveries=[] if seconds is None else [recovery(seconds)], versions={"ray": "2.60.0"},
        checks=[check(name, failed.get(name, "pass")) for name in CHECKS],
        time=TimeRecord(wall_s=60.0, cluster_start_s=5.0, workload_s=50.0, control_s=0.0, harness_s=5.0),
        goodput=GoodputRecord(wall_s=50.0, share=0.2, rank_seconds_lost=80.0, seconds=dict.fromkeys(BUCKETS, 5.0)),
    )  # fmt: skip
    return Summary(**{**values, **changes})


def recovery(seconds: float, missing: str = "", lost: int = 5) -> RecoveryRecord:
    phases = [PhaseTime(name, seconds / len(PHASES), "event of the controller (1 ms)", 1) for name in PHASES]
    return RecoveryRecord(
        injection="kill-0", fault="kill", rank=1, step=25, phase="step", total_s=seconds, phases=phases,
        missing=missing, step_before=25, resume_step=20, lost_steps=lost, lost_samples=240, first_step_s=seconds - 1,
    )  # fmt: skip


def check(name: str, verdict: str = "pass") -> CheckRecord:
    seen = {f"kill-{place}": {"injection": f"kill-{place}", "after_ms": 89.1, "seen": "at once"} for place in range(5)}
    return CheckRecord(name=name, verdict=verdict, expected="e", seen="s", where="history.jsonl", evidence=seen)


def stamp(night: int) -> str:
    return f"{BEGIN + timedelta(days=night):%Y%m%d-%H%M%S}"


def day(night: int) -> str:
    return f"{BEGIN + timedelta(days=night):%Y-%m-%d}"


def store(out: Path, night: int, found: Summary) -> Path:
    """A run directory, named as ours are; returns it."""
    folder = out / f"{stamp(night)}-{found.scenario}-{night:08x}"
    folder.mkdir(parents=True)
    (folder / "scenario.json").write_text("{}")
    (folder / "verdict.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
    return folder


def store_all(out: Path, seconds: Sequence[float | None], scenario: str = "kill-worker", verdicts: str = "") -> None:
    """A run a night; ``verdicts``: p, f and u for those that do not all pass."""
    words = {"p": "pass", "f": "fail", "u": "unknown"}
    for night, time in enumerate(seconds):
        verdict = words[verdicts[night]] if night < len(verdicts) else "pass"
        store(out, night, summary(scenario, time, verdict))
