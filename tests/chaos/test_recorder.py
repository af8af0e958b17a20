"""Who is traced in an undisturbed run, from when, and what is there of it afterwards."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from chaos import recorder as recording
from chaos import strace
from chaos.process import Identity
from chaos.recorder import CONTROLLER, Recorder
from tests.chaos.machines import why_untraceable

WRITES = """
import sys
input()
open(sys.argv[1], "w").close()
"""


@pytest.fixture
def commands(machines, monkeypatch):
    """What is started in place of tracers: a process that does nothing, for as long as it is let."""
    asked = []

    def tool(command):
        asked.append(command)
        return subprocess.Popen(["sleep", "60"], stderr=subprocess.PIPE)

    monkeypatch.setattr(machines, "tool", tool)
    monkeypatch.setattr(recording, "ENDS_S", 0.05)
    return asked


@pytest.fixture
def start(event, spawn):
    """Say that a process has started, which is there; its event."""

    def say(kind, **where):
        who = Identity.of(spawn().pid)
        return event(kind, pid=who.pid, data={"start": who.start}, **where)

    return say


def test_the_controller_and_the_workers_of_the_first_attempt_are_traced_each_into_a_file(
    machines, commands, start, event, tmp_path
):
    recorder = Recorder(machines, tmp_path)
    traced = [start("controller.start"), *(start("worker.start", attempt=0, rank=rank) for rank in (0, 1))]
    for one in (*traced, start("worker.start", attempt=1, rank=0), event("step.end", pid=14, attempt=0, rank=0)):
        recorder(one)
    recorder.close()
    assert commands == [
        [*strace.record(tmp_path / f"{name}.strace"), "-p", str(one.pid)]
        for name, one in zip(("controller", "rank0", "rank1"), traced, strict=True)
    ]
    assert recorder.log(CONTROLLER) == tmp_path / "controller.strace"


def test_a_process_that_is_gone_is_not_traced_although_its_pid_is_another_s_now(machines, commands, start, tmp_path):
    recorder, told = Recorder(machines, tmp_path), start("controller.start")
    recorder(msgspec.structs.replace(told, data={"start": told.data["start"] - 1}))
    recorder.close()
    assert commands == []


def test_a_tracer_whose_process_goes_on_is_ended(machines, commands, start, tmp_path):
    recorder = Recorder(machines, tmp_path)
    recorder(start("controller.start"))
    recorder.close()
    assert [tracer.poll() is None for tracer in recorder._tracers] == [False]


def test_without_anybody_to_trace_there_is_nothing_to_end(machines, tmp_path):
    Recorder(machines, tmp_path).close()


def test_what_a_traced_process_did_is_whole_once_the_recorder_is_closed(machines, event, tmp_path):
    if why := why_untraceable():
        pytest.skip(why)
    recorder, made = Recorder(machines, tmp_path), tmp_path / "made"
    child = subprocess.Popen([sys.executable, "-S", "-c", WRITES, str(made)], stdin=subprocess.PIPE)
    who = Identity.of(child.pid)
    recorder(event("worker.start", pid=who.pid, attempt=0, rank=0, data={"start": who.start}))
    while not strace.traces(recorder._tracers[0].pid, child.pid):
        assert recorder._tracers[0].poll() is None
    child.communicate(b"\n")
    recorder.close()
    found = strace.below(strace.calls(recorder.log("rank0")), str(made.resolve()))
    assert [call.name for call in found] == ["openat", "close"]
