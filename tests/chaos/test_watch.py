"""Looking on while a run goes: events as they come, the exits of workers as the kernel tells them, the end."""

from __future__ import annotations

import time

import msgspec
import pytest

from chaos.history import EVENTS, HistoryWriter
from chaos.process import Identity
from chaos.watch import Watch


@pytest.fixture
def told():
    return []


@pytest.fixture
def watch(tmp_path, told, spawn):
    """Eyes on a run whose driver sleeps."""
    writer = HistoryWriter(tmp_path, [told.append])
    made = Watch(tmp_path, writer, spawn(), time.monotonic() + 20)
    yield made
    made.close()
    writer.close()


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


def test_an_exit_is_told_as_it_happens(watch, told, announce, spawn):
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


def test_a_worker_that_is_gone_already_is_told_late(watch, told, announce, spawn):
    child = spawn()
    start = Identity.of(child.pid).start
    child.kill()
    child.wait()
    announce(child.pid, start)
    watch.look(0)
    assert exits(told) == [(1, 2, child.pid, "late")]


def test_a_pid_used_again_is_not_the_worker(watch, told, announce, spawn):
    child = spawn()
    announce(child.pid, Identity.of(child.pid).start - 1)
    watch.look(0)
    assert exits(told) == [(1, 2, child.pid, "late")]
    assert Identity.of(child.pid).alive()


def test_what_a_process_wrote_comes_before_its_end(watch, told, announce, spawn):
    child = spawn()
    start = Identity.of(child.pid).start
    announce(child.pid, start)
    watch.look(0)
    announce(child.pid, start, "step.end", "fault.fired")
    child.kill()
    watch.until(lambda: bool(exits(told)))
    kinds = [event.kind for event in told]
    assert kinds.index("fault.fired") < kinds.index("process.exit")


def test_one_exit_is_told_once(watch, told, announce, spawn):
    child = spawn()
    announce(child.pid, Identity.of(child.pid).start)
    watch.look(0)
    child.kill()
    for _ in range(3):
        watch.look(0.1)
    assert len(exits(told)) == 1


def test_the_end_of_the_driver_ends_the_waiting(watch):
    watch.driver.kill()
    assert watch.until(lambda: False) is False
    assert not watch.expired


def test_a_deadline_ends_the_waiting(watch):
    watch.deadline = 0.0
    assert watch.until(lambda: False) is False
    assert watch.expired


def test_a_condition_that_holds_needs_no_look(watch, told):
    assert watch.until(lambda: True) is True
    assert told == []
