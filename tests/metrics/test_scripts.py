"""A user's own script, which volunteers nothing: judged by its steps, learning rate and the content of checkpoints."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from chaos.exits import ExitCode
from chaos.history import NAME, Event, History
from metrics.continuity import check_resume_step
from metrics.control import check_trajectory
from metrics.publish import judge_run
from metrics.scripts import AGAIN, check_content, told_apart
from metrics.verdict import Case, Verdict
from tests.histories import EXPERIMENT, Run, healthy

OBSERVED = {"samples", "restored-state"}
"""Checks that only ``observe`` could supply."""


def silent(run: Run) -> Run:
    """The same run of a script that tells nothing by itself."""
    quiet = run.drop("state").drop("data.begin").change("step.end", loss=None, samples=[])
    return dataclasses.replace(quiet, control=silent(run.control) if run.control else None)


def save(folder: Path, at: int, **changes) -> None:
    """A checkpoint as a script would write it with torch.save."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        "model": {"weight": torch.full((2, 3), float(at))},
        "scheduler": {"last_epoch": at},
        "step": at,
        **changes,
    }
    torch.save(state, folder / "state.pt")


def again_told(history: History) -> Run:
    """The events of a stored run, to be changed and stored again."""
    names = Event.__struct_fields__
    return Run({}, tuple(Event(**{name: getattr(event, name) for name in names}) for event in history))


@pytest.fixture
def stored(tmp_path) -> Path:
    """A healthy run of a script, with the checkpoints that both runs kept: of steps 8 and 12, after the fault at 6."""
    run = silent(healthy()).asked(script=["python", "train.py"])
    run.write(tmp_path, store=False)
    for directory, told in ((tmp_path, run), (tmp_path / "control", run.control)):
        for commit in told.select("checkpoint.commit")[-2:]:
            save(directory / "storage" / EXPERIMENT / commit.data["checkpoint"], commit.step)
    return tmp_path


def checkpoint(stored: Path, step: int, part: str = ".") -> Path:
    """The folder of a checkpoint."""
    case = Case.load(stored)
    attempts = case.control_attempts if part == "control" else case.attempts
    (commit,) = [c for attempt in attempts for c in attempt.commits if c.step == step]
    return stored / part / "storage" / EXPERIMENT / commit.data["checkpoint"]


def found(stored: Path):
    return check_content(Case.load(stored), "control-state")


def test_a_script_that_tells_nothing_passes_by_what_is_seen_of_it(stored):
    _, judgement = judge_run(stored)
    verdicts = {finding.check: finding.verdict for finding in judgement.findings}
    assert {name for name, verdict in verdicts.items() if verdict is Verdict.NOT_APPLICABLE} == OBSERVED
    assert verdicts["trajectory"] is verdicts["control-state"] is verdicts["checkpoints"] is Verdict.PASS
    assert judgement.exit_code in (ExitCode.PASS, ExitCode.FAIL)
    assert {name for name, verdict in verdicts.items() if verdict is Verdict.FAIL} <= {"snapshot"}


def test_what_only_observe_could_tell_is_said_with_the_line_that_supplies_it(stored):
    _, judgement = judge_run(stored)
    told = {finding.check: finding.seen for finding in judgement.findings}
    assert "from chaos import observe; observe.samples(ids) supplies it" in told["samples"]
    assert "observe.state(" in told["restored-state"]


def test_across_a_resize_the_learning_rate_alone_is_compared(stored):
    finding = check_trajectory(Case.load(stored), within=1e-9)
    assert finding.verdict is Verdict.PASS
    assert finding.seen == "learning rate of 12 steps equal within 1e-09; no difference"


def test_a_learning_rate_that_went_another_way_is_found_without_help(stored):
    case = Case.load(stored)
    run = again_told(case.history).change("step.end", {"attempt": 1, "step": 9}, lr=0.5)
    (stored / NAME).write_bytes(b"".join(run.lines()))
    _, judgement = judge_run(stored)
    (trajectory,) = [finding for finding in judgement.findings if finding.check == "trajectory"]
    assert trajectory.verdict is Verdict.FAIL
    assert "step 9" in trajectory.seen


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"scheduler": {"last_epoch": 3}}, "scheduler.last_epoch"),
        ({"model": {"weight": torch.full((2, 3), 12.5)}}, "model.weight"),
        ({"more": 1}, "more"),
    ],
)
def test_content_that_differs_from_the_control_runs_fails_with_its_name_and_step(stored, changes, name):
    save(checkpoint(stored, 12), 12, **changes)
    again(stored)
    finding = found(stored)
    assert finding.verdict is Verdict.FAIL
    assert "at step 12" in finding.seen
    assert name in finding.seen


def again(stored: Path, **changes) -> None:
    """A second undisturbed run of that script, whose last checkpoint holds that."""
    shutil.copytree(stored / "control", stored / AGAIN)
    save(stored / AGAIN / checkpoint(stored, 12, "control").relative_to(stored / "control"), 12, **changes)


def test_a_difference_counts_where_two_undisturbed_runs_are_equal(stored):
    save(checkpoint(stored, 12), 12, step=3)
    assert told_apart(Case.load(stored))
    again(stored)
    assert not told_apart(Case.load(stored))
    assert found(stored).verdict is Verdict.FAIL


def test_a_difference_of_which_nobody_knows_what_it_is_due_to_is_unknown(stored):
    save(checkpoint(stored, 12), 12, step=3)
    finding = found(stored)
    assert finding.verdict is Verdict.UNKNOWN
    assert "step: 3, control 12" in finding.seen
    assert "whether the script repeats itself without a fault is not known" in finding.seen


def test_a_second_undisturbed_run_of_another_size_tells_nothing(stored):
    save(checkpoint(stored, 12), 12, step=3)
    again(stored, step=4)
    case = Case.load(stored)
    events = again_told(case.control).change("attempt.start", world_size=3)
    (stored / AGAIN / NAME).write_bytes(b"".join(events.lines()))
    assert found(stored).verdict is Verdict.UNKNOWN
    assert "is not known" in found(stored).seen


def test_a_control_run_of_another_size_is_not_compared(stored):
    case = Case.load(stored)
    events = again_told(case.control).change("attempt.start", world_size=3)
    (stored / "control" / NAME).write_bytes(b"".join(events.lines()))
    assert found(stored).verdict is Verdict.NOT_APPLICABLE


def test_losses_that_differ_before_the_fault_are_no_verdict_on_it(stored):
    for part in (stored, stored / "control"):
        case = Case.load(stored)
        told = case.history if part == stored else case.control
        run = again_told(told).change("step.end", {"step": 2}, loss=2.0 if part == stored else 3.0)
        (part / NAME).write_bytes(b"".join(run.lines()))
    finding = check_trajectory(Case.load(stored))
    assert finding.verdict is Verdict.UNKNOWN
    assert "does not repeat itself: step 2, before the fault" in finding.seen


def test_a_restart_that_nobody_was_seen_to_read_a_checkpoint_for_is_unknown(stored):
    run = again_told(Case.load(stored).history).drop("restore.begin")
    (stored / NAME).write_bytes(b"".join(run.lines()))
    finding = check_resume_step(Case.load(stored))
    assert finding.verdict is Verdict.UNKNOWN
    assert "no rank was seen to open" in finding.seen


def test_a_script_that_does_not_repeat_itself_is_unknown_not_failed(stored):
    save(checkpoint(stored, 12), 12, step=3)
    again(stored, step=4)
    finding = found(stored)
    assert finding.verdict is Verdict.UNKNOWN
    assert "does not repeat itself" in finding.seen


def test_a_checkpoint_from_before_the_fault_tells_the_same_without_a_second_run(stored):
    for part, value in ((".", 1.0), ("control", 2.0)):
        save(checkpoint(stored, 4, part), 4, step=value)
    save(checkpoint(stored, 12), 12, step=3)
    assert not told_apart(Case.load(stored))
    finding = found(stored)
    assert finding.verdict is Verdict.UNKNOWN
    assert "already at step 4, before the fault" in finding.seen


def test_equal_content_asks_for_no_second_run(stored):
    assert not told_apart(Case.load(stored))


def test_what_the_attempt_that_was_hit_still_committed_says_nothing_of_the_recovery(stored):
    run = again_told(Case.load(stored).history).change("checkpoint.commit", attempt=0)
    (stored / NAME).write_bytes(b"".join(run.lines()))
    assert found(stored).verdict is Verdict.UNKNOWN
    assert "no step after the fault of which both have a checkpoint" in found(stored).seen


def test_no_step_that_both_have_is_unknown(stored):
    for step in (8, 12):
        shutil.rmtree(checkpoint(stored, step, "control"))
    assert found(stored).verdict is Verdict.UNKNOWN
    assert "control run none" in found(stored).seen


def test_a_script_without_checkpoints_is_told_so(stored):
    run = again_told(Case.load(stored).history).drop("checkpoint.commit")
    (stored / NAME).write_bytes(b"".join(run.lines()))
    finding = found(stored)
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert "ray.train.report(metrics, checkpoint=...)" in finding.seen


def test_a_checkpoint_that_holds_nothing_fails(stored):
    (checkpoint(stored, 12) / "state.pt").unlink()
    _, judgement = judge_run(stored)
    (finding,) = [finding for finding in judgement.findings if finding.check == "checkpoints"]
    assert finding.verdict is Verdict.FAIL
    assert "holds nothing" in finding.seen
