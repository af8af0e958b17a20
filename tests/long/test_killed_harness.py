"""SIGKILL to the harness at twenty random moments over all kinds of faults, and SIGTERM in mid-recovery."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.exits import ExitCode
from tests.live.command import await_event, kill, left_of, run_directory, start

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


def test_a_run_terminated_in_mid_recovery_is_aborted_and_healed(tmp_path: Path) -> None:
    process = start(tmp_path)
    directory = run_directory(tmp_path)
    await_event(directory, process, "controller.state", to="RESTARTING")
    os.kill(process.pid, signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.ABORTED, output + errors
    assert left_of(directory.name.rsplit("-", 1)[1]) == []
