"""Fixtures of the tests of the session."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from chaos.agent.events import EventWriter
from chaos.agent.session import Session
from chaos.faults import base
from chaos.history import Tail


@pytest.fixture
def listen(plan):
    """Begin sessions; all stop listening after the test."""
    sessions = []

    def start(orders=plan, *, rank=0, attempt=0, steps_done=0, checkpoint=None):
        made = Session(orders, EventWriter(plan.events, "n"), rank, attempt, steps_done)
        made.start(checkpoint)
        sessions.append(made)
        return made

    yield start
    for made in sessions:
        made.stop()


@pytest.fixture
def seen(plan):
    """The events recorded so far, those of one kind if it is given."""
    return lambda *kinds: [e for e in Tail(Path(plan.directory)).new() if not kinds or e.kind in kinds]


@pytest.fixture
def firings(tmp_path, monkeypatch):
    """A fault ``note`` that only notes that it fired, and in a second file when; the file it notes it in."""
    file = tmp_path / "firings"
    file.touch()

    class Note(base.Fault):
        name, effect, certifies, not_certified, proof = "note", "a line", "nothing", "anything", base.Proof.TOLD

        def fire(self):
            now = time.time_ns()
            with file.open("a") as stream, file.with_suffix(".times").open("a") as times:
                stream.write("fired\n")
                times.write(f"{now}\n")

    monkeypatch.setitem(base._REGISTER, "note", Note)
    return file
