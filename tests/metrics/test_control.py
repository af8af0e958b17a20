"""Against the control run: any difference fails, and a control that is none proves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos.history import NAME
from metrics.control import check_state, check_trajectory
from metrics.expectations import UNDISTURBED
from metrics.verdict import Case, Check, Verdict
from tests.histories import Run, faulty, healthy
from tests.stories import EARLY, Hit, parts

BOTH = pytest.mark.parametrize("check", [check_trajectory, check_state])


def spoil_control(run: Run, kind: str, where: dict[str, Any], **changes: Any) -> Run:
    assert run.control is not None
    return run.with_control(run.control.change(kind, where, **changes))


def drop_control(run: Run, kind: str, **where: Any) -> Run:
    assert run.control is not None
    return run.with_control(run.control.drop(kind, **where))


@BOTH
@pytest.mark.parametrize("kills", [((1, 6),), ((1, 2),), ((1, 6), (0, 10))])
def test_a_healthy_run_equals_its_control(check: Check, kills: tuple[tuple[int, int], ...]) -> None:
    assert check(healthy(kills=kills).case()).verdict is Verdict.PASS


@BOTH
@pytest.mark.parametrize("phase", EARLY)
def test_a_run_that_was_hit_again_while_it_came_back_equals_its_control(check: Check, phase: str) -> None:
    assert check(faulty((Hit(1, 6),), (Hit(0, phase=phase),)).case()).verdict is Verdict.PASS


DISTURBED = faulty((Hit(1, 6, fault="delay"),), expects=UNDISTURBED)


@BOTH
@pytest.mark.parametrize("run", [DISTURBED, healthy(kills=())])
def test_a_run_without_a_restart_equals_its_control(check: Check, run: Run) -> None:
    assert check(run.case()).verdict is Verdict.PASS


def test_what_was_compared_is_said() -> None:
    assert check_trajectory(healthy().case()).seen == "12 steps on 2 ranks equal, bitwise"
    assert check_state(healthy().case()).seen == "8 pieces equal, bitwise, at step 8, 12"
    assert check_state(DISTURBED.case()).seen == "12 pieces equal, bitwise, at step 4, 8, 12"


def test_a_difference_before_any_restart_counts_where_there_is_none() -> None:
    run = DISTURBED.change("step.end", {"rank": 0, "step": 3}, loss=0.0)
    assert check_trajectory(run.case()).verdict is Verdict.FAIL
    other = {**parts(1, 4), "progress.step": "0" * 32}
    assert check_state(DISTURBED.change("state", {"rank": 1, "step": 4}, parts=other).case()).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("field", "other"), [("loss", 4.1000000000000005), ("lr", 0.0), ("samples", [[0, 3]]), ("loss", None)]
)
def test_one_differing_value_fails_at_its_step_and_rank(field: str, other: object) -> None:
    for run in (
        healthy().change("step.end", {"rank": 1, "step": 9}, **{field: other}),
        spoil_control(healthy(), "step.end", {"rank": 1, "step": 9}, **{field: other}),
    ):
        finding = check_trajectory(run.case())
        assert finding.verdict is Verdict.FAIL
        assert f"first difference at step 9, rank 1: {field}" in finding.seen


def test_the_first_of_several_differences_is_named() -> None:
    run = healthy().change("step.end", {"rank": 0, "step": 11}, loss=0.0).change("step.end", {"step": 7}, lr=0.0)
    assert "step 7, rank 0: lr" in check_trajectory(run.case()).seen


def test_a_difference_in_steps_that_were_rolled_back_does_not_count() -> None:
    run = healthy().change("step.end", {"attempt": 0, "step": 6}, loss=0.0)
    assert check_trajectory(run.case()).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "run",
    [
        healthy().drop("step.end", rank=1, step=12),
        drop_control(healthy(), "step.end", rank=1, step=12),
        DISTURBED.drop("step.end", rank=1, step=12),
    ],
)
def test_a_step_that_only_one_of_the_two_has_fails(run: Run) -> None:
    finding = check_trajectory(run.case())
    assert finding.verdict is Verdict.FAIL
    assert "only one of the two runs has step 12 of rank 1" in finding.seen


@pytest.mark.parametrize("piece", ["model.weight@0,0", "progress.step", "stamp.rank1@0"])
def test_one_differing_piece_of_state_fails_by_name(piece: str) -> None:
    other = {**parts(1, 8), piece: "0" * 32}
    for run in (
        healthy().change("state", {"rank": 1, "step": 8}, parts=other),
        spoil_control(healthy(), "state", {"rank": 1, "step": 8}, parts=other),
    ):
        finding = check_state(run.case())
        assert finding.verdict is Verdict.FAIL
        assert finding.evidence == {"step": 8, "pieces": [piece]}
        assert f"at step 8, 1 of 4 pieces differ, first {piece}" in finding.seen


def test_a_piece_that_only_one_of_the_two_saved_fails() -> None:
    less = {key: digest for key, digest in parts(0, 12).items() if key != "stamp.rank0@0"}
    assert check_state(healthy().change("state", {"rank": 0, "step": 12}, parts=less).case()).verdict is Verdict.FAIL
    more = {**parts(0, 12), "model.bias@0": "0" * 32}
    assert check_state(healthy().change("state", {"rank": 0, "step": 12}, parts=more).case()).verdict is Verdict.FAIL


def test_a_save_that_the_control_run_did_not_make_fails() -> None:
    run = drop_control(healthy(), "state", step=8)
    finding = check_state(run.case())
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, "the control run saved nothing at step 8")


def test_replicas_that_differ_within_each_run_are_never_equal() -> None:
    run = healthy().change("state", {"rank": 1, "step": 8}, parts={**parts(1, 8), "model.weight@0,0": "1" * 32})
    other = {**parts(1, 8), "model.weight@0,0": "2" * 32}
    run = spoil_control(run, "state", {"rank": 1, "step": 8}, parts=other)
    assert check_state(run.case()).verdict is Verdict.FAIL


def two_attempts(run: Run) -> Run:
    assert run.control is not None
    return run.with_control(run.control.again("worker.start", attempt=1))


@BOTH
@pytest.mark.parametrize(
    ("run", "words"),
    [
        (healthy().with_control(None), "there is no control run"),
        (two_attempts(healthy()), "the control run had 2 attempts"),
        (drop_control(healthy(), "worker.start"), "the control run had 0 attempts"),
        (drop_control(healthy(), "workload.exit"), "the control run did not end well"),
        (spoil_control(healthy(), "workload.exit", {}, code=1), "the control run did not end well"),
        (spoil_control(healthy(), "workload.exit", {}, code=None), "the control run did not end well"),
    ],
)
def test_an_unsound_control_is_unknown(check: Check, run: Run, words: str) -> None:
    finding = check(run.case())
    assert finding.verdict is Verdict.UNKNOWN
    assert words in finding.seen


@pytest.mark.parametrize(("check", "kind"), [(check_trajectory, "step.end"), (check_state, "state")])
def test_a_control_history_that_was_damaged_is_unknown(check: Check, kind: str, tmp_path: Path) -> None:
    run = drop_control(healthy(), kind, step=8)
    directory = run.write(tmp_path / "run", store=False)
    with (directory / "control" / NAME).open("ab") as file:
        file.write(b'{"kind":"' + kind.encode())  # the lines of step 8 came to this
    assert check(Case.load(directory)).verdict is Verdict.UNKNOWN


def test_a_run_of_which_nothing_survives_the_restart_differs_from_its_control() -> None:
    finding = check_trajectory(healthy().drop("step.end", attempt=1).case())
    assert finding.verdict is Verdict.FAIL
    assert "only one of the two runs has step 5 of rank 0" in finding.seen


@BOTH
def test_without_a_control_run_asked_for_there_is_nothing_to_judge(check: Check) -> None:
    finding = check(healthy(control=False).case())
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert "--control makes one" in finding.seen


BLIND = [
    (check_trajectory, healthy().drop("step.end"), "no step to compare"),
    (check_trajectory, drop_control(healthy(), "step.end"), "no step to compare"),
    (check_state, healthy().drop("state", attempt=1), "no state was told after the fault"),
    (check_state, healthy().drop("state", attempt=1, name="saved"), "no state was told after the fault"),
    (check_state, healthy(kills=()).drop("state"), "no state was told after the fault"),
    (check_state, DISTURBED.drop("state", name="saved"), "no state was told after the fault"),
]


@pytest.mark.parametrize(("check", "run", "words"), BLIND)
def test_nothing_to_compare_is_unknown(check: Check, run: Run, words: str) -> None:
    finding = check(run.case())
    assert finding.verdict is Verdict.UNKNOWN
    assert words in finding.seen


def test_a_workload_that_tells_no_loss_is_unknown() -> None:
    run = spoil_control(healthy().change("step.end", loss=None), "step.end", {}, loss=None)
    finding = check_trajectory(run.case())
    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, "the workload told of no loss (observe.loss)")


def test_a_differing_learning_rate_fails_even_where_no_loss_is_told() -> None:
    run = spoil_control(healthy().change("step.end", loss=None), "step.end", {}, loss=None)
    assert check_trajectory(run.change("step.end", {"step": 9}, lr=1.0).case()).verdict is Verdict.FAIL
