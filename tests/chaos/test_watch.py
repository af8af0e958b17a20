"""Looking on while a run goes: events as they come, the exits of workers as the kernel tells them, the end."""

from __future__ import annotations

import signal
import subprocess
import time

import msgspec
import pytest

from chaos.history import EVENTS
from chaos.process import Identity
from chaos.watch import Watch


@pytest.fixture
def watch(tmp_path, writer, spawn):
    """Eyes on a run whose driver sleeps."""
    made = Watch(tmp_path, writer, spawn(), time.monotonic() + 20)
    yield made
    made.close()


@pytest.fixture
def announce(tmp_path, event):
    """Record that a worker has started; further events of its own follow."""

    def record(pid, start, *further):
        events = [event("worker.start", pid=pid, attempt=1, rank=2, data={"start": start})]
        events += [event(kind, pid=pid) for kind in further]
        with (tmp_path / EVENTS / "a.jsonl").open("ab") as file:
            file.writelines(msgspec.json.encode(one) + b"\n" for one in events)

    return record


def exits(told):
    return [(e.attempt, e.rank, e.data["pid"], e.data["seen"]) for e in told if e.kind == "process.exit"]


def test_an_exit_is_told_as_it_happens(watch, told, announce, spawn) -> None:
    child = spawn()
    announce(child.pid, Identity.of(child.pid).start)
    watch.look(0)
    watch.look(0)
    assert exits(told) == []
    before = time.monotonic_ns()
    child.kill()
    assert watch.until(lambda: bool(exits(told))) is True
    assert exits(told) == [(1, 2, child.pid, "at once")]
    assert before <= told[-1].mono_ns <= time.monotonic_ns()


@pytest.mark.usefixtures("kernel_tells")
@pytest.mark.parametrize(
    ("command", "number", "cause"),
    [
        (("sleep", "60"), signal.SIGKILL, "SIGKILL"),
        (("sleep", "60"), signal.SIGTERM, "SIGTERM"),
        (("sh", "-c", "read line; exit 0"), None, "exit code 0"),
        (("sh", "-c", "read line; exit 17"), None, "exit code 17"),
    ],
    ids=["killed", "terminated", "left well", "left ill"],
)
def test_an_exit_is_told_with_its_cause(watch, told, announce, spawn, command, number, cause) -> None:
    child = spawn(*command, stdin=subprocess.PIPE)
    announce(child.pid, Identity.of(child.pid).start)
    watch.look(0)
    if number is None:
        child.stdin.close()
    else:
        child.send_signal(number)
    child.wait()
    watch.look(1)
    assert [event.data["cause"] for event in told if event.kind == "process.exit"] == [cause]


def test_the_cause_of_an_exit_that_nobody_saw_is_not_known(watch, told, announce, spawn) -> None:
    child = spawn()
    start = Identity.of(child.pid).start
    child.kill()
    child.wait()
    announce(child.pid, start)
    watch.look(0)
    assert told[-1].data == {"pid": child.pid, "start": start, "seen": "late", "cause": ""}


def test_a_worker_that_is_gone_already_is_told_late(watch, told, announce, spawn) -> None:
    child = spawn()
    start = Identity.of(child.pid).start
    child.kill()
    child.wait()
    announce(child.pid, start)
    watch.look(0)
    assert exits(told) == [(1, 2, child.pid, "late")]


def test_a_pid_used_again_is_not_the_worker(watch, told, announce, spawn) -> None:
    child = spawn()
    announce(child.pid, Identity.of(child.pid).start - 1)
    watch.look(0)
    assert exits(told) == [(1, 2, child.pid, "late")]
    assert Identity.of(child.pid).alive()


def test_what_a_process_wrote_comes_before_its_end(watch, told, announce, spawn) -> None:
    child = spawn()
    start = Identity.of(child.pid).start
    announce(child.pid, start)
    watch.look(0)
    announce(child.pid, start, "step.end", "fault.fired")
    child.kill()
    watch.until(lambda: bool(exits(told)))
    kinds = [event.kind for event in told]
    assert kinds.index("fault.fired") < kinds.index("process.exit")


def test_one_exit_is_told_once(watch, told, announce, spawn) -> None:
    child = spawn()
    announce(child.pid, Identity.of(child.pid).start)
    watch.look(0)
    child.kill()
    for _ in range(3):
        watch.look(0.1)
    assert len(exits(told)) == 1


def test_the_end_of_the_driver_ends_the_waiting(watch) -> None:
    watch.driver.kill()
    assert watch.until(lambda: False) is False
    assert not watch.expired


def test_a_deadline_ends_the_waiting(watch) -> None:
    watch.deadline = 0.0
    assert watch.until(lambda: False) is False
    assert watch.expired


def test_a_condition_that_holds_needs_no_look(watch, told) -> None:
    assert watch.until(lambda: True) is True
    assert told == []


def test_ticks_follow_each_look(tmp_path, writer, told, announce, spawn) -> None:
    seen = []
    ticks = (lambda: seen.append(len(told)), lambda: seen.append("second"))
    eyes = Watch(tmp_path, writer, spawn(), time.monotonic() + 20, ticks)
    eyes.look(0)
    announce(1, 0)
    eyes.look(0)
    eyes.close()
    assert seen[:4] == [0, "second", 2, "second"], "the start of a worker, and that it is gone"


def test_the_waiting_ticks(tmp_path, writer, spawn) -> None:
    count = iter(range(100))
    reached = []
    eyes = Watch(tmp_path, writer, spawn(), time.monotonic() + 20, (lambda: reached.append(next(count)),))
    assert eyes.until(lambda: len(reached) >= 3) is True
    eyes.close()


def test_the_workers_that_do_not_go_are_named(watch, told, announce, spawn) -> None:
    leaving, staying = spawn(), spawn()
    for child in (leaving, staying):
        announce(child.pid, Identity.of(child.pid).start)
    watch.look(0)
    leaving.kill()
    left = watch.gone(0.5)
    assert [event.pid for event in left] == [staying.pid]
    assert [pid for _, _, pid, _ in exits(told)] == [leaving.pid]


def test_when_every_worker_is_gone_nobody_waits(watch, announce, spawn) -> None:
    child = spawn()
    announce(child.pid, Identity.of(child.pid).start)
    watch.look(0)
    child.kill()
    begin = time.monotonic()
    assert watch.gone(20) == []
    assert time.monotonic() - begin < 10


def test_after_closing_nobody_is_watched_and_what_was_written_is_taken_in(watch, told, announce, spawn) -> None:
    child = spawn()
    announce(child.pid, Identity.of(child.pid).start, "step.end")
    watch.close()
    child.kill()
    child.wait()
    watch.look(0.05)
    assert [event.kind for event in told] == ["worker.start", "step.end"]
