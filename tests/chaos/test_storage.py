"""What a job leaves in the user's storage moves into the run directory; what lay there before stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.healing import undo
from chaos.ledger import Ledger
from chaos.storage import MARKER, take_in


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
    assert undo(ledger.path) == []
    assert (run / "storage" / "job" / "checkpoint_1").is_dir()
    assert [path.name for path in experiment.iterdir()] == ["notes.txt"]
