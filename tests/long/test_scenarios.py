"""Every scenario of the library as a user runs it: the suite of all, with each one's own expectation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.ledger import Account
from tests.live.command import left_of


@pytest.mark.timeout(3 * 3600)
def test_every_scenario_is_green(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "aftershock", "run", "full", "--json", "--quiet", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    record = json.loads(done.stdout)
    odd = {m["scenario"]: m["reason"] for m in record["members"] if m["verdict"] not in ("pass", "skipped")}
    assert (done.returncode, odd) == (0, {})
    for ledger in tmp_path.glob("*/cluster-*/ledger.jsonl"):
        assert left_of(Account.read(ledger).run_id) == []
