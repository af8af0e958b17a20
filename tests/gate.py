"""The regression gate on trial, over simulated nights: how often it cries wolf, and how soon it sees a change."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from metrics.regression import MATTERS, WINDOW, compare, limit
from tests.nights import noise

NIGHTS = 100
"""Nights in a row without a change, in each history."""

SLOW_RUNS = 6
"""Within five nights of the first slow one."""


def alarms(logs: np.ndarray, baseline: int, series: int = 1) -> np.ndarray:
    """Whether an alarm stands on each night that has such a baseline and a window, by history."""
    nights = logs.shape[1] - baseline - WINDOW + 1
    before = sliding_window_view(logs, baseline, axis=1)[:, :nights]
    latest = sliding_window_view(logs, WINDOW, axis=1)[:, baseline:]
    ratio, chance = compare(before, latest)
    return (chance < limit(baseline, series)) & (ratio >= np.log(MATTERS))


def raised(standing: np.ndarray) -> np.ndarray:
    """The nights on which an alarm begins; one that stands again within a window's length is still the same."""
    begins, last = np.zeros_like(standing), np.full(len(standing), -WINDOW - 1)
    for night in range(standing.shape[1]):
        begins[:, night] = standing[:, night] & (night - last > WINDOW)
        last[begins[:, night]] = night
    return begins


def false_alarms(random: np.random.Generator, number: int, baseline: int, series: int = 1) -> tuple[float, float]:
    """The shares of nights without a change on which an alarm is raised, and on which one stands."""
    standing = alarms(noise(random, number, baseline + WINDOW - 1 + NIGHTS), baseline, series)
    return float(raised(standing).mean()), float(standing.mean())


def seen_by(random: np.random.Generator, number: int, baseline: int, slower: float, series: int = 1) -> np.ndarray:
    """The share of changes that is seen by the first slow run, the second, ..."""
    logs = noise(random, number, baseline + WINDOW - 1 + SLOW_RUNS)
    logs[:, -SLOW_RUNS:] += np.log(slower)
    return np.maximum.accumulate(alarms(logs, baseline, series), axis=1).mean(0)
