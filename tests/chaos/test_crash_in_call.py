"""A process killed on entering one call on one file: not carried out, confirmed, and healed where it does not come."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from pathlib import Path

import pytest

from chaos import strace
from chaos.faults import crash_in_call
from chaos.process import Identity
from tests.chaos.machines import why_untraceable

SAVES = """
import os, sys, time
go, folder = sys.argv[1:]
while not os.path.exists(go):
    time.sleep(0.002)
with open(f"{folder}/shard", "wb", buffering=0) as file:
    for _ in range(5):
        file.write(b"x" * 10)
    os.fsync(file.fileno())
with open(f"{folder}/.metadata.tmp", "wb", buffering=0) as file:
    file.write(b"m" * 100)
os.rename(f"{folder}/.metadata.tmp", f"{folder}/.metadata")
os.path.exists(f"{folder}/pipe") and open(f"{folder}/pipe", "w")
open(f"{folder}/over", "w").close()
time.sleep(60)
"""
"""Saves a shard and its metadata once it may go; then opens a pipe where there is one, and says that it is over."""


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Calls come at once here, or never."""
    monkeypatch.setattr(crash_in_call, "COMES_S", 1.0)


@pytest.fixture(scope="module")
def traceable():
    """Skip where nothing may be traced."""
    if why := why_untraceable():
        pytest.skip(why)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "checkpoint"
    made.mkdir()
    return made


@pytest.fixture
def saving(scene, plan, event, python, folder):
    """Arm a fault whose victim saves into ``folder`` once it may go; in ``who`` the process that saves.

    For the fault of the controller the process that saves is the controller, and the victim only sleeps.
    """
    (Path(plan.directory) / "logs").mkdir()

    def arm(fault="crash-in-call", place=folder, **values):
        armed = scene(fault, **values)
        go = Path(plan.board) / f"go-{fault}-0"
        child = python(SAVES, go, folder, stdin=subprocess.DEVNULL)
        who = Identity.of(child.pid)
        victim = armed.victim
        if fault == "crash-in-call":
            victim = who
            armed.attacks(event("worker.start", pid=who.pid, attempt=0, rank=1, data={"start": who.start}))
        else:
            armed.attacks(event("controller.start", pid=who.pid, data={"start": who.start}))
        data = {"injection": f"{fault}-0", "fault": fault, "phase": "save", "node": "w0"}
        data |= {"place": str(place)} if place else {}
        due = event("fault.due", pid=victim.pid, attempt=0, rank=1, step=3, data=data)
        made = dataclasses.replace(armed, victim=victim, due=lambda: armed.attacks(due))
        made.child, made.who = child, who
        return made

    return arm


@pytest.fixture
def failed(told):
    """Why the fault failed, by its event."""
    return lambda: next(event.data["error"] for event in told if event.kind == "fault.failed")


def tracer_of(identity):
    lines = Path(f"/proc/{identity.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("TracerPid"))


def over(kinds):
    return lambda: "fault.healed" in kinds()


CRASHES = {
    ("openat", "shard", 1): {},
    ("write", "shard", 1): {"shard": 0},
    ("write", "shard", 3): {"shard": 20},
    ("fsync", "shard", 1): {"shard": 50},
    ("openat", ".metadata.tmp", 1): {"shard": 50},
    ("close", ".metadata.tmp", 1): {"shard": 50, ".metadata.tmp": 100},
    ("rename", ".metadata.tmp", 1): {"shard": 50, ".metadata.tmp": 100},
}
"""The call that is entered, and the files with their sizes that are there then."""


@pytest.mark.usefixtures("traceable")
@pytest.mark.parametrize("aim", CRASHES, ids=lambda aim: "-".join(map(str, aim)))
def test_a_process_dies_on_entering_the_call_which_is_not_carried_out(saving, folder, kinds, told, aim):
    call, file, nth = aim
    crash = saving(call=call, file=file, nth=nth)
    crash.due()
    assert crash.until(over(kinds))
    assert crash.child.wait(10) == -signal.SIGKILL
    assert {path.name: path.stat().st_size for path in folder.iterdir()} == CRASHES[aim]
    assert kinds() == ["fault.fired", "fault.confirmed", "fault.healed"]
    assert told[1].data["evidence"] == f"killed on entering {call} {nth} on {file}"
    assert (told[1].attempt, told[1].rank, told[1].step) == (0, 1, 3)


@pytest.mark.usefixtures("traceable")
def test_a_write_that_one_call_makes_is_torn_by_cutting_the_file(saving, folder, kinds, told):
    crash = saving(call="close", file=".metadata.tmp", left=0.5)
    crash.due()
    assert crash.until(over(kinds))
    assert (folder / ".metadata.tmp").read_bytes() == b"m" * 50
    assert told[1].data["evidence"].endswith("on .metadata.tmp, and cut to 50 of 100 bytes")


@pytest.mark.usefixtures("traceable")
def test_a_folder_that_is_reached_through_a_link_is_the_same(saving, folder, kinds, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    crash = saving(place=tmp_path / "link", call="write", file="shard", nth=3)
    crash.due()
    assert crash.until(over(kinds))
    assert "fault.confirmed" in kinds()
    assert (folder / "shard").stat().st_size == 20


@pytest.mark.usefixtures("traceable")
def test_what_strace_noted_is_kept_with_the_logs(saving, plan, kinds):
    crash = saving(call="write", file="shard", nth=3)
    crash.due()
    assert crash.until(over(kinds))
    (log,) = (Path(plan.directory) / "logs").iterdir()
    assert [call.killed for call in strace.calls(log)] == [False, False, True]


@pytest.mark.usefixtures("traceable")
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"call": "openat", "file": "other"}, "openat on {folder}/other came 0 times, not 1, or did not end it"),
        ({"call": "write", "file": "shard", "nth": 9}, "write on {folder}/shard came 5 times, not 9"),
    ],
    ids=["another file", "too often"],
)
def test_a_call_that_does_not_come_is_told_and_the_victim_lives_untraced(
    saving, folder, kinds, failed, eventually, values, error
):
    crash = saving(**values)
    crash.due()
    assert crash.until(over(kinds))
    assert kinds() == ["fault.fired", "fault.failed", "fault.healed"]
    assert failed().startswith(error.format(folder=folder))
    assert eventually((folder / "over").exists)
    assert crash.victim.alive()
    assert tracer_of(crash.victim) == 0


@pytest.mark.usefixtures("traceable")
def test_a_victim_that_ends_otherwise_has_not_been_crashed_there(saving, folder, kinds, failed):
    crash = saving(call="rename", file="never")
    crash.due()
    assert crash.until((folder / "over").exists)
    crash.victim.send(signal.SIGKILL)
    assert crash.until(over(kinds))
    assert "came 0 times" in failed()


@pytest.mark.usefixtures("traceable")
def test_a_victim_that_ends_in_an_earlier_such_call_has_not_been_crashed_there(saving, folder, kinds, failed):
    """It hangs in its first call on the pipe, and somebody else kills it; the second one was aimed at."""
    os.mkfifo(folder / "pipe")
    crash = saving(call="openat", file="pipe", nth=2)
    crash.due()
    assert crash.until((folder / ".metadata").exists)
    assert not crash.until((folder / "over").exists, seconds=0.2)
    crash.victim.send(signal.SIGKILL)
    assert crash.until(over(kinds))
    assert "came 1 times, not 2" in failed()
    assert "fault.confirmed" not in kinds()


# What cannot be begun


def test_without_strace_the_fault_fails_and_the_victim_goes_on(saving, folder, machines, kinds, failed, eventually):
    machines.path = str(folder / "nowhere")
    crash = saving(call="openat", file="shard")
    crash.due()
    assert crash.until(over(kinds))
    assert kinds() == ["fault.fired", "fault.failed", "fault.healed"]
    assert "strace" in failed()
    assert eventually((folder / "over").exists)
    assert crash.victim.alive()


@pytest.mark.usefixtures("traceable")
def test_what_strace_says_when_it_refuses_is_told(saving, folder, kinds, failed, eventually):
    crash = saving(call="nosuchcall", file="shard")
    crash.due()
    assert crash.until(over(kinds))
    assert failed().startswith(f"process {crash.victim.pid} could not be traced: strace: ")
    assert "nosuchcall" in failed()
    assert eventually((folder / "over").exists)


@pytest.mark.usefixtures("traceable")
def test_a_tracer_that_does_not_attach_in_time_is_given_up(saving, folder, machines, kinds, failed, monkeypatch):
    monkeypatch.setattr(crash_in_call, "ATTACH_S", 0.1)
    monkeypatch.setattr(strace, "traces", lambda tracer, pid: False)
    crash = saving(call="openat", file="shard")
    crash.due()
    assert crash.until(over(kinds))
    assert failed() == f"process {crash.victim.pid} was not traced within 0.1 s"
    assert crash.free
    assert [tool.poll() is None for tool in machines.tools] == [False]


def test_a_victim_that_is_gone_before_is_not_traced(saving, machines, kinds, failed, eventually):
    crash = saving(call="openat", file="shard")
    crash.child.kill()
    crash.child.wait()
    crash.due()
    assert crash.until(over(kinds))
    assert kinds() == ["fault.fired", "fault.failed", "fault.healed"]
    assert failed() == f"process {crash.victim.pid} was gone before it could be traced"
    assert (machines.tools, crash.free) == ([], True)


def test_another_process_that_has_the_victims_pid_is_not_traced(saving, machines, event, kinds, folder, eventually):
    crash = saving(call="openat", file="shard")
    stale = dataclasses.replace(crash.victim, start=crash.victim.start - 1)
    crash.attacks(event("worker.start", pid=stale.pid, attempt=0, rank=1, data={"start": stale.start}))
    crash.due()
    assert crash.until(over(kinds))
    assert machines.tools == []
    assert eventually((folder / "over").exists)


def test_a_point_that_is_about_no_folder_is_none_to_crash_at(saving, machines, kinds, failed):
    crash = saving(place="", call="openat", file="shard")
    crash.due()
    assert crash.until(over(kinds))
    assert (failed(), machines.tools) == ("the folder that the victim's point is about is not known", [])


def test_a_victim_is_held_as_long_as_asked_before_it_is_traced(saving, machines):
    crash = saving(call="openat", file="shard", late_s=60.0)
    crash.due()
    assert not crash.until(lambda: crash.free or machines.tools, seconds=0.2)


# Healing


@pytest.mark.usefixtures("traceable")
def test_closing_ends_the_tracer_and_the_victim_lives(
    saving, folder, machines, kinds, stopped_entries, monkeypatch, eventually
):
    monkeypatch.setattr(crash_in_call, "COMES_S", 60.0)
    crash = saving(call="openat", file="other")
    crash.due()
    assert crash.until(lambda: crash.free)
    (tracer,) = machines.tools
    assert tracer_of(crash.victim) == tracer.pid
    assert stopped_entries() == [(crash.victim.pid, crash.victim.start, "crash-in-call-0")]
    crash.attacks.close()
    assert tracer.poll() is not None
    assert tracer_of(crash.victim) == 0
    assert (kinds(), stopped_entries()) == (["fault.fired", "fault.healed"], [])
    assert eventually((folder / "over").exists)
    assert crash.victim.alive()


def test_closing_before_anything_is_traced_starts_nothing(saving, machines, kinds):
    crash = saving(call="openat", file="shard", late_s=60.0)
    crash.due()
    crash.attacks.close()
    assert (kinds(), machines.tools, crash.free) == (["fault.fired", "fault.healed"], [], True)


# The controller


@pytest.mark.usefixtures("traceable")
def test_the_controller_dies_in_its_call_and_the_rank_that_was_held_lives(saving, folder, kinds, told, stopped_entries):
    crash = saving("crash-controller-in-call", call="write", file="shard", nth=2)
    crash.due()
    assert stopped_entries() == [(crash.who.pid, crash.who.start, "crash-controller-in-call-0")]
    assert crash.until(over(kinds))
    assert kinds() == ["fault.fired", "fault.confirmed", "fault.healed"]
    assert crash.child.wait(10) == -signal.SIGKILL
    assert (folder / "shard").stat().st_size == 10
    assert (crash.victim.alive(), crash.free, stopped_entries()) == (True, True, [])


@pytest.mark.usefixtures("traceable")
def test_the_controller_dies_although_the_rank_that_was_held_is_gone(saving, folder, kinds):
    crash = saving("crash-controller-in-call", call="write", file="shard", nth=2, late_s=0.2)
    crash.due()
    crash.victim.send(signal.SIGKILL)
    assert crash.until(over(kinds))
    assert "fault.confirmed" in kinds()


def test_without_a_controller_that_is_known_the_fault_fails(scene, kinds, failed, machines):
    crash = scene("crash-controller-in-call")
    crash.due()
    assert crash.until(over(kinds))
    assert (failed(), machines.tools) == ("the controller's process is not known", [])
