"""A suite on a real cluster: nodes that are lost and frozen, one cluster and one control run for both members."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from chaos.history import History
from chaos.ledger import Account
from tests.live.command import OURS, await_event, kill, left_of, run_directory

SHORT = ("steps=14", "checkpoint_every=4", "poll_s=0.1", "corpus_bytes=60000")


def start(out: Path, *names: str) -> subprocess.Popen[str]:
    sets = [word for text in SHORT for word in ("--set", text)]
    command = [*OURS, "run", *names, "--out", str(out), "--step", "7", "--json", *sets]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def clusters(suite: Path) -> list[str]:
    """The ids by which the suite's clusters are known to this machine."""
    return [Account.read(file).run_id for file in suite.glob("cluster-*/ledger.jsonl")]


def test_a_node_is_lost_and_another_freezes_on_one_cluster(tmp_path: Path) -> None:
    process = start(tmp_path, "drop-node", "freeze-node-short")
    output, errors = process.communicate(timeout=500)
    assert process.returncode == 0, output + errors
    record, suite = json.loads(output), run_directory(tmp_path)
    assert (record["clusters"], len(record["controls"]), len(record["members"])) == (1, 1, 2)
    lost, frozen = (suite / member["directory"] for member in record["members"])
    assert {"cluster.node.lost", "cluster.node.dead", "cluster.node.alive"} <= {e.kind for e in History.load(lost)}
    assert History.load(frozen).first("cluster.shared") is not None
    assert [member["restarts"] for member in record["members"]] == [1, 0]
    assert [left_of(run_id) for run_id in clusters(suite)] == [[]]


def test_a_suite_that_is_killed_leaves_nothing_after_heal(tmp_path: Path) -> None:
    process = start(tmp_path, "drop-node", "freeze-node-short")
    suite = run_directory(tmp_path)
    await_event(run_directory(suite), process, "cluster.node.up", name="head")
    (run_id,) = clusters(suite)
    assert left_of(run_id)
    kill(process)
    subprocess.run([sys.executable, "-m", "aftershock", "heal"], check=True, timeout=60)
    assert left_of(run_id) == []
