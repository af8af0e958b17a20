"""What Ray itself holds of the cluster's nodes while a run goes on: which it takes for alive, which for dead."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from typing import Any

from chaos.cluster.local import LocalCluster
from chaos.history import HistoryWriter

RESOLUTION_MS = 50
"""How often the GCS is asked (``chaos.cluster.health``)."""


@dataclass
class Eyes:
    """Tells the history of each change of a node, as Ray's GCS sees it; driven by ``tick``."""

    cluster: LocalCluster
    writer: HistoryWriter
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _rest: bytes = field(default=b"", init=False)

    def open(self) -> None:
        """Begin to look."""
        self._process = self.cluster.eyes()
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def tick(self) -> None:
        """Take in what was seen since the last time."""
        if self._process is None or self._process.stdout is None:
            return
        lines = (self._rest + (self._process.stdout.read() or b"")).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._tell(json.loads(line))

    def _tell(self, seen: dict[str, Any]) -> None:
        node = next((node for node in self.cluster.nodes if node.address == seen["address"]), None)
        if node is None:
            return
        data = {"name": node.name, "node_id": seen["node_id"], "resolution_ms": RESOLUTION_MS}
        when = {"wall_ns": seen["wall_ns"], "mono_ns": seen["mono_ns"]}
        if seen["alive"]:
            node.node_id = seen["node_id"]
            self.writer.emit("cluster.node.alive", **when, data=data)
        else:
            self.writer.emit("cluster.node.dead", **when, data=data)

    def close(self) -> None:
        """Look no more."""
        if self._process is None:
            return
        try:
            self.tick()
        finally:
            process, self._process = self._process, None
            process.kill()
            process.communicate()
