"""SIGKILL to the harness at twenty random moments over all kinds of faults: the next heal leaves nothing."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live.command import kill, left_of, run_directory, start

KILLS = 20
LONGEST_S = 110.0
SCENARIOS = (
    "hang-frozen", "hang-gil", "straggler", "kill-worker", "hang-skipped-collective", "crash-loop", "oom-worker",
    "kill-in-rendezvous", "worker-exception", "missing-report",
)  # fmt: skip


def moments() -> list[tuple[str, float]]:
    """Scenario and seconds, the same in every run of this test."""
    source = random.Random(20)
    return [(SCENARIOS[i % len(SCENARIOS)], source.uniform(2.0, LONGEST_S)) for i in range(KILLS)]


@pytest.mark.parametrize(("scenario", "seconds"), moments())
def test_nothing_is_left_after_heal(scenario: str, seconds: float, tmp_path: Path) -> None:
    process = start(tmp_path, scenario=scenario)
    run_id = run_directory(tmp_path).name.rsplit("-", 1)[1]
    time.sleep(seconds)
    kill(process)
    command = [sys.executable, "-m", "aftershock", "heal"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert left_of(run_id) == []
