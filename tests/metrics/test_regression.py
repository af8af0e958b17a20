"""The regression gate: how often it cries wolf, how soon it sees a change, and what it leaves alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metrics import regression
from metrics.regression import BASELINE, LEAST, LEAST_BASELINE, LOOKS, WINDOW, compare, limit, look, standing_since
from tests.gate import alarms, false_alarms, raised, seen_by
from tests.nights import noise


def series(*parts: tuple[int, float], seed: int = 0) -> list[float]:
    """Logarithms of recoveries: so many nights at so many times the usual, one part after the other."""
    random = np.random.default_rng(seed)
    logs = random.normal(0.0, 0.1, sum(nights for nights, _ in parts))
    return list(logs + np.concatenate([np.full(nights, math.log(times)) for nights, times in parts]))


def test_fewer_than_one_false_alarm_is_raised_in_a_hundred_nights() -> None:
    begun, standing = false_alarms(np.random.default_rng(1), 400, BASELINE)
    assert 0.005 < begun < 0.01
    assert begun < standing < 0.02


def test_nine_of_ten_changes_of_a_quarter_are_seen_within_five_nights_of_the_first_slow_one() -> None:
    power = seen_by(np.random.default_rng(2), 2000, BASELINE, 1.25)
    assert power[5] > 0.90
    assert power[4] > 0.85
    assert power[0] < 0.1  # one slow night proves little


def test_half_as_slow_again_is_seen_by_the_fifth_run_with_the_shortest_baseline() -> None:
    assert seen_by(np.random.default_rng(3), 1000, LEAST_BASELINE, 1.5)[4] > 0.97


def test_many_scenarios_share_the_rate_of_false_alarms() -> None:
    begun, _ = false_alarms(np.random.default_rng(4), 500, BASELINE, series=20)
    assert 20 * begun < 0.015


def test_two_runs_of_one_standing_alarm_are_one_alarm() -> None:
    standing = np.array([[0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1]], dtype=bool)
    assert raised(standing).astype(int).tolist() == [[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]]


def test_one_history_and_many_at_once_give_the_same_answer() -> None:
    logs = noise(np.random.default_rng(5), 4, BASELINE + WINDOW)
    logs[2:, -WINDOW:] += math.log(1.4)
    looks = [look(list(row)) for row in logs]
    assert [seen is not None and seen.alarms() for seen in looks] == alarms(logs, BASELINE)[:, 0].tolist()
    assert [seen is not None and seen.alarms() for seen in looks][2:] == [True, True]


@pytest.mark.parametrize(("runs", "known"), [(LEAST - 1, False), (LEAST, True)])
def test_there_is_no_alarm_below_the_stated_number_of_runs(runs: int, known: bool) -> None:
    logs = series((runs - WINDOW, 1.0), (WINDOW, 5.0))
    assert (look(logs) is not None, standing_since(logs) > 0) == (known, known)


def test_what_became_slower_stands_since_the_alarm_was_raised() -> None:
    logs = series((60, 1.0), (9, 1.5))
    assert 5 <= standing_since(logs) <= 8
    seen = look(logs)
    assert seen is not None
    assert seen.ratio == pytest.approx(1.5, rel=0.15)


def test_what_became_faster_is_no_alarm() -> None:
    assert standing_since(series((60, 1.0), (9, 0.5))) == 0


@pytest.mark.parametrize("outliers", [1, 2])
def test_one_or_two_outliers_of_a_window_raise_no_alarm(outliers: int) -> None:
    assert standing_since([*series((60, 1.0), (WINDOW - outliers, 1.0)), *[math.log(9.0)] * outliers]) == 0


def test_a_third_is_no_outlier() -> None:
    assert standing_since([*series((60, 1.0), (2, 1.0)), *[math.log(9.0)] * 3]) == 1


def test_outliers_of_the_baseline_do_not_hide_a_change() -> None:
    logs = series((60, 1.0), (WINDOW, 1.5))
    logs[10:50:10] = [math.log(20.0)] * 4
    assert standing_since(logs) >= 1


def test_a_difference_that_does_not_matter_is_no_alarm_however_sure() -> None:
    assert standing_since([0.0] * 60 + [math.log(1.04)] * WINDOW) == 0
    assert standing_since([0.0] * 60 + [math.log(1.06)] * WINDOW) > 0


def test_a_series_without_any_noise_is_judged_without_a_warning() -> None:
    ratio, chance = compare(np.zeros(60), np.zeros(WINDOW))
    assert (float(ratio), float(chance)) == (0.0, 0.5)


def test_the_limit_lies_between_those_that_were_simulated_and_is_shared() -> None:
    assert limit(LEAST_BASELINE) == LOOKS[20]
    assert LOOKS[20] < limit(25) < LOOKS[30]
    assert limit(10 * BASELINE) == LOOKS[BASELINE]
    assert limit(90, 10) < LOOKS[90] / 10
    assert (min(LOOKS), max(LOOKS)) == (LEAST_BASELINE, BASELINE)
    assert regression.LEAST == 25
