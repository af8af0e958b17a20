"""Differences of small samples: their estimate, the level of their interval, and when there is none."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.intervals import EXACT, LEVEL, _counts, _cut, estimate, shift


@pytest.mark.parametrize(("few", "many"), [(1, 1), (1, 4), (2, 3), (3, 3), (4, 5)])
def test_the_orders_are_counted_as_if_each_were_looked_at(few: int, many: int) -> None:
    wanted = [0] * (few * many + 1)
    for places in itertools.combinations(range(few + many), few):
        wanted[sum(place - i for i, place in enumerate(places))] += 1
    assert _counts(few, many) == wanted


@pytest.mark.parametrize(
    ("few", "many", "cut", "level"),
    [(3, 3, 0, 0.9), (3, 4, 0, 1 - 2 / 35), (4, 4, 0, 1 - 2 / 70), (5, 5, 2, 1 - 2 * 4 / 252), (10, 10, 23, 0.9567)],
)
def test_the_level_is_that_of_the_exact_test(few: int, many: int, cut: int, level: float) -> None:
    found = _cut(few, many)
    assert (found[0], found[1]) == (cut, pytest.approx(level, abs=1e-4))


@pytest.mark.parametrize(("few", "many"), [(1, 1), (1, 10), (2, 2), (2, 3), (2, 4)])
def test_too_few_runs_have_no_interval(few: int, many: int) -> None:
    assert shift([1.0] * few, [2.0] * many) is None
    assert shift([1.0] * many, [2.0] * few) is None


def test_without_values_there_is_nothing_to_tell() -> None:
    assert shift([], [1.0, 2.0, 3.0]) is None


def test_three_against_three_that_do_not_overlap_differ_clearly() -> None:
    found = shift([1.0, 2.0, 3.0], [11.0, 12.0, 13.0])
    assert found is not None
    assert (found.estimate, found.low, found.high, found.level, found.clear) == (10.0, 8.0, 12.0, 0.9, True)


def test_samples_that_overlap_do_not() -> None:
    found = shift([1.0, 5.0, 9.0], [2.0, 5.0, 8.0])
    assert found is not None
    assert (found.clear, found.low < 0 < found.high) == (False, True)


def test_many_pairs_are_told_by_the_normal_approximation_alike() -> None:
    size = math.isqrt(EXACT)
    exact, near = _cut(size, size)[0] / size**2, _cut(size + 1, size + 1)[0] / (size + 1) ** 2
    assert near == pytest.approx(exact, abs=0.01)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    hits = []
    for _ in range(400):
        found = shift(random.lognormal(0, 0.15, 5).tolist(), (random.lognormal(0, 0.15, 5) + 0.3).tolist())
        assert found is not None
        hits.append(found.low <= 0.3 <= found.high)
    assert np.mean(hits) > LEVEL - 0.02


@settings(max_examples=25)
@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=6), st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=6))
def test_exchanging_the_sides_turns_the_sign(a: list[float], b: list[float]) -> None:
    there, back = shift(a, b), shift(b, a)
    assert there is not None
    assert back is not None
    assert (there.low, there.high) == (-back.high, -back.low)
    assert estimate(a, b) == pytest.approx(-estimate(b, a))
    assert there.low <= there.estimate <= there.high
