"""Against the control run within a tolerance, across resizes: what is close passes, and every real difference fails."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from chaos.history import NAME, Event
from metrics.checkpoints.dcp import METADATA
from metrics.control import check_state, check_trajectory
from metrics.verdict import Finding, Verdict
from tests.histories import Run, faulty, healthy, write_checkpoint
from tests.shards import save_values, whole
from tests.stories import EXPERIMENT, Hit, checkpoint_name

ELASTIC = faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 10),), steps=16)
SHRUNK = faulty((Hit(2, 6),), worlds=(3, 2))
GROWN = faulty(worlds=(2, 3), resizes=((0, 6),))
RUNS = [ELASTIC, SHRUNK, GROWN, healthy(), healthy(kills=((1, 6), (0, 10)))]

near = functools.partial(check_trajectory, within=1e-9)
near_state = functools.partial(check_state, within=1e-9)


def on_control(run: Run, change: Callable[[Run], Run]) -> Run:
    assert run.control is not None
    return run.with_control(change(run.control))


# The trajectory


@pytest.mark.parametrize("run", RUNS)
def test_a_healthy_run_is_close_to_its_control(run: Run) -> None:
    finding = near(run.case())
    assert finding.verdict is Verdict.PASS
    assert finding.evidence["largest"] < 1e-15


def test_bitwise_a_resize_is_a_difference() -> None:
    assert check_trajectory(ELASTIC.case()).verdict is Verdict.FAIL
    assert check_state(ELASTIC.case()).verdict is Verdict.FAIL


def drifted(run: Run, step: int, by: float, field: str = "loss") -> Run:
    """Every rank of the effective history is off in one step."""
    for event in run.select("step.end", step=step):
        where = {"attempt": event.attempt, "rank": event.rank, "step": step}
        run = run.change("step.end", where, **{field: event.data[field] + by})
    return run


@pytest.mark.parametrize("field", ["loss", "lr"])
def test_the_largest_difference_is_told_with_its_step(field: str) -> None:
    run = drifted(drifted(ELASTIC, 7, 3e-10, field), 11, -6e-10, field)
    finding = near(run.case())
    assert finding.verdict is Verdict.PASS
    assert finding.seen == f"16 steps equal within 1e-09; largest difference 6e-10, {field} of step 11"
    assert finding.evidence == {"largest": pytest.approx(6e-10, rel=1e-5), "of": field, "step": 11}


@pytest.mark.parametrize("field", ["loss", "lr"])
@pytest.mark.parametrize(("within", "verdict"), [(1e-6, Verdict.PASS), (1e-9, Verdict.FAIL), (0, Verdict.FAIL)])
def test_the_tolerance_is_the_largest_difference_allowed(field: str, within: float, verdict: Verdict) -> None:
    finding = check_trajectory(drifted(ELASTIC, 9, 1e-8, field).case(), within=within)
    assert finding.verdict is verdict
    assert finding.expected.endswith(f"equal the control run's, within {within:g}")


@pytest.mark.parametrize("field", ["loss", "lr"])
def test_the_first_difference_is_named_beside_the_largest(field: str) -> None:
    finding = near(drifted(drifted(ELASTIC, 9, 1e-3, field), 12, 1e-2, field).case())
    assert finding.verdict is Verdict.FAIL
    assert f"first difference at step 9: {field} " in finding.seen
    assert finding.seen.endswith(f"; largest difference 0.01, {field} of step 12")


def test_losses_that_only_changed_places_among_ranks_have_the_same_mean() -> None:
    run = healthy()
    first, second = run.select("step.end", attempt=1, step=9)
    run = run.change("step.end", {"attempt": 1, "step": 9, "rank": 0}, loss=second.data["loss"])
    run = run.change("step.end", {"attempt": 1, "step": 9, "rank": 1}, loss=first.data["loss"])
    assert near(run.case()).verdict is Verdict.PASS
    assert check_trajectory(run.case()).verdict is Verdict.FAIL


@pytest.mark.parametrize("value", [float("nan"), None, float("inf")])
@pytest.mark.parametrize("field", ["loss", "lr"])
def test_a_value_that_is_no_number_or_absent_on_one_side_is_a_difference(field: str, value: float | None) -> None:
    where = {"attempt": 1, "step": 7}
    finding = near(ELASTIC.change("step.end", where, **{field: value}).case())
    assert finding.verdict is Verdict.FAIL
    assert f"first difference at step 7: {field} {value}" in finding.seen


def test_what_is_no_number_on_both_sides_is_a_difference() -> None:
    nan = {"loss": float("nan")}
    run = on_control(ELASTIC.change("step.end", {"step": 7}, **nan), lambda c: c.change("step.end", {"step": 7}, **nan))
    assert near(run.case()).verdict is Verdict.FAIL


def test_the_samples_of_a_step_are_compared_over_all_ranks() -> None:
    run = ELASTIC
    first, second = run.select("step.end", attempt=1, step=7)
    swapped = run.change("step.end", {"attempt": 1, "step": 7, "rank": 0}, samples=second.data["samples"])
    swapped = swapped.change("step.end", {"attempt": 1, "step": 7, "rank": 1}, samples=first.data["samples"])
    assert near(swapped.case()).verdict is Verdict.PASS
    finding = near(run.change("step.end", {"attempt": 1, "step": 7, "rank": 0}, samples=[[72, 76], [0, 0]]).case())
    assert finding.verdict is Verdict.FAIL
    assert "first difference at step 7: samples too many [0], too few [77]" in finding.seen


def test_a_sample_consumed_twice_in_a_step_is_a_difference() -> None:
    run = ELASTIC.change("step.end", {"attempt": 1, "step": 7, "rank": 0}, samples=[[72, 77], [72, 72]])
    assert "samples too many [72], too few []" in near(run.case()).seen


@pytest.mark.parametrize(
    "run",
    [ELASTIC.drop("step.end", step=16), on_control(ELASTIC, lambda control: control.drop("step.end", step=16))],
)
def test_a_step_that_only_one_of_the_two_has_fails(run: Run) -> None:
    finding = near(run.case())
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, "only one of the two runs has step 16")


def test_a_difference_in_steps_that_a_resize_took_back_does_not_count() -> None:
    run = ELASTIC.change("step.end", {"attempt": 0, "rank": 2, "step": 6}, loss=0.0)
    assert near(run.change("step.end", {"attempt": 1, "step": 10}, loss=0.0).case()).verdict is Verdict.PASS


def silent(run: Run) -> Run:
    return on_control(run.change("step.end", loss=None), lambda control: control.change("step.end", loss=None))


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (silent(ELASTIC), "the workload told of no loss (observe.loss)"),
        (ELASTIC.drop("step.end"), "no step to compare"),
        (on_control(ELASTIC, lambda control: control.drop("step.end")), "no step to compare"),
        (ELASTIC.with_control(None), "there is no control run"),
        (on_control(ELASTIC, lambda control: control.drop("workload.exit")), "the control run did not end well"),
    ],
)
def test_a_trajectory_without_evidence_is_unknown(run: Run, words: str) -> None:
    finding = near(run.case())
    assert finding.verdict is Verdict.UNKNOWN
    assert words in finding.seen


def test_a_learning_rate_that_differs_fails_even_where_no_loss_is_told() -> None:
    assert near(drifted(silent(ELASTIC), 9, 1e-3, "lr").case()).verdict is Verdict.FAIL


@pytest.mark.parametrize("check", [near, near_state])
def test_without_a_control_run_asked_for_there_is_nothing_to_judge(check: Callable[..., Finding]) -> None:
    run = faulty((Hit(2, 6),), worlds=(3, 2), control=False)
    assert check(run.case()).verdict is Verdict.NOT_APPLICABLE


# The state on disk


def written(run: Run, tmp_path: Path) -> Path:
    return run.write(tmp_path / "run")


def rewritten(directory: Path, step: int, world: int, **values: Any) -> None:
    """Write a checkpoint of the run, or of its control run, anew with other values; by name, with ``/`` for dots."""
    folder = directory / "storage" / EXPERIMENT / checkpoint_name(step)
    shutil.rmtree(folder)
    changed = {name.replace("/", "."): value for name, value in values.items()}
    save_values(folder, {**whole(step), **changed}, world)


@pytest.mark.parametrize("run", RUNS)
def test_the_newest_checkpoint_of_a_healthy_run_is_close_to_the_controls(run: Run, tmp_path: Path) -> None:
    finding = near_state(run.case(written(run, tmp_path)))
    assert finding.verdict is Verdict.PASS
    step = run.record["steps"]
    assert f"equal within 1e-09 at step {step}; no difference" in finding.seen
    assert finding.where == f"storage/{EXPERIMENT}/{checkpoint_name(step)}"


def test_the_numbers_are_told(tmp_path: Path) -> None:
    directory = written(ELASTIC, tmp_path)
    weight = whole(16)["model.weight"]
    rewritten(directory, 16, 3, **{"model/weight": weight + 2e-10})
    finding = near_state(ELASTIC.case(directory))
    assert finding.verdict is Verdict.PASS
    assert finding.seen == (
        "9 tensors and 3 other values equal within 1e-09 at step 16; largest difference 2e-10, model.weight"
    )
    evidence = {"step": 16, "tensors": 9, "largest": pytest.approx(2e-10, rel=1e-3), "of": "model.weight"}
    assert finding.evidence == evidence


WEIGHT = whole(16)["model.weight"]
BENT = WEIGHT.clone()
BENT[6, 1] += 1e-6  # the last row, which lies with another rank at each world size
HOLLOW = WEIGHT.clone()
HOLLOW[0, 0] = float("nan")

DAMAGE: list[tuple[str, Any, str]] = [
    ("model/weight", BENT, "1 of 9 tensors and 3 other values differ, most model.weight: 1e-06 apart"),
    ("model/weight", HOLLOW, "most model.weight: float64 (7, 2), control float64 (7, 2)"),
    ("model/weight", WEIGHT.float(), "most model.weight: float32 (7, 2), control float64 (7, 2)"),
    ("optimizer/state/weight/exp_avg", torch.zeros_like(WEIGHT), "most optimizer.state.weight.exp_avg: 1.79 apart"),
    ("random/slot3", torch.tensor([16, 4], dtype=torch.uint8), "most random.slot3: uint8 (2,), control uint8 (2,)"),
    ("scheduler/last", [0.016, 0.5 + 1e-6], "most scheduler.last: 1e-06 apart"),
    ("progress/step", 15, "most progress.step: 15, control 16"),
    ("model/bias", torch.zeros(1), "most model.bias: only the run holds it"),
]


@pytest.mark.parametrize(("name", "value", "words"), DAMAGE)
def test_one_value_that_is_not_close_fails_by_name(tmp_path: Path, name: str, value: Any, words: str) -> None:
    directory = written(ELASTIC, tmp_path)
    rewritten(directory, 16, 3, **{name: value})
    finding = near_state(ELASTIC.case(directory))
    assert finding.verdict is Verdict.FAIL
    assert words in finding.seen
    assert finding.evidence["values"] == [name.replace("/", ".")]


def test_the_controls_values_count_alike(tmp_path: Path) -> None:
    directory = written(ELASTIC, tmp_path)
    rewritten(directory / "control", 16, 3, **{"model/weight": BENT})
    assert near_state(ELASTIC.case(directory)).verdict is Verdict.FAIL


def test_the_tolerance_bounds_the_state_too(tmp_path: Path) -> None:
    directory = written(ELASTIC, tmp_path)
    rewritten(directory, 16, 3, **{"model/weight": BENT})
    assert check_state(ELASTIC.case(directory), within=1e-5).verdict is Verdict.PASS
    # Random states are bytes, and positions whole numbers: no tolerance makes another of them the same.
    rewritten(directory, 16, 3, **{"random/slot3": torch.tensor([16, 4], dtype=torch.uint8)})
    assert check_state(ELASTIC.case(directory), within=1e5).verdict is Verdict.FAIL


def test_a_world_size_of_its_own_at_the_save_makes_no_difference(tmp_path: Path) -> None:
    directory = written(SHRUNK, tmp_path)
    names = {file.name for file in (directory / "storage" / EXPERIMENT / checkpoint_name(12)).iterdir()}
    theirs = {file.name for file in (directory / "control/storage" / EXPERIMENT / checkpoint_name(12)).iterdir()}
    assert (len(names), len(theirs)) == (3, 4)  # a file for each rank, and the metadata
    assert near_state(SHRUNK.case(directory)).verdict is Verdict.PASS


def test_the_newest_step_that_both_have_is_compared(tmp_path: Path) -> None:
    directory = written(ELASTIC, tmp_path)
    shutil.rmtree(directory / "control/storage" / EXPERIMENT / checkpoint_name(16))
    rewritten(directory, 16, 3, **{"model/weight": BENT})
    finding = near_state(ELASTIC.case(directory))
    assert finding.verdict is Verdict.PASS
    assert "at step 12" in finding.seen


def test_what_was_saved_before_the_fault_proves_nothing(tmp_path: Path) -> None:
    run = SHRUNK.asked(keep=9)
    directory = written(run, tmp_path)
    for step in (8, 12):
        shutil.rmtree(directory / "storage" / EXPERIMENT / checkpoint_name(step))
    assert (directory / "storage" / EXPERIMENT / checkpoint_name(4)).is_dir()
    finding = near_state(run.case(directory))
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.seen == "no checkpoint that was committed after the fault is on disk"


def test_an_orphan_is_not_compared(tmp_path: Path) -> None:
    directory = written(ELASTIC, tmp_path)
    for folder in (directory, directory / "control"):
        write_checkpoint(folder / "storage" / EXPERIMENT / checkpoint_name(99), 99, 3)
    assert "at step 16" in near_state(ELASTIC.case(directory)).seen


def without_commits(run: Run, step: int) -> Run:
    return run.with_control(run.control.drop("checkpoint.commit", step=step) if run.control else None)


def _forget(path: str) -> Callable[[Path], None]:
    return lambda directory: shutil.rmtree(directory / path)


def _unlink(path: str) -> Callable[[Path], None]:
    return lambda directory: (directory / path).unlink()


NEWEST = f"{EXPERIMENT}/{checkpoint_name(16)}"
BLIND: list[tuple[Run, Callable[[Path], None], str]] = [
    (ELASTIC, _forget("control/storage"), "no checkpoint of the control run is on disk"),
    (ELASTIC, _forget("storage"), "no checkpoint that was committed after the fault is on disk"),
    (ELASTIC.drop("checkpoint.commit"), lambda directory: None, "no checkpoint that was committed after the fault"),
    (ELASTIC.drop("controller.start"), lambda directory: None, "no checkpoint that was committed after the fault"),
    (ELASTIC.change("checkpoint.commit", step=None), lambda directory: None, "no checkpoint that was committed"),
    (
        without_commits(without_commits(ELASTIC.asked(keep=9), 16), 12),
        _forget(f"storage/{EXPERIMENT}/{checkpoint_name(8)}"),
        "the run of step 12, 16, the control run of step 4, 8",
    ),
    (
        ELASTIC,
        _unlink(f"control/storage/{NEWEST}/{METADATA}"),
        "checkpoint of step 16 cannot be read",
    ),
    (ELASTIC, _unlink(f"control/storage/{NEWEST}/__1_0.distcp"), "checkpoint of step 16 cannot be read"),
]


@pytest.mark.parametrize(("run", "damage", "words"), BLIND)
def test_a_state_without_evidence_is_unknown(
    run: Run, damage: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    directory = written(run, tmp_path)
    damage(directory)
    finding = near_state(run.case(directory))
    assert finding.verdict is Verdict.UNKNOWN
    assert words in finding.seen


@pytest.mark.parametrize("file", [METADATA, "__1_0.distcp"])
def test_a_checkpoint_of_the_run_that_cannot_be_read_fails(tmp_path: Path, file: str) -> None:
    directory = written(ELASTIC, tmp_path)
    (directory / "storage" / NEWEST / file).unlink()
    finding = near_state(ELASTIC.case(directory))
    assert finding.verdict is Verdict.FAIL
    assert f"{file} is missing" in finding.seen


def test_a_checkpoint_without_tensors_is_no_evidence(tmp_path: Path) -> None:
    directory = written(ELASTIC, tmp_path)
    for folder in (directory, directory / "control"):
        shutil.rmtree(folder / "storage" / NEWEST)
        save_values(folder / "storage" / NEWEST, {"progress.step": 16}, 3)
    assert near_state(ELASTIC.case(directory)).verdict is Verdict.UNKNOWN


def test_a_control_run_that_another_run_made_is_read_where_its_history_says(tmp_path: Path) -> None:
    directory = written(ELASTIC, tmp_path)
    elsewhere = tmp_path / "other" / "control" / "storage" / EXPERIMENT
    shutil.move(directory / "control/storage" / EXPERIMENT, elsewhere)

    def told(control: Run) -> Run:
        return control.change("controller.start", experiment=str(elsewhere))

    assert near_state(on_control(ELASTIC, told).case(directory)).verdict is Verdict.UNKNOWN, "it is in no run directory"
    (tmp_path / "other" / "control" / NAME).touch()
    assert near_state(on_control(ELASTIC, told).case(directory)).verdict is Verdict.PASS
    (directory / "control/storage").rmdir()
    (directory / "control/storage").symlink_to(elsewhere.parent)
    assert near_state(ELASTIC.case(directory)).verdict is Verdict.PASS


def test_an_event_without_a_loss_on_some_ranks_is_the_mean_of_the_others() -> None:
    def first_alone(run: Run) -> Run:
        mean = {e.step: 5.0 - 0.1 * (e.step or 0) for e in run.select("step.end")}

        def alone(event: Event) -> dict[str, Any]:
            return {"loss": mean[event.step] if event.rank == 0 else None}

        for event in run.select("step.end"):
            where = {"attempt": event.attempt, "rank": event.rank, "step": event.step}
            run = run.change("step.end", where, **alone(event))
        return run

    run = on_control(first_alone(ELASTIC), first_alone)
    assert near(run.case()).verdict is Verdict.PASS
    assert near(run.change("step.end", {"attempt": 2, "rank": 0, "step": 12}, loss=0.0).case()).verdict is Verdict.FAIL
