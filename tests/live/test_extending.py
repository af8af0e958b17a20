"""Scenarios, faults and checks of somebody's own, on a real cluster; from Python and from pytest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import chaos
from scenarios.starting import starting_point

SHORT = {"steps": 9, "checkpoint_every": 4, "poll_s": 0.1, "corpus_bytes": 60000}

SCENARIO = """
from my_fault import MyFault
from scenarios.words import Arming, Rank, Scenario, at_step, register

register(
    Scenario(
        name="mine",
        title="A fault of somebody's own.",
        inject=lambda shape: (Arming(MyFault(code=9), at_step(6), Rank(1)),),
    )
)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a scenario, a fault and a check of its own."""
    folder = tmp_path_factory.mktemp("project")
    for kind in ("fault", "check"):
        for path, text in starting_point(kind, folder / f"my_{kind}.py").items():
            path.write_text(text)
    (folder / "mine.py").write_text(SCENARIO)
    return folder


def test_a_fault_and_a_check_of_somebodys_own_act_in_a_real_job(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    result = chaos.run("mine.py", files=["my_check.py"], expect="my_check(limit<=20)", set=SHORT, out=project / "out")
    assert result.passed, result
    assert result.check("my-check").verdict == "pass"
    assert "exit code 9" in result.check("fault").seen
    assert result.directory is not None
    for file in ("my_fault.py", "my_check.py", "mine.py"):
        (project / file).rename(project / f"{file}.gone")
    command = [sys.executable, "-m", "aftershock", "analyze", str(result.directory), "--json"]
    again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=chaos.INSTALLATION)
    assert json.loads(again.stdout)["verdict"] == "pass", again.stderr
    for file in ("my_fault.py", "my_check.py", "mine.py"):
        (project / f"{file}.gone").rename(project / file)
