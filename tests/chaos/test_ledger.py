"""The ledger: what is written before anything exists, and how it reads."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from chaos.exits import UsageError
from chaos.healing import close
from chaos.ledger import NAME, POINTER, TTL_S, Account, Ledger, append, check_registry, registry
from chaos.process import MARKER, Identity, carries_marker, current, session_of

pytestmark = pytest.mark.usefixtures("temporary")


def cut_short(path, text):
    with Path(path).open("ab") as file:
        file.write(text)


def test_a_registry_of_our_own_is_accepted(monkeypatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        check_registry()
        assert registry().stat().st_mode & 0o777 == 0o700


def test_a_registry_that_cannot_be_made_is_refused() -> None:
    registry().write_text("a file")
    with pytest.raises(UsageError, match=r"cannot be made .* set TMPDIR"):
        check_registry()


def test_a_registry_too_deep_for_the_sockets_of_ray_is_refused(temporary, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / ("d" * 40)))
    with pytest.raises(UsageError, match="too long for Ray's sockets"):
        check_registry()


def test_a_registry_of_another_user_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody")
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(UsageError, match="belongs to another user"):
        check_registry()


def test_a_user_without_a_name_has_a_registry(temporary, monkeypatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert registry().parent == temporary


def test_an_entry_is_on_disk_when_intend_returns(ledger) -> None:
    number = ledger.intend("directory", path="/nowhere")
    assert Account.read(ledger.path).open == {number: {"entry": number, "kind": "directory", "path": "/nowhere"}}


def test_the_owner_is_the_process_that_opened_it(ledger) -> None:
    account = Account.read(ledger.path)
    assert (account.run_id, account.owner, account.open) == (ledger.run_id, current(), {})


def test_done_closes_an_entry(ledger) -> None:
    first, second = ledger.intend("injection"), ledger.intend("injection")
    ledger.done(first)
    assert list(Account.read(ledger.path).open) == [second]


def test_sessions_are_remembered(ledger) -> None:
    ledger.started(17)
    ledger.started(18)
    assert Account.read(ledger.path).sessions == {17, 18}


def test_the_time_of_a_run_is_told_from_its_opening(tmp_path) -> None:
    account = Account.read(Ledger.open(tmp_path, "run1", ttl_s=100.0).path)
    assert account.ttl_s == 100.0
    assert 90 < account.left_s <= 100


def test_the_time_of_a_run_may_be_over(tmp_path) -> None:
    assert Account.read(Ledger.open(tmp_path, "run1", ttl_s=-1.0).path).left_s < 0


@pytest.mark.parametrize("times", [(100.0,), (5000.0, 100.0), (1.0, 2.0, 100.0)])
def test_the_time_of_a_run_may_be_extended_and_the_last_word_counts(ledger, times) -> None:
    number = ledger.intend("injection")
    for ttl_s in times:
        ledger.extend(ttl_s)
    account = Account.read(ledger.path)
    assert (account.ttl_s, list(account.open), account.owner) == (100.0, [number], current())
    assert 90 < account.left_s <= 100


def test_a_time_that_is_over_begins_anew_when_it_is_extended(tmp_path) -> None:
    made = Ledger.open(tmp_path, "run1", ttl_s=1000.0)
    head = json.loads(made.path.read_text())
    made.path.write_text(json.dumps({**head, "opened": head["opened"] - 5000}) + "\n")
    assert Account.read(made.path).left_s < -3900
    made.extend(100.0)
    assert 90 < Account.read(made.path).left_s <= 100


def test_a_ledger_without_a_time_has_the_usual_one(tmp_path) -> None:
    append(tmp_path / NAME, {"schema": 1, "run": "run1", "owner": {"pid": 1, "start": 2}})
    assert Account.read(tmp_path / NAME).ttl_s == TTL_S


def test_the_workspace_is_recorded_before_it_is_made(ledger) -> None:
    registry().write_text("a file where the registry should be")
    with pytest.raises(OSError):
        ledger.workspace()
    directory, processes = Account.read(ledger.path).open.values()
    assert (directory["kind"], directory["path"]) == ("directory", str(registry() / ledger.run_id))
    assert processes["kind"] == "processes"


def test_the_workspace_points_back_and_is_private(ledger) -> None:
    folder = ledger.workspace()
    pointer = json.loads((folder / POINTER).read_text())
    assert Account.read(Path(pointer["ledger"])).run_id == ledger.run_id
    assert Identity(pointer["pid"], pointer["start"]) == current()
    assert [path.stat().st_mode & 0o777 for path in (registry(), folder)] == [0o700, 0o700]
    assert [path.name for path in folder.iterdir()] == [POINTER]


def test_a_workspace_has_a_watcher_that_belongs_to_the_run_and_goes_with_it(ledger) -> None:
    folder = ledger.workspace()
    (watcher,) = Account.read(ledger.path).processes()
    command = Path(f"/proc/{watcher.pid}/cmdline").read_text().split("\0")[:-1]
    assert command == [sys.executable, "-P", "-m", "chaos.watcher", str(folder), str(ledger.path)]
    assert carries_marker(watcher.pid, ledger.run_id)
    assert close(ledger) == []
    assert not watcher.alive()


def test_the_watcher_is_beyond_the_reach_of_the_harness_s_terminal(ledger) -> None:
    ledger.workspace()
    (watcher,) = Account.read(ledger.path).processes()
    assert session_of(watcher.pid) == watcher.pid
    assert Account.read(ledger.path).sessions == {watcher.pid}
    assert Path(f"/proc/{watcher.pid}/cwd").readlink() == Path("/")
    assert {os.readlink(f"/proc/{watcher.pid}/fd/{handle}") for handle in range(3)} == {"/dev/null"}


def test_the_processes_of_a_run_are_found_by_their_marker(ledger, spawn, marked) -> None:
    child, other = spawn(env=marked), spawn(env={**os.environ, MARKER: "another"})
    found = Account.read(ledger.path).processes()
    assert Identity.of(child.pid) in found
    assert Identity.of(other.pid) not in found


@pytest.mark.parametrize("cut", [b"", b"{", b'{"entry": 7, "kind": "direc', b'{"done": 0', b"\xff\xfe"])
def test_a_last_line_cut_short_is_ignored(ledger, cut) -> None:
    ledger.intend("injection")
    cut_short(ledger.path, cut)
    assert list(Account.read(ledger.path).open) == [0]


@pytest.mark.parametrize("text", [b"", b"no json\n", b'{"schema": 99}\n', b"\x00\x01"])
def test_a_foreign_file_is_no_ledger(tmp_path, text) -> None:
    (tmp_path / NAME).write_bytes(text)
    with pytest.raises(ValueError, match="no ledger"):
        Account.read(tmp_path / NAME)


@pytest.mark.parametrize("text", [b"[]\n", b"1\n", b'{"schema": 1}\n'])
def test_json_that_is_no_ledger_is_no_ledger(tmp_path, text) -> None:
    (tmp_path / NAME).write_bytes(text)
    with pytest.raises(ValueError, match="no ledger"):
        Account.read(tmp_path / NAME)


def test_an_entry_that_does_not_fit_on_the_disk_is_an_error(ledger, largest_file) -> None:
    with largest_file(ledger.path.stat().st_size + 10), pytest.raises(OSError):
        ledger.intend("injection")
