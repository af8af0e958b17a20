"""Tests of somebody's own that share one suite, and so one cluster, through the plugin of pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import chaos

SHORT = {"steps": 9, "checkpoint_every": 4, "poll_s": 0.1, "corpus_bytes": 60000}


def test_tests_share_a_suite_on_a_real_cluster(tmp_path: Path) -> None:
    settings = ", ".join(f"{key!r}: {value}" for key, value in SHORT.items())
    (tmp_path / "test_shared.py").write_text(
        "import pytest\n\n"
        f"@pytest.mark.aftershock('kill-worker', 'kill-rank-zero', step=6, set={{{settings}}})\n"
        "def test_it(aftershock_result):\n"
        "    assert aftershock_result.restarts == 1\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", str(tmp_path / "test_shared.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=500, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(chaos.INSTALLATION)},
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    (record,) = (json.loads(file.read_text()) for file in tmp_path.glob("runs/*-selection-*/suite.json"))
    assert record["clusters"] == 1
