"""The ledger: what is written before, what is undone after, and by whom."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from chaos.exits import UsageError
from chaos.ledger import NAME, POINTER, Account, Healing, Ledger, check_registry, heal, registry, undo
from chaos.process import MARKER, Identity, current
from chaos.workload import INSTALLATION

pytestmark = pytest.mark.usefixtures("temporary")

OWNER = f"""
import os, subprocess, sys, time
from pathlib import Path
from chaos.ledger import Ledger

ledger = Ledger.open(Path(sys.argv[1]), "run1")
ledger.workspace()
ledger.intend("processes")
child = subprocess.Popen(["sleep", "60"], env={{**os.environ, "{MARKER}": "run1"}}, start_new_session=True)
ledger.started(child.pid)
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def ledger(tmp_path):
    return Ledger.open(tmp_path, "run1")


@pytest.fixture
def orphan(tmp_path, spawn):
    """A process of a run whose harness was killed with SIGKILL; the run directory is ``tmp_path``."""
    environment = {**os.environ, "PYTHONPATH": str(INSTALLATION)}
    owner = spawn(sys.executable, "-c", OWNER, str(tmp_path), env=environment, stdout=subprocess.PIPE)
    identity = Identity.of(int(owner.stdout.readline()))
    assert heal() == [Healing("run1", "left alone: its harness is running")]
    owner.kill()
    owner.wait()
    assert identity.alive()
    yield identity
    identity.send(9)


def append(path, text):
    with Path(path).open("ab") as file:
        file.write(text)


def test_a_registry_of_our_own_is_accepted(temporary, monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        check_registry()
        assert registry().stat().st_mode & 0o777 == 0o700


def test_a_registry_that_cannot_be_made_is_refused(temporary):
    registry().write_text("a file")
    with pytest.raises(UsageError, match=r"cannot be made .* set TMPDIR"):
        check_registry()


def test_a_registry_too_deep_for_the_sockets_of_ray_is_refused(temporary, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / ("d" * 40)))
    with pytest.raises(UsageError, match="too long for Ray's sockets"):
        check_registry()


def test_a_registry_of_another_user_is_refused(monkeypatch):
    monkeypatch.setenv("LOGNAME", "somebody")
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(UsageError, match="belongs to another user"):
        check_registry()


def test_a_user_without_a_name_has_a_registry(temporary, monkeypatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert registry().parent == temporary


def test_an_entry_is_on_disk_when_intend_returns(ledger):
    number = ledger.intend("directory", path="/nowhere")
    assert Account.read(ledger.path).open == {number: {"entry": number, "kind": "directory", "path": "/nowhere"}}


def test_the_workspace_is_recorded_before_it_is_made(ledger):
    registry().write_text("a file where the registry should be")
    with pytest.raises(OSError):
        ledger.workspace()
    assert [entry["path"] for entry in Account.read(ledger.path).open.values()] == [str(registry() / "run1")]


def test_the_owner_is_the_process_that_opened_it(ledger):
    account = Account.read(ledger.path)
    assert (account.run_id, account.owner, account.open) == ("run1", current(), {})


def test_done_closes_an_entry(ledger):
    first, second = ledger.intend("processes"), ledger.intend("processes")
    ledger.done(first)
    assert list(Account.read(ledger.path).open) == [second]


def test_sessions_are_remembered(ledger):
    ledger.started(17)
    ledger.started(18)
    assert Account.read(ledger.path).sessions == {17, 18}


def test_the_workspace_points_back_and_is_private(ledger):
    folder = ledger.workspace()
    pointer = json.loads((folder / POINTER).read_text())
    assert Account.read(Path(pointer["ledger"])).run_id == "run1"
    assert Identity(pointer["pid"], pointer["start"]) == current()
    assert [path.stat().st_mode & 0o777 for path in (registry(), folder)] == [0o700, 0o700]


def test_undoing_twice_is_undoing_once(ledger):
    folder = ledger.workspace()
    assert ledger.close() == []
    written = ledger.path.read_bytes()
    assert ledger.close() == []
    assert not folder.exists()
    assert ledger.path.read_bytes() == written


def test_what_is_gone_already_counts_as_undone(ledger):
    shutil.rmtree(ledger.workspace())
    assert ledger.close() == []
    assert Account.read(ledger.path).open == {}


def test_undoing_goes_backwards(ledger):
    ledger.workspace()
    ledger.intend("processes")
    ledger.close()
    done = [record["done"] for line in ledger.path.read_text().splitlines() if "done" in (record := json.loads(line))]
    assert done == [1, 0]


def test_processes_are_ended(ledger, spawn):
    ledger.intend("processes")
    child = spawn(env={**os.environ, MARKER: "run1"})
    assert ledger.close() == []
    assert child.wait(5) == -9


@pytest.mark.parametrize("cut", [b"", b"{", b'{"entry": 7, "kind": "direc', b'{"done": 0', b"\xff\xfe"])
def test_a_last_line_cut_short_is_ignored(ledger, cut):
    ledger.intend("processes")
    append(ledger.path, cut)
    assert list(Account.read(ledger.path).open) == [0]


def test_healing_goes_on_after_a_line_cut_short(ledger):
    folder = ledger.workspace()
    append(ledger.path, b'{"entry": 7, "kind": "direc')
    assert undo(ledger.path) == []
    assert undo(ledger.path) == []
    assert not folder.exists()


@pytest.mark.parametrize("text", [b"", b"no json\n", b'{"schema": 99}\n', b"\x00\x01"])
def test_a_foreign_file_is_no_ledger(tmp_path, text):
    (tmp_path / NAME).write_bytes(text)
    with pytest.raises(ValueError, match="no ledger"):
        Account.read(tmp_path / NAME)


@pytest.mark.parametrize("text", [b"[]\n", b"1\n", b'{"schema": 1}\n'])
def test_json_that_is_no_ledger_is_no_ledger(tmp_path, text):
    (tmp_path / NAME).write_bytes(text)
    with pytest.raises(ValueError, match="no ledger"):
        Account.read(tmp_path / NAME)


def test_a_directory_outside_the_registry_is_left_alone(ledger, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    ledger.intend("directory", path=str(precious))
    assert ledger.close() == [f"directory 0: {precious} is not in {registry()}, so it is left alone"]
    assert precious.is_dir()


def test_the_parent_of_the_registry_is_outside_the_registry(ledger, temporary):
    ledger.workspace()
    (temporary / "precious").mkdir()
    ledger.intend("directory", path=f"{registry()}/..")
    assert len(ledger.close()) == 1
    assert (temporary / "precious").is_dir()


def test_a_link_in_the_registry_is_not_followed(ledger, tmp_path):
    ledger.workspace()
    (tmp_path / "precious").mkdir()
    (registry() / "link").symlink_to(tmp_path / "precious")
    ledger.intend("directory", path=str(registry() / "link"))
    assert len(ledger.close()) == 1
    assert (tmp_path / "precious").is_dir()


def test_errors_are_collected_and_the_rest_is_undone(ledger):
    folder = ledger.workspace()
    ledger.intend("directory", path="/elsewhere")
    ledger.intend("unheard-of")
    errors = ledger.close()
    assert [error.split(":")[0] for error in errors] == ["unheard-of 2", "directory 1"]
    assert not folder.exists()
    assert list(Account.read(ledger.path).open) == [1, 2]


def test_an_entry_that_does_not_fit_on_the_disk_is_an_error(ledger, largest_file):
    with largest_file(ledger.path.stat().st_size + 10), pytest.raises(OSError):
        ledger.intend("processes")


def test_without_a_registry_there_is_nothing_to_heal():
    assert heal() == []


def test_the_run_of_a_living_owner_is_left_alone(ledger, spawn):
    folder = ledger.workspace()
    ledger.intend("processes")
    child = spawn(env={**os.environ, MARKER: "run1"})
    assert heal() == [Healing("run1", "left alone: its harness is running")]
    assert folder.is_dir()
    assert Identity.of(child.pid).alive()


def test_the_run_of_a_dead_owner_is_healed(orphan, tmp_path):
    assert heal() == [Healing("run1", "healed")]
    assert not orphan.alive()
    assert not (registry() / "run1").exists()
    assert Account.read(tmp_path / NAME).open == {}
    assert heal() == []


def test_a_run_whose_directory_was_deleted_is_healed(orphan, tmp_path):
    (tmp_path / NAME).unlink()
    assert heal() == [Healing("run1", "healed")]
    assert not orphan.alive()
    assert not (registry() / "run1").exists()


def test_an_owner_with_the_same_pid_and_another_start_is_dead(ledger):
    folder = ledger.workspace()
    stale = json.loads((folder / POINTER).read_text())
    (folder / POINTER).write_text(json.dumps({**stale, "start": stale["start"] - 1}))
    assert heal() == [Healing("run1", "healed")]
    assert not folder.exists()


def test_one_run_that_cannot_be_healed_does_not_keep_the_others_from_it(tmp_path):
    for run_id, kind in (("bad", "unheard-of"), ("good", "processes")):
        (tmp_path / run_id).mkdir()
        made = Ledger.open(tmp_path / run_id, run_id)
        pointer = made.workspace() / POINTER
        made.intend(kind)
        pointer.write_text(pointer.read_text().replace(str(current().start), "1"))
    bad, good = heal()
    assert (bad.run_id, bad.action, len(bad.errors)) == ("bad", "not healed", 1)
    assert good == Healing("good", "healed")


@pytest.mark.parametrize(("age", "action"), [(0, "left alone: just being made"), (120, "healed")])
def test_a_workspace_without_a_pointer_is_removed_once_it_is_old(age, action):
    folder = registry() / "half"
    folder.mkdir(parents=True)
    os.utime(folder, (time.time() - age,) * 2)
    assert heal() == [Healing("half", action)]
    assert folder.exists() == (age == 0)
