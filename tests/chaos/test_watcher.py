"""The watcher: heals when the harness cannot, and not before."""

from __future__ import annotations

import json
import shutil
import threading
import time

import pytest

from chaos import watcher
from chaos.healing import Healing, heal
from chaos.ledger import NAME, POINTER, Account, Ledger, registry
from chaos.process import Identity, current

LONG_S = 60.0

pytestmark = [
    pytest.mark.usefixtures("temporary"),
    pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture
def watching(monkeypatch, run_id, tmp_path):
    """Watch over the run in a thread that looks more often than the process does."""
    monkeypatch.setattr(watcher, "LOOK_S", 0.01)

    def start(orphan_s):
        arguments = (registry() / run_id, tmp_path / NAME, orphan_s)
        thread = threading.Thread(target=watcher.watch, args=arguments, daemon=True)
        thread.start()
        return thread

    return start


def ended(thread, seconds=10.0):
    thread.join(seconds)
    return not thread.is_alive()


def test_the_run_of_a_dead_owner_is_healed_when_the_orphan_time_is_over(owned, watching, run_id, tmp_path) -> None:
    owner, child = owned
    thread = watching(orphan_s=0.1)
    assert not ended(thread, 0.3), "the owner lives"
    assert child.alive()
    owner.kill()
    assert ended(thread)
    assert not child.alive()
    assert not (registry() / run_id).exists()
    assert Account.read(tmp_path / NAME).open == {}
    assert Account.read(tmp_path / NAME).processes() == []


def test_an_owner_that_was_dead_before_makes_no_difference(orphan, watching) -> None:
    assert ended(watching(orphan_s=0.0))
    assert not orphan.alive()


def test_an_orphan_is_left_to_others_for_a_while(orphan, watching, run_id) -> None:
    thread = watching(orphan_s=LONG_S)
    assert not ended(thread, 0.2)
    assert orphan.alive()
    assert heal() == [Healing(run_id, "healed")]
    assert ended(thread)


def test_nothing_is_done_when_the_workspace_vanishes(orphan, watching, run_id, tmp_path) -> None:
    before = (tmp_path / NAME).read_bytes()
    thread = watching(orphan_s=LONG_S)
    shutil.rmtree(registry() / run_id)
    assert ended(thread)
    assert orphan.alive()
    assert (tmp_path / NAME).read_bytes() == before


def test_an_owner_of_another_life_of_the_pid_is_dead(ledger, watching) -> None:
    folder = ledger.workspace()
    for file in (ledger.path, folder / POINTER):
        file.write_text(file.read_text().replace(f'"start": {current().start}', '"start": 1'))
    assert ended(watching(orphan_s=0.0))
    assert not folder.exists()


def test_a_time_that_is_extended_is_waited_for(tmp_path, run_id, spawn, marked, watching) -> None:
    child = spawn(env=marked)
    ledger = Ledger.open(tmp_path, run_id, ttl_s=1.0)
    ledger.intend("processes")
    ledger.intend("directory", path=str(registry() / run_id))
    (registry() / run_id).mkdir(parents=True)
    pointer = {"ledger": str(ledger.path), "pid": current().pid, "start": current().start}
    (registry() / run_id / POINTER).write_text(json.dumps(pointer))
    begin = time.monotonic()
    thread = watching(orphan_s=0.0)
    assert not ended(thread, 0.3), "by then it has read its first time"
    ledger.extend(2.0)
    assert not ended(thread, 1.3), "its first time is over"
    assert child.poll() is None
    assert ended(thread)
    assert child.wait(5) == -9
    assert time.monotonic() - begin > 2.2


@pytest.mark.parametrize("text", [None, "no ledger"])
def test_a_run_whose_ledger_is_gone_at_the_end_of_its_time_is_healed(
    tmp_path, run_id, spawn, marked, watching, text
) -> None:
    child = spawn(env=marked)
    ledger = Ledger.open(tmp_path, run_id, ttl_s=0.6)
    folder = registry() / run_id
    folder.mkdir(parents=True)
    pointer = {"ledger": str(ledger.path), "pid": current().pid, "start": current().start}
    (folder / POINTER).write_text(json.dumps(pointer))
    thread = watching(orphan_s=0.0)
    assert not ended(thread, 0.2)
    ledger.path.unlink()
    if text is not None:
        ledger.path.write_text(text)
    assert ended(thread)
    assert child.wait(5) == -9
    assert not folder.exists()


def test_when_its_time_is_over_a_run_is_healed_by_its_own_watcher_in_spite_of_its_living_owner(
    tmp_path, run_id, spawn, marked, stop, eventually
) -> None:
    frozen, child = stop(spawn()), spawn(env=marked)
    ledger = Ledger.open(tmp_path, run_id, ttl_s=0.2)
    ledger.intend("stopped", pid=frozen.pid, start=frozen.start)
    begin = time.monotonic()
    folder = ledger.workspace()
    (process,) = Account.read(ledger.path).sessions
    assert eventually(lambda: Identity.of(process) is None)
    assert time.monotonic() - begin > 0.1
    assert child.wait(5) == -9
    assert frozen.alive()
    assert not frozen.stopped()
    assert not folder.exists()
    assert Account.read(ledger.path).open == {}
