"""The exits of workers, as the kernel tells them."""

from __future__ import annotations

import pytest

from chaos.history import EVENTS, HistoryWriter
from chaos.process import Identity
from chaos.watch import ExitWatch, Watch


@pytest.fixture
def told():
    return []


@pytest.fixture
def writer(tmp_path, told):
    made = HistoryWriter(tmp_path, [told.append])
    yield made
    made.close()


@pytest.fixture
def worker(event):
    """The event by which a worker announces itself."""

    def announce(pid, start):
        return event("worker.start", pid=pid, attempt=1, rank=2, data={"start": start})

    return announce


def exits(told):
    return [(e.attempt, e.rank, e.data["pid"], e.data["seen"]) for e in told if e.kind == "process.exit"]


def test_an_exit_is_told_as_it_happens(writer, told, worker, spawn):
    watch, child = ExitWatch(writer), spawn()
    watch.add(worker(child.pid, Identity.of(child.pid).start))
    watch.wait(0)
    assert exits(told) == []
    child.kill()
    watch.wait(5)
    assert exits(told) == [(1, 2, child.pid, "at once")]
    watch.close()


def test_a_worker_that_is_gone_already_is_told_late(writer, told, worker, spawn):
    watch, child = ExitWatch(writer), spawn()
    start = Identity.of(child.pid).start
    child.kill()
    child.wait()
    watch.add(worker(child.pid, start))
    assert exits(told) == [(1, 2, child.pid, "late")]


def test_a_pid_used_again_is_not_the_worker(writer, told, worker, spawn):
    watch, child = ExitWatch(writer), spawn()
    watch.add(worker(child.pid, Identity.of(child.pid).start - 1))
    assert exits(told) == [(1, 2, child.pid, "late")]
    assert Identity.of(child.pid).alive()


def test_looking_takes_in_events_and_watches_the_workers_they_announce(tmp_path, writer, told, worker, spawn):
    import time

    import msgspec

    driver, child = spawn(), spawn()
    watch = Watch(tmp_path, writer, driver, time.monotonic() + 20)
    start = worker(child.pid, Identity.of(child.pid).start)
    (tmp_path / EVENTS / "a.jsonl").write_bytes(msgspec.json.encode(start) + b"\n")
    child.kill()
    assert watch.until(lambda: bool(exits(told))) is True
    assert told[0] == start
    driver.kill()
    assert watch.until(lambda: False) is False
    watch.close()


def test_a_deadline_ends_the_waiting(tmp_path, writer, spawn):
    watch = Watch(tmp_path, writer, spawn(), deadline=0.0)
    assert watch.until(lambda: False) is False
    assert watch.expired
    watch.close()
