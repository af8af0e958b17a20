"""What the tests of the chaos room share: a registry of their own, processes that may be killed, plans, events."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.agent.plan import Plan
from chaos.history import Event


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """TMPDIR of one test, so that its registry of runs is nobody else's."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


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
        if child.stdout:
            child.stdout.close()


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
