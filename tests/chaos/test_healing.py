"""Healing: what is undone, in which order, and whose runs are left alone."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from chaos.healing import Healing, InPlace, close, heal, heal_run, status, undo
from chaos.ledger import NAME, POINTER, Account, Ledger, registry
from chaos.process import Identity, current

pytestmark = pytest.mark.usefixtures("temporary")


@pytest.fixture
def open_entries(ledger):
    return lambda: list(Account.read(ledger.path).open)


@pytest.fixture
def directory(ledger):
    """A directory in the registry that the ledger has recorded."""
    folder = registry() / "made"
    ledger.intend("directory", path=str(folder))
    folder.mkdir(parents=True)
    return folder


def of_another_life(folder):
    """Let a working directory name an owner that had this process's pid before."""
    pointer = json.loads((folder / POINTER).read_text())
    (folder / POINTER).write_text(json.dumps({**pointer, "start": pointer["start"] - 1}))


def tree(folder):
    """Every file below a folder with its bytes, every folder with None."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in Path(folder).rglob("*")}


def test_undoing_twice_is_undoing_once(ledger, directory) -> None:
    assert close(ledger) == []
    written = ledger.path.read_bytes()
    assert close(ledger) == []
    assert not directory.exists()
    assert ledger.path.read_bytes() == written


def test_what_is_gone_already_counts_as_undone(ledger, directory, open_entries) -> None:
    directory.rmdir()
    assert close(ledger) == []
    assert open_entries() == []


def test_undoing_goes_backwards(ledger) -> None:
    ledger.workspace()
    ledger.intend("injection", injection="kill-0")
    close(ledger)
    done = [record["done"] for line in ledger.path.read_text().splitlines() if "done" in (record := json.loads(line))]
    assert done == [2, 1, 0]


def test_processes_are_ended(ledger, spawn, marked) -> None:
    ledger.intend("processes")
    child = spawn(env=marked)
    assert close(ledger) == []
    assert child.wait(5) == -9


def test_a_process_that_was_stopped_goes_on(ledger, spawn, stop, eventually) -> None:
    victim = spawn()
    identity = Identity.of(victim.pid)
    ledger.intend("stopped", pid=identity.pid, start=identity.start)
    stop(victim)
    assert close(ledger) == []
    assert eventually(lambda: not identity.stopped())
    assert identity.alive()


def test_a_stopped_process_whose_pid_is_another_s_is_not_signalled(ledger, spawn, stop, open_entries) -> None:
    identity = stop(spawn())
    ledger.intend("stopped", pid=identity.pid, start=identity.start - 1)
    assert close(ledger) == []
    time.sleep(0.05)
    assert identity.stopped()
    assert open_entries() == []


def test_a_stopped_process_that_is_gone_counts_as_undone(ledger, spawn, open_entries) -> None:
    victim = spawn()
    ledger.intend("stopped", pid=victim.pid, start=Identity.of(victim.pid).start)
    victim.kill()
    victim.wait()
    assert close(ledger) == []
    assert open_entries() == []


def test_a_stopped_process_of_the_run_is_ended(ledger, spawn, marked, stop) -> None:
    ledger.intend("processes")
    victim = spawn(env=marked)
    identity = stop(victim)
    ledger.intend("stopped", pid=identity.pid, start=identity.start)
    assert close(ledger) == []
    assert victim.wait(5) == -9


def test_healing_goes_on_after_a_line_cut_short(ledger, directory) -> None:
    with ledger.path.open("ab") as file:
        file.write(b'{"entry": 7, "kind": "direc')
    assert undo(ledger.path) == []
    assert undo(ledger.path) == []
    assert not directory.exists()


def test_a_full_disk_does_not_keep_from_healing(ledger, directory, largest_file, open_entries) -> None:
    with largest_file(ledger.path.stat().st_size):
        assert close(ledger) == []
    assert not directory.exists()
    assert open_entries() == [0]


def test_a_directory_outside_the_registry_is_left_alone(ledger, tmp_path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    ledger.intend("directory", path=str(precious))
    assert close(ledger) == [f"directory 0: {precious} is not in {registry()}, so it is left alone"]
    assert precious.is_dir()


def test_the_parent_of_the_registry_is_outside_the_registry(ledger, directory, temporary) -> None:
    (temporary / "precious").mkdir()
    ledger.intend("directory", path=f"{registry()}/..")
    assert len(close(ledger)) == 1
    assert (temporary / "precious").is_dir()


def test_a_link_in_the_registry_is_not_followed(ledger, directory, tmp_path) -> None:
    (tmp_path / "precious").mkdir()
    directory.with_name("link").symlink_to(tmp_path / "precious")
    ledger.intend("directory", path=str(directory.with_name("link")))
    assert len(close(ledger)) == 1
    assert (tmp_path / "precious").is_dir()


def test_errors_are_collected_and_the_rest_is_undone(ledger, directory, open_entries) -> None:
    ledger.intend("directory", path="/elsewhere")
    ledger.intend("unheard-of")
    errors = close(ledger)
    assert [error.split(":")[0] for error in errors] == ["unheard-of 2", "directory 1"]
    assert not directory.exists()
    assert open_entries() == [1, 2]


def test_closing_without_the_ledger_ends_what_carries_the_marker(ledger, spawn, marked) -> None:
    folder = ledger.workspace()
    child = spawn(env=marked)
    ledger.path.unlink()
    assert close(ledger) == []
    assert child.wait(5) == -9
    assert not folder.exists()


def test_without_a_registry_there_is_nothing_to_heal_or_to_tell() -> None:
    assert heal() == []
    assert status() == []


def test_the_run_of_a_living_owner_is_left_alone(owned, run_id, tmp_path) -> None:
    owner, child = owned
    before = tree(registry()), (tmp_path / NAME).read_bytes()
    assert heal() == [Healing(run_id, "left alone: its harness is running")]
    assert (tree(registry()), (tmp_path / NAME).read_bytes()) == before
    assert child.alive()
    assert owner.poll() is None


def test_a_living_owner_is_no_obstacle_when_asked(owned, run_id) -> None:
    owner, child = owned
    assert heal_run(registry() / run_id, even_if_owned=True) == Healing(run_id, "healed")
    assert not child.alive()
    assert owner.poll() is None


def test_the_run_of_a_dead_owner_is_healed(orphan, run_id, tmp_path) -> None:
    assert heal() == [Healing(run_id, "healed")]
    assert not orphan.alive()
    assert not (registry() / run_id).exists()
    assert Account.read(tmp_path / NAME).open == {}
    assert heal() == []


def test_nothing_of_a_healed_run_is_left_running(orphan, tmp_path) -> None:
    before = Account.read(tmp_path / NAME).processes()
    assert len(before) == 2, "the process of the run, and its watcher"
    heal()
    assert [identity for identity in before if identity.alive()] == []


def test_a_run_whose_directory_was_deleted_is_healed(orphan, run_id, tmp_path) -> None:
    (tmp_path / NAME).unlink()
    assert heal() == [Healing(run_id, "healed")]
    assert not orphan.alive()
    assert not (registry() / run_id).exists()


def test_an_owner_with_the_same_pid_and_another_start_is_dead(ledger) -> None:
    folder = ledger.workspace()
    of_another_life(folder)
    assert heal() == [Healing(ledger.run_id, "healed")]
    assert not folder.exists()


def test_one_run_that_cannot_be_healed_does_not_keep_the_others_from_it(tmp_path, run_id) -> None:
    for name, kind in ((f"{run_id}-bad", "unheard-of"), (f"{run_id}-good", "injection")):
        (tmp_path / name).mkdir()
        made = Ledger.open(tmp_path / name, name)
        of_another_life(made.workspace())
        made.intend(kind)
    bad, good = heal()
    assert (bad.run_id, bad.action, len(bad.errors)) == (f"{run_id}-bad", "not healed", 1)
    assert good == Healing(f"{run_id}-good", "healed")


@pytest.mark.parametrize(("age", "action"), [(0, "left alone: just being made"), (120, "healed")])
def test_a_workspace_without_a_pointer_is_removed_once_it_is_old(age, action) -> None:
    folder = registry() / "half"
    folder.mkdir(parents=True)
    os.utime(folder, (time.time() - age,) * 2)
    assert heal() == [Healing("half", action)]
    assert folder.exists() == (age == 0)


@pytest.mark.parametrize("text", ["", "[]", '{"pid": 1}', "/path/of/a/ledger.jsonl"])
def test_a_pointer_that_says_nothing_is_no_pointer(text) -> None:
    folder = registry() / "odd"
    folder.mkdir(parents=True)
    (folder / POINTER).write_text(text)
    assert heal() == [Healing("odd", "left alone: just being made")]
    os.utime(folder, (time.time() - 120,) * 2)
    assert heal() == [Healing("odd", "healed")]


def test_the_status_of_a_running_run(ledger, spawn, marked, stop) -> None:
    ledger.workspace()
    ledger.intend("injection", injection="hang-0", fault="hang", target="rank 1")
    child, frozen = spawn(env=marked), stop(spawn(env=marked))
    ledger.intend("stopped", pid=frozen.pid, start=frozen.start, injection="freeze-0")
    (place,) = status()
    assert (place.run_id, place.state, place.owner) == (ledger.run_id, "running", current().pid)
    assert 3500 < place.left_s <= 3600
    assert place.entries == (
        f"directory {registry() / ledger.run_id}",
        "processes",
        "injection hang hang-0",
        f"stopped freeze-0 {frozen.pid}",
    )
    assert {child.pid, frozen.pid} <= set(place.processes)
    assert place.stopped == (frozen.pid,)


def test_the_status_of_a_run_left_by_a_dead_harness(orphan, owned, run_id) -> None:
    (place,) = status()
    assert (place.run_id, place.state, place.owner) == (run_id, "left by a dead harness", owned[0].pid)
    assert orphan.pid in place.processes
    assert place.stopped == ()


def test_looking_touches_nothing(ledger, spawn, marked, stop) -> None:
    folder = ledger.workspace()
    child, frozen = Identity.of(spawn(env=marked).pid), stop(spawn(env=marked))
    of_another_life(folder)
    before = tree(registry()), ledger.path.read_bytes()
    assert [place.stopped for place in status()] == [(frozen.pid,)]
    assert (tree(registry()), ledger.path.read_bytes()) == before
    assert child.alive()
    assert frozen.stopped()


def test_what_is_closed_is_not_in_place(ledger) -> None:
    ledger.workspace()
    close(ledger)
    assert status() == []


def test_the_status_of_a_workspace_without_a_pointer(run_id, spawn, marked) -> None:
    (registry() / run_id).mkdir(parents=True)
    child = spawn(env=marked)
    assert status() == [InPlace(run_id, "left by a dead harness", 0, None, (), (child.pid,), ())]


def test_a_running_run_whose_directory_was_deleted_still_runs(owned, tmp_path) -> None:
    owner, _ = owned
    (tmp_path / NAME).unlink()
    (place,) = status()
    assert (place.state, place.owner) == ("running", owner.pid)
