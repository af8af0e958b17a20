"""How far two small samples lie apart, and how sure that is, without assuming a distribution.

The estimate is that of Hodges and Lehmann: the median of all differences between a value of one sample and a value of
the other. Its interval inverts the exact Mann-Whitney test, so it keeps its level for 3 values as for 300, whatever
the noise looks like, where a bootstrap of so few values is too narrow.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95
"""The confidence that an interval has, or a little more, since ranks move in steps."""

LEAST = 0.9
"""Samples that are too small for it are told the widest interval, with its own lower level; below this, none."""

EXACT = 2500
"""Up to that many pairs the test is exact; above, the normal approximation is right to the third decimal."""


@dataclass(frozen=True)
class Shift:
    """By how much the second sample lies above the first; ``level``: probability that the interval holds the truth."""

    estimate: float
    low: float
    high: float
    level: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves no room for no difference."""
        return self.low > 0 or self.high < 0


def estimate(first: Sequence[float], second: Sequence[float]) -> float:
    """The Hodges-Lehmann estimate of how much the second sample lies above the first; neither may be empty."""
    return statistics.median(b - a for a, b in itertools.product(first, second))


def shift(first: Sequence[float], second: Sequence[float]) -> Shift | None:
    """The estimate with its interval; None where the samples are too small for one of ``LEAST``."""
    if not first or not second:
        return None
    differences = sorted(b - a for a, b in itertools.product(first, second))
    cut, level = _cut(*sorted((len(first), len(second))))
    if level < LEAST:
        return None
    return Shift(statistics.median(differences), differences[cut], differences[-1 - cut], level)


@functools.cache
def _cut(few: int, many: int) -> tuple[int, float]:
    """How many of the sorted differences each end of the interval leaves out, and the level which that gives."""
    pairs = few * many
    if pairs > EXACT:
        spread = math.sqrt(pairs * (few + many + 1) / 12)
        quantile = statistics.NormalDist().inv_cdf((1 + LEVEL) / 2)
        return max(0, math.floor(pairs / 2 - quantile * spread)), LEVEL
    counts, ways = _counts(few, many), math.comb(few + many, few)
    tails = [2 * tail / ways for tail in itertools.accumulate(counts)]
    cut = max((place for place, tail in enumerate(tails) if tail <= 1 - LEVEL), default=0)
    return cut, 1 - tails[cut]


def _counts(few: int, many: int) -> list[int]:
    """In how many orders of both samples the Mann-Whitney statistic is 0, 1, ...: a Gaussian binomial coefficient."""
    counts = [1] + [0] * (few * many)
    for size in range(1, few + 1):
        for place in range(len(counts) - 1, many + size - 1, -1):
            counts[place] -= counts[place - many - size]
        for place in range(size, len(counts)):
            counts[place] += counts[place - size]
    return counts
