"""Every scenario of the library as a user runs it: the whole way through the command, with its own expectation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.scenario import Scenario, all_scenarios
from tests.live.command import left_of

NAMES = [name for name, one in all_scenarios().items() if isinstance(one, Scenario)]


@pytest.mark.parametrize("name", NAMES)
def test_scenario_is_green(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "aftershock", "run", name, "--json", "--quiet", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert left_of(json.loads(done.stdout)["run"]) == []
