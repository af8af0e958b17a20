"""Stand-ins for the nodes of a cluster, and the stage on which an attack on them takes place."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos import strace
from chaos.ledger import Ledger
from chaos.process import Identity


def why_untraceable() -> str:
    """Why strace cannot attach to a process here that is not its child; empty where it can."""
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        command = ["strace", *strace.FIRST_SEEN, "-o", os.devnull, "-p", str(sleeper.pid)]
        tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        while tracer.poll() is None and not strace.traces(tracer.pid, sleeper.pid):
            time.sleep(0.001)
        refused = tracer.poll() is not None
        said = (tracer.stderr.read() if refused and tracer.stderr else b"").decode().strip()
        strace.end(tracer)
        return f"no process may be traced here: {said}" if refused else ""
    except FileNotFoundError:
        return "strace is not installed"
    finally:
        sleeper.kill()
        sleeper.wait()


@dataclass
class Machines:
    """Nodes that note, in order, what is done to them; with a ledger they pass for the cluster of a run.

    ``on``: the processes of each, the first of them its raylet. ``broken``: what fails, and with what error.
    ``tools``: the helpers of attacks; ``path``: where their programs are looked for.
    """

    ledger: Ledger | None = None
    on: dict[str, list[Identity]] = field(default_factory=dict)
    broken: dict[str, Exception] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    tools: list[subprocess.Popen[bytes]] = field(default_factory=list)
    path: str = field(default_factory=lambda: os.environ["PATH"])

    def lose(self, name: str) -> int:
        self._do("lose", name)
        lost = self.on.pop(name, [])
        for process in lost:
            process.send(signal.SIGKILL)
        while any(process.alive() for process in lost):
            time.sleep(0.001)
        return len(lost)

    def join(self, name: str = "") -> Iterator[float]:
        yield 0.01
        self._do("join", name)
        yield 0.01
        self.done.append("joined")

    def raylet(self, name: str) -> Identity | None:
        return next(iter(self.on.get(name, [])), None)

    def drain(self, name: str, notice_s: float) -> Iterator[float]:
        yield 0.01
        self._do("drain", f"{name} {notice_s:g}")

    def tool(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={"PATH": self.path}, start_new_session=True,
        )  # fmt: skip
        self.tools.append(started)
        return started

    def _do(self, what: str, whom: str) -> None:
        self.done.append(f"{what} {whom}".strip())
        if what in self.broken:
            raise self.broken[what]


@dataclass
class Stage:
    """Notes, in order, what an attack does to its scene, among what it does to the nodes."""

    nodes: Machines = field(default_factory=Machines)
    node: str = "w0"
    place: str = "/nowhere"
    folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    controller: Identity | None = None

    @property
    def done(self) -> list[str]:
        return self.nodes.done

    def release(self) -> None:
        self.done.append("released")

    def confirm(self, evidence: str) -> None:
        self.done.append(evidence)
