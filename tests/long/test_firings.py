"""Twenty kills in one job: each exactly at its step, each survived, and nothing grows from restart to restart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from chaos.history import History
from tests.live.command import left_of, run_directory

KILLS = 20


def test_twenty_of_twenty_firings_hit_their_step(tmp_path: Path) -> None:
    settings = (f"max_failures={KILLS}", f"steps={2 * KILLS + 6}")
    sets = [word for text in settings for word in ("--set", text)]
    command = [sys.executable, "-m", "aftershock", "run", "kill-repeatedly", "--json", "--deadline", "2400", *sets]
    command += ["--expect", "recovers(within=180)"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    directory = run_directory(tmp_path)
    history = History.load(directory)
    fired = {e.data["injection"]: e for e in history.select("fault.fired")}
    wanted = {i["id"]: i for i in json.loads((directory / "scenario.json").read_text())["injections"]}
    assert len(wanted) == len(fired) == KILLS
    assert all((fired[k].rank, fired[k].step) == (w["rank"], w["trigger"]["step"]) for k, w in wanted.items())
    assert verdict["restarts"] == KILLS
    for recovery in verdict["recoveries"]:
        assert abs(sum(p["seconds"] for p in recovery["phases"]) - recovery["total_s"]) < 1e-3
    assert left_of(verdict["run"]) == []
