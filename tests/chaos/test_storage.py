"""What a job leaves in the user's storage moves into the run directory; what lay there before stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from chaos.healing import LATE_S, undo
from chaos.ledger import Ledger
from chaos.storage import MARKER, listed, take_in


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """An experiment directory with a checkpoint, Ray's record and its marker, and a file of the user's."""
    folder = tmp_path / "results" / "job"
    (folder / "checkpoint_1").mkdir(parents=True)
    (folder / "checkpoint_1" / "state.pt").write_text("state")
    for name in ("checkpoint_manager_snapshot.json", MARKER, "notes.txt"):
        (folder / name).write_text(name)
    return folder


def test_what_a_job_made_moves_and_what_lay_there_stays(experiment: Path, tmp_path: Path) -> None:
    take_in(experiment, ["notes.txt"], tmp_path / "run" / "storage" / "job")
    assert [path.name for path in experiment.iterdir()] == ["notes.txt"]
    assert (tmp_path / "run" / "storage" / "job" / "checkpoint_1" / "state.pt").read_text() == "state"


def test_an_experiment_directory_that_is_empty_then_goes(experiment: Path, tmp_path: Path) -> None:
    take_in(experiment, [], tmp_path / "run")
    assert not experiment.exists()
    assert (tmp_path / "run" / "notes.txt").exists()


def test_twice_does_no_harm_and_neither_does_a_directory_that_is_gone(experiment: Path, tmp_path: Path) -> None:
    take_in(experiment, [], tmp_path / "run")
    take_in(experiment, [], tmp_path / "run")
    take_in(tmp_path / "never", [], tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_after_a_dead_harness_the_ledger_tells_what_to_move(experiment: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    ledger = Ledger.open(run, "deadbeef")
    ledger.intend("storage", experiment=str(experiment), found=["notes.txt"], into=str(run / "storage" / "job"))
    (run / "history.jsonl").touch()
    assert undo(ledger.path) == []
    assert (run / "storage" / "job" / "checkpoint_1").is_dir()
    assert [path.name for path in experiment.iterdir()] == ["notes.txt"]


def test_what_another_job_wrote_long_after_the_run_is_left_where_it_is(experiment: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "history.jsonl").touch()
    os.utime(run / "history.jsonl", times=(0, time.time() - 2 * LATE_S))
    ours = experiment / "checkpoint_manager_snapshot.json"
    os.utime(ours, times=(0, time.time() - 2 * LATE_S))
    ledger = Ledger.open(run, "deadbeef")
    ledger.intend("storage", experiment=str(experiment), found=["notes.txt"], into=str(run / "storage" / "job"))
    assert undo(ledger.path) == []
    assert (experiment / "checkpoint_1" / "state.pt").exists()
    assert [path.name for path in (run / "storage" / "job").iterdir()] == [ours.name]


def test_a_move_that_was_cut_short_begins_anew(experiment: Path, tmp_path: Path) -> None:
    half = tmp_path / "run" / ".checkpoint_1.part"
    half.mkdir(parents=True)
    (half / "half").touch()
    take_in(experiment, [], tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "checkpoint_1").iterdir()] == ["state.pt"]
    assert not half.exists()


def test_a_name_that_json_cannot_hold_is_told_in_another_spelling(experiment: Path, tmp_path: Path) -> None:
    odd = os.fsencode(experiment) + b"/\xff"
    Path(os.fsdecode(odd)).touch()
    assert "\\udcff" in listed(experiment)
    take_in(experiment, ["\\udcff"], tmp_path / "run")
    assert [os.fsencode(path) for path in experiment.iterdir()] == [odd]
