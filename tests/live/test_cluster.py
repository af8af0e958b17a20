"""The local cluster: its members, its end, and two of them on one host."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

from chaos import healing
from chaos.cluster.local import LocalCluster
from chaos.history import HistoryWriter
from chaos.ledger import Ledger
from tests.live.command import left_of


def cluster(folder: Path, workers: int) -> LocalCluster:
    folder.mkdir()
    ledger = Ledger.open(folder, uuid.uuid4().hex[:8])
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    return LocalCluster(workers, 2, ledger.workspace(), ledger, HistoryWriter(folder).emit, environment)


def members(made: LocalCluster, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Ask a cluster for its members with the given credentials."""
    command = [sys.executable, "-m", "chaos.cluster.members", made.address, "2", *(node.address for node in made.nodes)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_two_clusters_on_one_host_do_not_disturb_each_other(tmp_path: Path) -> None:
    first, second = cluster(tmp_path / "a", 1), cluster(tmp_path / "b", 2)
    try:
        first.start()
        second.start()
        assert len({node.node_id for node in (*first.nodes, *second.nodes)}) == 5
        assert members(first, first.client_environment()).returncode == 0
        assert members(second, second.client_environment()).returncode == 0
        stranger = {**second.client_environment(), "RAY_AUTH_TOKEN": first.secret}
        assert members(second, stranger).returncode != 0
        assert healing.close(first.ledger) == []
        assert left_of(first.ledger.run_id) == []
        assert members(second, second.client_environment()).returncode == 0
    finally:
        assert healing.close(first.ledger) + healing.close(second.ledger) == []
    assert left_of(second.ledger.run_id) == []


def test_each_node_is_a_session_of_its_own_processes(tmp_path: Path) -> None:
    made = cluster(tmp_path / "c", 1)
    try:
        made.start()
        sessions = {node.starter.pid for node in made.nodes if node.starter}
        assert len(sessions) == 2
        assert {os.getsid(pid) for pid in _raylets(made)} == sessions
    finally:
        assert healing.close(made.ledger) == []


def _raylets(made: LocalCluster) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                command = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue
            if b"raylet_socket_name" in command and str(made.workspace).encode() in command.split(b"\0")[1]:
                found.append(int(name))
    return found
