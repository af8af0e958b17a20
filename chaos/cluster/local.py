"""Real Ray nodes on this machine: a head without CPUs and N workers, each a session of processes of its own.

Every node has a loopback address and a temporary directory of its own. So nodes can start at the same time without
racing for socket and log names, and two clusters of two users on one host do not meet: ports are free ones, and a
token made for this cluster is demanded of every process.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from chaos.agent.plan import NODE
from chaos.ledger import Ledger
from chaos.process import MARKER

START_TIMEOUT_S = 120.0
PROBE_TIMEOUT_S = 30.0
OBJECT_STORE_BYTES = 200 * 1024 * 1024


class Emit(Protocol):
    """How the cluster tells what happens to it."""

    def __call__(self, kind: str, **fields: Any) -> object:
        """Record an event of that kind."""


class ClusterFailed(RuntimeError):
    """A node did not start; the message holds the last lines of what it said."""


@dataclass
class Node:
    """One Ray node: its name, address, CPUs, and, once started, the session of its processes."""

    name: str
    address: str
    cpus: int
    folder: Path
    starter: subprocess.Popen[bytes] | None = None
    node_id: str = ""

    @property
    def log(self) -> Path:
        """What ``ray start`` printed."""
        return self.folder.with_suffix(".log")


@dataclass
class LocalCluster:
    """A cluster that lives in ``workspace``. Its end is the ledger's: one recipe ends it on every path.

    ``workers``: nodes beside the head. ``node_environment``: what a node of that name has beyond ``environment``.
    """

    workers: int
    cpus_per_node: int
    workspace: Path
    ledger: Ledger
    emit: Emit
    environment: Mapping[str, str]
    node_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list, init=False)
    address: str = field(default="", init=False)
    secret: str = field(default_factory=lambda: secrets.token_hex(16), init=False, repr=False)

    def __post_init__(self) -> None:
        # 127/8 is loopback throughout; a random third of it keeps clusters apart.
        subnet = f"127.{secrets.randbelow(190) + 64}.{secrets.randbelow(254) + 1}"
        self.nodes = [self._node("head", f"{subnet}.10", 0)]
        self.nodes += [self._node(f"w{i}", f"{subnet}.{11 + i}", self.cpus_per_node) for i in range(self.workers)]

    def _node(self, name: str, address: str, cpus: int) -> Node:
        return Node(name, address, cpus, self.workspace / name)

    @property
    def head(self) -> Node:
        """The node of the GCS and of the driver."""
        return self.nodes[0]

    def client_environment(self) -> dict[str, str]:
        """Environment of a process that joins this cluster; what it leaves in TMPDIR goes with the cluster."""
        return {
            **self.environment,
            MARKER: self.ledger.run_id,
            "TMPDIR": str(self.workspace / "tmp"),
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.secret,
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def start(self) -> None:
        """Start every node and wait until the GCS knows them all.

        Raises ClusterFailed when one does not come up.
        """
        (self.workspace / "tmp").mkdir()
        begin = time.monotonic()
        self._spawn(self.head, "--head", "--port=0", "--include-dashboard=false", "--no-monitor")
        self._await(self.head, begin)
        port = next(self.head.folder.glob("session_2*/gcs_server_port_*")).read_text().strip()
        self.address = f"{self.head.address}:{port}"
        for node in self.nodes[1:]:
            self._spawn(node, f"--address={self.address}")
        members = self._spawn_members()
        for node in self.nodes[1:]:
            self._await(node, begin)
        self._check_members(members)
        self.emit("cluster.up", data={"seconds": time.monotonic() - begin, "nodes": len(self.nodes)})

    def _spawn(self, node: Node, *options: str) -> None:
        command = [
            sys.executable, "-m", "ray.scripts.scripts", "start", *options,
            f"--node-ip-address={node.address}", f"--num-cpus={node.cpus}", "--num-gpus=0",
            f"--object-store-memory={OBJECT_STORE_BYTES}", "--min-worker-port=0", "--max-worker-port=0",
            f"--temp-dir={node.folder}", "--disable-usage-stats",
        ]  # fmt: skip
        environment = {k: v for k, v in self.client_environment().items() if k != "RAY_ADDRESS"}
        environment |= {NODE: node.name, **self.node_environment.get(node.name, {})}
        with node.log.open("wb") as log:
            node.starter = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                cwd=self.workspace, start_new_session=True,
            )  # fmt: skip
        self.ledger.started(node.starter.pid)
        self.emit("cluster.node.start", data=self._told(node))

    def _await(self, node: Node, begin: float) -> None:
        assert node.starter is not None
        try:
            code = node.starter.wait(max(1.0, begin + START_TIMEOUT_S - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = -1
        if code:
            tail = node.log.read_text(errors="replace")[-1500:]
            raise ClusterFailed(f"Ray node {node.name} at {node.address} did not start:\n{tail}")
        self.emit("cluster.node.up", data=self._told(node))

    def _told(self, node: Node) -> dict[str, Any]:
        assert node.starter is not None
        return {"name": node.name, "address": node.address, "cpus": node.cpus, "session": node.starter.pid}

    def _spawn_members(self) -> subprocess.Popen[str]:
        return self._ask("members", str(START_TIMEOUT_S), *(node.address for node in self.nodes))

    def _ask(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        """A question to the GCS, in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-P", "-m", f"chaos.cluster.{module}", self.address, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.client_environment(), cwd=self.workspace, start_new_session=True,
        )  # fmt: skip

    def left_behind(self, seconds: float) -> dict[str, Any]:
        """Actors and placement groups that outlive a job by so many seconds; ``error`` when nobody could tell."""
        probe = self._ask("left", str(seconds))
        try:
            output, errors = probe.communicate(timeout=seconds + PROBE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            probe.kill()
            probe.communicate()
            return {"error": "the GCS did not answer"}
        if probe.returncode:
            return {"error": errors.strip()[-500:]}
        answer: dict[str, Any] = json.loads(output)
        return answer

    def _check_members(self, members: subprocess.Popen[str]) -> None:
        output, errors = members.communicate()
        if members.returncode:
            raise ClusterFailed(f"the cluster did not gather: {errors.strip()[-1500:]}")
        ids = json.loads(output)
        for node in self.nodes:
            node.node_id = ids[node.address]
