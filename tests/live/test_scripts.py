"""Scripts of somebody's own, as they are, on a real cluster; one with a bug of its own in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from chaos import INSTALLATION

EXAMPLES = INSTALLATION / "examples"


def run(script: Path, out: Path, *words: str, scenario: str = "kill-worker") -> tuple[int, dict[str, Any], str]:
    """Run a scenario on a script: exit code, verdict, and what was told besides."""
    command = [sys.executable, "-m", "aftershock", "run", scenario, "--out", str(out), "--json", "--quiet"]
    done = subprocess.run(
        [*command, "--", sys.executable, str(script), *words], capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, "PYTHONPATH": str(INSTALLATION)}, cwd=out.parent,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def seen(verdict: dict[str, Any], check: str) -> tuple[str, str]:
    """Verdict of a check, and what it saw."""
    (found,) = [one for one in verdict["checks"] if one["name"] == check]
    return found["verdict"], found["seen"]


def test_a_script_with_every_default_is_red_by_the_rule_that_ended_it(tmp_path: Path) -> None:
    home = Path("~/ray_results").expanduser()
    before = sorted(home.glob("*"))
    code, verdict, told = run(EXAMPLES / "ddp_torch_save.py", tmp_path / "out")
    assert code == 1, told
    assert seen(verdict, "restarts")[0] == "fail"
    assert "FailureConfig(max_failures=0), which is Ray Train's default" in seen(verdict, "restarts")[1]
    assert seen(verdict, "samples")[0] == "not-applicable"
    assert sorted(home.glob("*")) == before
    (directory,) = (tmp_path / "out").glob("*-kill-worker-*")
    assert list(directory.glob("storage/*/checkpoint_*/state.pt"))
    assert list(directory.glob("control/storage/*/checkpoint_*/state.pt"))


def test_a_script_that_forgets_its_optimizer_is_red_with_the_value_and_the_step(tmp_path: Path) -> None:
    text = (EXAMPLES / "fsdp2_dcp.py").read_text()
    right = "done = resume(model, optimizer)"
    assert right in text
    script = tmp_path / "train.py"
    script.write_text(text.replace(right, f"{right}\n    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)"))
    code, verdict, told = run(script, tmp_path / "out", "--steps", "20", "--every", "5")
    assert code == 1, told
    assert seen(verdict, "control-state")[0] == "fail"
    assert "at step 15" in seen(verdict, "control-state")[1]
    assert {one["name"] for one in verdict["checks"] if one["verdict"] == "fail"} == {"control-state"}
