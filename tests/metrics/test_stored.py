"""Finding stored runs: what counts as one, what is left out and why, and that nothing is ever a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from metrics import stored
from metrics.stored import Reason, survey
from metrics.summary import Summary
from metrics.trend import Night
from scenarios import suite, sweep_record
from tests.nights import store, summary


def rewritten(folder: Path, **changes: Any) -> Path:
    file = folder / "verdict.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return folder


def left_out(folder: Path) -> dict[Reason, list[str]]:
    found = survey(folder, Night)
    return {reason: [path.name for path in paths] for reason, paths in found.left_out.items()}


def test_a_run_a_suite_and_folders_of_them_are_all_found(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = store(out, 0, summary())
    nested = store(out / "20260101-020000-full-00000001", 1, summary("segfault"))
    (nested.parent / "suite.json").write_text("{}")
    (nested.parent / "cluster-1").mkdir()
    for folder, number in ((run, 1), (nested.parent, 1), (out, 2), (tmp_path, 2)):
        found = survey(folder, Summary)
        assert (len(found.runs), found.left_out) == (number, {}), folder
    assert survey(run, Summary).runs[0].record == summary()


def test_the_time_of_a_run_is_that_in_its_name_else_that_of_its_first_event(tmp_path: Path) -> None:
    run = store(tmp_path, 3, summary())
    (found,) = survey(tmp_path, Night).runs
    assert found.began == "2026-01-04 02:00:00"
    renamed = run.rename(tmp_path / "before-the-upgrade")
    (found,) = survey(tmp_path, Night).runs
    assert found.began == ""
    (renamed / "history.jsonl").write_text('{"kind": "run.start", "wall_ns": 1767232800000000000}\n{"ki')
    assert found.began.startswith("2026-01-01 ") or found.began.startswith("2025-12-31 ")  # local time


def test_a_name_with_an_impossible_time_tells_none(tmp_path: Path) -> None:
    store(tmp_path, 0, summary()).rename(tmp_path / "20269999-990000-kill-worker-00000000")
    assert survey(tmp_path, Night).runs[0].began == ""


@pytest.mark.parametrize("text", ["", '{"wall_ns": "x"}\n', "[]\n", '{"wall_ns": 1e300}\n'])
def test_a_history_that_tells_no_time_gives_none(tmp_path: Path, text: str) -> None:
    run = store(tmp_path, 3, summary()).rename(tmp_path / "renamed")
    (run / "history.jsonl").write_text(text)
    assert survey(tmp_path, Night).runs[0].began == ""


@pytest.mark.parametrize("text", ["", '{"schema": 1, "run": "0ba', "[]", "null", '{"schema": 1}', '"\xff"', "[" * 9999])
def test_a_verdict_that_is_cut_or_foreign_is_damaged(tmp_path: Path, text: str) -> None:
    run = store(tmp_path, 0, summary())
    (run / "verdict.json").write_bytes(text.encode("latin-1"))
    assert left_out(tmp_path) == {Reason.DAMAGED: [run.name]}
    assert left_out(run) == {Reason.DAMAGED: [run.name]}


@pytest.mark.parametrize("changes", [{"schema": 2}, {"schema": 2, "recoveries": "of another kind"}])
def test_a_verdict_of_another_schema_version_is_named_so(tmp_path: Path, changes: dict[str, Any]) -> None:
    run = rewritten(store(tmp_path, 0, summary()), **changes)
    assert left_out(tmp_path) == {Reason.OTHER_SCHEMA: [run.name]}


def test_what_is_unfinished_aborted_a_sweep_or_foreign_is_counted(tmp_path: Path) -> None:
    unfinished = store(tmp_path, 0, summary())
    (unfinished / "verdict.json").unlink()
    aborted = rewritten(store(tmp_path, 1, summary()), exit_code=6)
    sweep = store(tmp_path, 2, summary())
    (sweep / "verdict.json").rename(sweep / "sweep.json")
    (tmp_path / "photos" / "2026").mkdir(parents=True)
    (tmp_path / ".pruning-00000000").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    os.symlink(tmp_path, tmp_path / "loop")
    found = survey(tmp_path, Night)
    assert found.runs == []
    assert left_out(tmp_path) == {
        Reason.UNFINISHED: [unfinished.name],
        Reason.ABORTED: [aborted.name],
        Reason.SWEEP: [sweep.name],
        Reason.FOREIGN: ["photos"],
    }
    assert f"left out 1, unfinished (no verdict.json): {unfinished.name}" in found.told()


def test_several_directories_are_told_by_their_number_and_the_first(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    assert survey(tmp_path, Night).told() == ["left out 3, no run: a, ..."]


def test_a_verdict_that_is_a_directory_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "run" / "verdict.json").mkdir(parents=True)
    assert left_out(tmp_path) == {Reason.DAMAGED: ["run"]}


def test_a_folder_that_is_not_there_is_an_error_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        survey(tmp_path / "nowhere", Night)


def test_the_names_of_the_records_are_those_of_their_writers() -> None:
    assert (stored.SUITE, stored.SWEEP) == (suite.NAME, sweep_record.NAME)
