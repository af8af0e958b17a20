"""Ray Train's own record of its checkpoints against what was committed and what lies there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from metrics.checkpoints import registry
from metrics.verdict import Finding, Verdict
from tests.histories import Run, healthy
from tests.stories import EXPERIMENT, checkpoint_name


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A healthy run of which the checkpoints after steps 8 and 12 are kept."""
    return healthy().write(tmp_path / "run")


def storage(directory: Path) -> Path:
    return directory / "storage" / EXPERIMENT


def judged(directory: Path, run: Run | None = None) -> Finding:
    return registry.check((run or healthy()).case(directory))


def rewrite(directory: Path, **changes: Any) -> None:
    file = storage(directory) / registry.FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def named(*steps: int) -> list[dict[str, str]]:
    return [{"checkpoint_dir_name": checkpoint_name(step)} for step in steps]


def test_a_record_of_what_was_committed_and_is_there_passes(directory: Path) -> None:
    finding = judged(directory)
    assert finding.verdict is Verdict.PASS
    assert finding.seen == f"2 checkpoints, the latest {checkpoint_name(12)}"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "behind by a commit": (
        {"checkpoint_results": named(4, 8), "latest_checkpoint_result": named(8)[0]},
        f"it does not name {checkpoint_name(12)}",
    ),
    "one that retention dropped": ({"checkpoint_results": named(4, 8, 12)}, f"it names {checkpoint_name(4)}, which"),
    "nothing": ({"checkpoint_results": [], "latest_checkpoint_result": None}, f"it does not name {checkpoint_name(8)}"),
    "an older latest": ({"latest_checkpoint_result": named(8)[0]}, f"its latest checkpoint is {checkpoint_name(8)}, n"),
    "no latest": ({"latest_checkpoint_result": None}, "its latest checkpoint is none, not"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_record_that_does_not_fit_fails_by_name(directory: Path, name: str) -> None:
    changes, words = WRONG[name]
    rewrite(directory, **changes)
    finding = judged(directory)
    assert finding.verdict is Verdict.FAIL
    assert words in finding.seen
    assert finding.where == f"storage/{EXPERIMENT}/{registry.FILE}"


def test_a_checkpoint_that_is_gone_fails(directory: Path) -> None:
    shutil.rmtree(storage(directory) / checkpoint_name(8))
    finding = judged(directory)
    assert (finding.verdict, finding.seen) == (
        Verdict.FAIL, f"it names {checkpoint_name(8)}, which is not in the storage",
    )  # fmt: skip


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_a_record_cut_short_fails(directory: Path, share: float) -> None:
    file = storage(directory) / registry.FILE
    text = file.read_bytes()
    file.write_bytes(text[: int(len(text) * share)])
    finding = judged(directory)
    assert finding.verdict is Verdict.FAIL
    assert "cannot be read, so no driver could resume" in finding.seen


def test_a_record_that_is_missing_fails(directory: Path) -> None:
    (storage(directory) / registry.FILE).unlink()
    assert "is missing: a new driver would start over" in judged(directory).seen
    assert judged(directory).verdict is Verdict.FAIL


@pytest.mark.parametrize("changes", [{"checkpoint_results": None}, {"latest_checkpoint_result": {"name": "x"}}])
def test_a_record_of_another_version_is_unknown(directory: Path, changes: dict[str, Any]) -> None:
    rewrite(directory, **changes)
    finding = judged(directory)
    assert finding.verdict is Verdict.UNKNOWN
    assert "as no known version of Ray writes it" in finding.seen


def test_without_commits_or_a_known_storage_nothing_is_known(directory: Path) -> None:
    assert judged(directory, healthy().drop("checkpoint.commit")).verdict is Verdict.UNKNOWN
    assert judged(directory, healthy().drop("controller.start")).verdict is Verdict.UNKNOWN


def test_a_history_that_was_cut_tells_too_little_to_fail_the_record(directory: Path) -> None:
    cut = healthy().until("checkpoint.commit", step=8)
    finding = judged(directory, cut)
    assert finding.verdict is Verdict.UNKNOWN
    assert f"it names {checkpoint_name(12)}, of whose commit no event tells" in finding.seen
    rewrite(directory, checkpoint_results=named(4), latest_checkpoint_result=named(4)[0])
    assert judged(directory, cut).verdict is Verdict.UNKNOWN


def test_a_commit_told_twice_counts_once(directory: Path) -> None:
    assert judged(directory, healthy().again("checkpoint.commit", {"step": 12})).verdict is Verdict.PASS


def test_a_file_in_the_place_of_a_checkpoint_is_none(directory: Path) -> None:
    shutil.rmtree(storage(directory) / checkpoint_name(8))
    (storage(directory) / checkpoint_name(8)).write_text("")
    assert judged(directory).verdict is Verdict.FAIL
