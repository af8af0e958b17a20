"""Real Ray nodes on this machine: a head without CPUs and N workers, each a session of processes of its own.

Every node has a loopback address and a temporary directory of its own. So nodes can start at the same time without
racing for socket and log names, and two clusters of two users on one host do not meet: ports are free ones, and a
token made for this cluster is demanded of every process.
"""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from chaos.agent.plan import NODE
from chaos.ledger import Ledger
from chaos.process import MARKER, Identity, name_of, ours, session_of

START_TIMEOUT_S = 120.0
PROBE_TIMEOUT_S = 30.0
LOSE_TIMEOUT_S = 10.0
LOOK_S = 0.05
OBJECT_STORE_BYTES = 200 * 1024 * 1024


class Emit(Protocol):
    """How the cluster tells what happens to it."""

    def __call__(self, kind: str, **fields: Any) -> object:
        """Record an event of that kind."""


class ClusterFailed(RuntimeError):
    """A node did not start; the message holds the last lines of what it said."""


@dataclass
class Node:
    """One Ray node: its name, address, CPUs, labels, and, once started, the session of its processes.

    ``lives``: how often it has been started; each life has a folder of its own. ``lost``: whether it was killed, last
    at ``lost_ns`` of the monotonic clock.
    """

    name: str
    address: str
    cpus: int
    workspace: Path
    labels: Mapping[str, str] = field(default_factory=dict)
    starter: subprocess.Popen[bytes] | None = None
    node_id: str = ""
    lives: int = 0
    lost: bool = False
    lost_ns: int = 0

    @property
    def folder(self) -> Path:
        """Ray's temporary directory of its present life."""
        return self.workspace / (self.name if self.lives < 2 else f"{self.name}.{self.lives}")

    @property
    def log(self) -> Path:
        """What ``ray start`` printed."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def processes(self) -> list[Identity]:
        """Its live processes: those of the run's that are in its session."""
        assert self.starter is not None
        session = self.starter.pid
        found = ours(self.workspace.name, frozenset([session]), self.workspace)
        return [process for process in found if session_of(process.pid) == session]


@dataclass
class LocalCluster:
    """A cluster that lives in ``workspace``. Its end is the ledger's: one recipe ends it on every path.

    ``workers``: nodes beside the head, named w0, w1 and so on. ``node_environment``: what a node of that name has
    beyond ``environment``; ``labels``: Ray's labels of a node of that name.
    """

    workers: int
    cpus_per_node: int
    workspace: Path
    ledger: Ledger
    emit: Emit
    environment: Mapping[str, str]
    node_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list, init=False)
    address: str = field(default="", init=False)
    secret: str = field(default_factory=lambda: secrets.token_hex(16), init=False, repr=False)

    def __post_init__(self) -> None:
        # 127/8 is loopback throughout; a random third of it keeps clusters apart.
        self._subnet = f"127.{secrets.randbelow(190) + 64}.{secrets.randbelow(254) + 1}"
        self.nodes = [Node("head", f"{self._subnet}.10", 0, self.workspace)]
        for _ in range(self.workers):
            self.nodes.append(self._further())

    def _further(self) -> Node:
        """One more node, not started."""
        number = len(self.nodes) - 1
        name, address = f"w{number}", f"{self._subnet}.{11 + number}"
        return Node(name, address, self.cpus_per_node, self.workspace, self.labels.get(name, {}))

    def node(self, name: str) -> Node:
        """The node of that name.

        Raises ClusterFailed when there is none.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise ClusterFailed(f"the cluster has no node '{name}': {', '.join(node.name for node in self.nodes)}")

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
        node.lives, node.lost, node.node_id = node.lives + 1, False, ""
        if node.labels:
            options = (*options, "--labels", ",".join(f"{key}={value}" for key, value in node.labels.items()))
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
        self._started(node, code)

    def _started(self, node: Node, code: int) -> None:
        if code:
            tail = node.log.read_text(errors="replace")[-1500:]
            raise ClusterFailed(f"Ray node {node.name} at {node.address} did not start:\n{tail}")
        self.emit("cluster.node.up", data=self._told(node))

    def _told(self, node: Node) -> dict[str, Any]:
        assert node.starter is not None
        told = {"name": node.name, "address": node.address, "cpus": node.cpus, "session": node.starter.pid}
        return {**told, "node_id": node.node_id} if node.node_id else told

    def _spawn_members(self) -> subprocess.Popen[str]:
        return self._ask("members", str(START_TIMEOUT_S), *(node.address for node in self.nodes if not node.lost))

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

    def lose(self, name: str) -> int:
        """Kill every process of a node with SIGKILL, as a machine that loses its power; returns how many.

        Raises TimeoutError when some survive.
        """
        node, killed = self.node(name), set()
        end = time.monotonic() + LOSE_TIMEOUT_S
        while left := node.processes():
            if time.monotonic() > end:
                raise TimeoutError(f"still alive on node {name} after SIGKILL: {', '.join(str(p.pid) for p in left)}")
            for process in left:
                process.send(signal.SIGKILL)
            killed.update(left)
        node.lost, node.lost_ns = True, time.monotonic_ns()
        self.emit("cluster.node.lost", data={**self._told(node), "processes": len(killed)})
        return len(killed)

    def join(self, name: str = "") -> Iterator[float]:
        """Start a node again, under its own address; without a name the one lost last, else a further one.

        Each value is how many seconds to wait before the next look. Raises ClusterFailed when it does not start.
        """
        lost = sorted((node for node in self.nodes if node.lost), key=lambda node: node.lost_ns)
        node = self.node(name) if name else lost[-1] if lost else self._further()
        if node not in self.nodes:
            self.nodes.append(node)
        self._spawn(node, f"--address={self.address}")
        assert node.starter is not None
        end = time.monotonic() + START_TIMEOUT_S
        while (code := node.starter.poll()) is None and time.monotonic() < end:
            yield LOOK_S
        self._started(node, -1 if code is None else code)

    def restore(self) -> None:
        """Make it again the cluster that was started, and wait until the GCS knows exactly its nodes.

        Nodes that joined beyond those are ended, lost ones started again. A node without its raylet, since Ray gave it
        up or its start failed, is lost too: what is left of it is ended.
        Raises ClusterFailed or TimeoutError when that does not come about.
        """
        while len(self.nodes) > self.workers + 1:
            self.lose(self.nodes[-1].name)
            self.nodes.pop()
        for node in self.nodes[1:]:
            if not node.lost and self.raylet(node.name) is None:
                self.lose(node.name)
        for node in [node for node in self.nodes if node.lost]:
            for pause in self.join(node.name):
                time.sleep(pause)
        self._check_members(self._spawn_members())

    def raylet(self, name: str) -> Identity | None:
        """The process that is the node to Ray; None when it is gone."""
        return next((process for process in self.node(name).processes() if name_of(process.pid) == "raylet"), None)

    def drain(self, name: str, notice_s: float) -> Iterator[float]:
        """Tell Ray that a node will be taken away so many seconds from now, as a cloud's preemption notice does.

        Each value is how many seconds to wait before the next look. Raises ClusterFailed when Ray refuses.
        """
        deadline_ms = int((time.time() + notice_s) * 1000)
        asked = self._ask("drain", self.node(name).node_id, str(deadline_ms))
        try:
            while asked.poll() is None:
                yield LOOK_S
        finally:
            asked.kill()  # of no effect when it has ended
            _, errors = asked.communicate()
        if asked.returncode:
            raise ClusterFailed(f"Ray did not take the notice for node {name}: {errors.strip()[-500:]}")
        self.emit("cluster.node.drain", data={"name": name, "deadline_s": deadline_ms / 1000, "accepted": True})

    def tool(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """A process that helps an attack, in a session of its own; healing ends it, should nobody else.

        Raises OSError when it cannot be started.
        """
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**self.environment, MARKER: self.ledger.run_id}, cwd=self.workspace, start_new_session=True,
        )  # fmt: skip
        self.ledger.started(started.pid)
        return started

    def eyes(self) -> subprocess.Popen[bytes]:
        """A process that prints each change of a node as Ray's GCS sees it, a JSON object a line; see ``health``."""
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "chaos.cluster.health", self.address],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=self.client_environment(), cwd=self.workspace, start_new_session=True,
        )  # fmt: skip

    def _check_members(self, members: subprocess.Popen[str]) -> None:
        output, errors = members.communicate()
        if members.returncode:
            raise ClusterFailed(f"the cluster did not gather: {errors.strip()[-1500:]}")
        ids = json.loads(output)
        for node in self.nodes:
            node.node_id = ids.get(node.address, "")
