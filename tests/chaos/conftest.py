"""What the tests of the chaos room share: a registry of their own, processes that may be killed, plans, events."""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos import INSTALLATION
from chaos.agent.plan import Board, Injection, Plan
from chaos.attacks import Attacks
from chaos.cluster.local import LocalCluster
from chaos.healing import close
from chaos.history import Event, HistoryWriter
from chaos.ledger import Account, Ledger
from chaos.process import MARKER, Identity, carries_marker, pids
from chaos.triggers import at_step
from tests.chaos.machines import Machines

OWNER = f"""
import os, subprocess, sys, time
from pathlib import Path
from chaos.ledger import Ledger

directory, run_id = sys.argv[1:]
ledger = Ledger.open(Path(directory), run_id)
ledger.workspace()
child = subprocess.Popen(["sleep", "60"], env={{**os.environ, "{MARKER}": run_id}}, start_new_session=True)
ledger.started(child.pid)
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """TMPDIR of one test, so that its registry of runs is nobody else's."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def run_id():
    """The id of a run that nobody else has; whoever still carries its marker after the test is ended."""
    made = uuid.uuid4().hex[:8]
    yield made
    for identity in [Identity.of(pid) for pid in pids() if carries_marker(pid, made)]:
        if identity is not None:
            identity.send(signal.SIGKILL)


@pytest.fixture
def marked(run_id):
    """The environment of a process of the run."""
    return {**os.environ, MARKER: run_id}


@pytest.fixture
def ledger(tmp_path, temporary, run_id):
    """The ledger of a run that this process owns; what is open after the test is undone, its watcher ended."""
    made = Ledger.open(tmp_path, run_id)
    yield made
    close(made)


@pytest.fixture
def spawn():
    """Start processes, each in a session of its own; what is left of them is killed after the test."""
    started = []

    def start(*command, **options):
        child = subprocess.Popen(command or ("sleep", "60"), start_new_session=True, **options)
        started.append(child)
        while child.poll() is None and not Path(f"/proc/{child.pid}/environ").read_bytes():
            pass  # the kernel shows the environment a moment after the program has begun
        return child

    yield start
    for child in started:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream:
                stream.close()


@pytest.fixture
def python(spawn):
    """Run Python code that finds our packages and the standard library; its output can be read."""

    def start(code, *arguments, **options):
        command = (sys.executable, "-S", "-c", code, *map(str, arguments))
        inherited = {**os.environ, "PYTHONPATH": str(INSTALLATION)}
        return spawn(*command, **{"env": inherited, "stdout": subprocess.PIPE, **options})

    return start


@pytest.fixture
def owned(tmp_path, temporary, run_id, python):
    """The harness of a run, whose directory is ``tmp_path``, and a process of that run."""
    owner = python(OWNER, tmp_path, run_id)
    return owner, Identity.of(int(owner.stdout.readline()))


@pytest.fixture
def orphan(owned):
    """A process of a run whose harness was killed with SIGKILL; the run directory is ``tmp_path``."""
    owner, child = owned
    owner.kill()
    owner.wait()
    assert child.alive()
    return child


@pytest.fixture
def stop(eventually):
    """Stop a process by SIGSTOP; returns its identity once the kernel shows it as stopped."""

    def send(child):
        identity = Identity.of(child.pid)
        identity.send(signal.SIGSTOP)
        assert eventually(identity.stopped)
        return identity

    return send


@pytest.fixture
def eventually():
    """Whether a condition comes to hold within some seconds."""

    def wait(condition, seconds=20.0):
        end = time.monotonic() + seconds
        while not (holds := condition()) and time.monotonic() < end:
            time.sleep(0.005)
        return holds

    return wait


@pytest.fixture
def kernel_tells():
    """Skip where the kernel does not tell how a process ended."""
    if tuple(int(part) for part in os.uname().release.split(".")[:2]) < (6, 15):
        pytest.skip("before Linux 6.15 a pidfd does not tell how its process ended")


@pytest.fixture
def plan(tmp_path):
    """An empty plan in a run directory."""
    made = Plan(run_id="run1", directory=str(tmp_path / "run"))
    Path(made.directory).mkdir()
    made.write()
    return made


@pytest.fixture
def event():
    """Make an event; what is not given is of no interest."""

    def make(kind, *, wall=1, **fields):
        return Event(**{"kind": kind, "wall_ns": wall, "mono_ns": wall, "node": "n", "pid": 1, **fields})

    return make


@pytest.fixture
def told():
    """Every event that the history was told, in that order."""
    return []


@pytest.fixture
def writer(tmp_path, told):
    """The history of a run in ``tmp_path``."""
    made = HistoryWriter(tmp_path, [told.append])
    yield made
    made.close()


@pytest.fixture
def cluster(tmp_path, ledger, writer):
    """The cluster of the run: a head and two nodes, none of them started."""
    workspace = tmp_path / ledger.run_id
    workspace.mkdir()
    labels = {"w1": {"zone": "b", "spot": "yes"}}
    environment = {"PATH": os.environ["PATH"]}
    return LocalCluster(2, 3, workspace, ledger, writer.emit, environment, labels=labels)


@dataclass
class Victim:
    """A process that stands at its point, the attacks on it, and means to look."""

    victim: Identity
    attacks: Attacks
    due: object

    def until(self, condition, seconds=10.0):
        """Tick until the condition holds; whether it does."""
        end = time.monotonic() + seconds
        while not (holds := condition()) and time.monotonic() < end:
            self.attacks.tick()
            time.sleep(0.002)
        return holds

    @property
    def free(self):
        """Whether the victim may leave its point."""
        board = Board(self.attacks.plan.board)
        return any(board.has(f"go-{injection.id}") for injection in self.attacks.plan.injections)


@pytest.fixture
def machines(ledger):
    """The nodes of the run, on which nothing runs yet."""
    return Machines(ledger)


@pytest.fixture
def scene(plan, writer, machines, event, spawn):
    """Arm one fault, whose victim is a process that sleeps on node w0; ``due`` lets the victim say that it is due."""
    made = []

    def arm(fault, **values):
        victim = Identity.of(spawn().pid)
        injection = Injection(id=f"{fault}-0", fault=fault, rank=1, trigger=at_step(3), values=values)
        attacks = Attacks(dataclasses.replace(plan, injections=(injection,)), writer, machines)
        attacks(event("worker.start", pid=victim.pid, attempt=0, rank=1, data={"start": victim.start}))
        data = {"injection": injection.id, "fault": fault, "phase": "step", "node": "w0"}
        due = event("fault.due", pid=victim.pid, attempt=0, rank=1, step=3, data=data)
        made.append(attacks)
        return Victim(victim, attacks, lambda: attacks(due))

    yield arm
    for attacks in made:
        attacks.close()


@pytest.fixture
def kinds(told):
    """The kinds of all events told so far."""
    return lambda: [event.kind for event in told]


@pytest.fixture
def stopped_entries(ledger):
    """The processes that the ledger holds for stopped, with the injection."""

    def look():
        entries = Account.read(ledger.path).open.values()
        return [(e["pid"], e["start"], e["injection"]) for e in entries if e["kind"] == "stopped"]

    return look


@pytest.fixture
def largest_file():
    """Within the context no file of this process grows beyond that many bytes, as on a full disk."""

    @contextmanager
    def limited(size):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited
