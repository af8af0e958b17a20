"""How far two checkpoints are apart: every kind of difference counts, and a resize alone is none."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from metrics.checkpoints.dcp import METADATA, BadCheckpoint
from metrics.checkpoints.values import Gap, distance, gaps
from tests.shards import save_values, whole

WIDE = torch.tensor([1.0, 2.0], dtype=torch.float64)
INF = float("inf")
NAN = float("nan")

DISTANCES: list[tuple[Any, Any, float]] = [
    (1, 1, 0.0),
    (1, 2, INF),
    (0.5, 0.5, 0.0),
    (0.5, 0.75, 0.25),
    (0.75, 0.5, 0.25),
    (1, 1.5, 0.5),
    (INF, INF, 0.0),
    (INF, -INF, INF),
    (NAN, NAN, INF),
    (NAN, 0.0, INF),
    ("cosine", "cosine", 0.0),
    ("cosine", "linear", INF),
    (None, None, 0.0),
    (None, 0, INF),
    (True, 1, INF),
    ([0.1, 0.2], [0.1, 0.3], pytest.approx(0.1)),
    ([0.1], [0.1, 0.2], INF),
    ([], [], 0.0),
    ([1.0], (1.0,), INF),
    ((1.0, [2.0]), (1.0, [2.5]), 0.5),
    ({"a": 1.0}, {"a": 1.5}, 0.5),
    ({"a": 1.0}, {"b": 1.0}, INF),
    ({}, {}, 0.0),
    (WIDE, WIDE, 0.0),
    (WIDE, WIDE + 0.25, 0.25),
    (WIDE, WIDE.float(), INF),
    (WIDE, WIDE.reshape(2, 1), INF),
    (WIDE, [1.0, 2.0], INF),
    (WIDE, None, INF),
    (torch.tensor(1.0), torch.tensor(1.5), 0.5),
    (torch.tensor([NAN]), torch.tensor([NAN]), INF),
    (torch.tensor([1.0, NAN]), torch.tensor([1.5, 0.0]), INF),
    (torch.tensor([-INF, 1.0]), torch.tensor([-INF, 1.5]), 0.5),
    (torch.tensor([-INF]), torch.tensor([INF]), INF),
    (torch.tensor([1.0]).bfloat16(), torch.tensor([1.5]).bfloat16(), 0.5),
    (torch.tensor([1 + 1j]), torch.tensor([1 + 1j]), 0.0),
    (torch.tensor([1 + 1j]), torch.tensor([1 + 3j]), 2.0),
    (torch.zeros(0), torch.zeros(0), 0.0),
    (torch.tensor([3], dtype=torch.uint8), torch.tensor([3], dtype=torch.uint8), 0.0),
    (torch.tensor([3], dtype=torch.uint8), torch.tensor([4], dtype=torch.uint8), INF),
    (torch.tensor([7]), torch.tensor([8]), INF),
    (torch.tensor([True]), torch.tensor([False]), INF),
]


@pytest.mark.parametrize(("mine", "control", "wanted"), DISTANCES)
def test_the_distance_of_two_values(mine: Any, control: Any, wanted: float) -> None:
    assert distance(mine, control) == wanted


def test_a_difference_below_single_precision_is_seen_in_double() -> None:
    assert distance(WIDE, WIDE + 1e-12) == pytest.approx(1e-12, rel=1e-3)


def between(tmp_path: Path, values: dict[str, Any], world: int = 3) -> dict[str, Gap]:
    """Gaps, by name, between these values, saved by so many ranks, and those of step 8, saved by two."""
    mine = save_values(tmp_path / "mine", values, world)
    control = save_values(tmp_path / "control", whole(8), 2)
    return {gap.name: gap for gap in gaps(mine, control)}


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_a_resize_alone_sets_nothing_apart_and_stamps_do_not_count(tmp_path: Path, world: int) -> None:
    found = between(tmp_path, whole(8), world)
    assert found.keys() == whole(8).keys()
    assert {gap.apart for gap in found.values()} == {0.0}
    assert sum(gap.tensor for gap in found.values()) == 9


CHANGES: list[tuple[str, Any, float, str]] = [
    ("model.weight", whole(8)["model.weight"] + 1e-6, pytest.approx(1e-6), "1e-06 apart"),
    ("model.weight", whole(8)["model.weight"].float(), INF, "float32 (7, 2), control float64 (7, 2)"),
    ("random.slot4", torch.tensor([8, 5], dtype=torch.uint8), INF, "uint8 (2,), control uint8 (2,)"),
    ("scheduler.last", [0.008, 0.75], 0.25, "0.25 apart"),
    ("optimizer.param_groups.weight.lr", 0.5, pytest.approx(0.492), "0.492 apart"),
]


@pytest.mark.parametrize(("name", "value", "apart", "why"), CHANGES)
def test_one_value_that_differs_is_told_by_name(tmp_path: Path, name: str, value: Any, apart: float, why: str) -> None:
    odd = [gap for gap in between(tmp_path, {**whole(8), name: value}).values() if gap.apart]
    assert [gap.name for gap in odd] == [name]
    assert odd[0].apart == apart
    assert odd[0].why == why
    assert str(odd[0]) == f"{name}: {why}"


def test_a_position_that_differs_by_one_is_no_matter_of_tolerance(tmp_path: Path) -> None:
    odd = [gap for gap in between(tmp_path, {**whole(8), "progress.step": 9}).values() if gap.apart]
    assert [(gap.name, gap.apart, gap.why) for gap in odd] == [("progress.step", INF, "9, control 8")]


def test_a_value_that_only_one_side_holds_is_told(tmp_path: Path) -> None:
    less = {name: value for name, value in whole(8).items() if name != "model.scale"}
    found = between(tmp_path, {**less, "model.bias": torch.zeros(1)})
    assert (found["model.scale"].apart, found["model.scale"].why) == (math.inf, "only the control run holds it")
    assert (found["model.bias"].apart, found["model.bias"].why) == (math.inf, "only the run holds it")


@pytest.mark.parametrize("file", ["__1_0.distcp", METADATA])
def test_what_cannot_be_read_of_ours_is_infinitely_far_apart(tmp_path: Path, file: str) -> None:
    between(tmp_path, whole(8))
    (tmp_path / "mine" / file).unlink()
    odd = [gap for gap in gaps(tmp_path / "mine", tmp_path / "control") if gap.apart]
    assert {gap.apart for gap in odd} == {math.inf}
    assert all(f"mine/{file} is missing" in gap.why for gap in odd)
    assert {gap.name for gap in odd} >= ({"mine"} if file == METADATA else {"model.weight", "random.slot1"})


@pytest.mark.parametrize("file", ["__1_0.distcp", METADATA])
def test_a_control_that_cannot_be_read_is_refused(tmp_path: Path, file: str) -> None:
    between(tmp_path, whole(8))
    (tmp_path / "control" / file).unlink()
    with pytest.raises(BadCheckpoint, match=f"control/{file} is missing"):
        gaps(tmp_path / "mine", tmp_path / "control")


def test_a_directory_that_is_gone_is_refused(tmp_path: Path) -> None:
    between(tmp_path, whole(8))
    shutil.rmtree(tmp_path / "control")
    with pytest.raises(BadCheckpoint):
        gaps(tmp_path / "mine", tmp_path / "control")
