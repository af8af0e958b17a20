"""Telling a slower recovery from noise, in a series of one run a night.

The latest ``WINDOW`` runs are compared with up to ``BASELINE`` runs before them, as logarithms, since noise multiplies.
Up to ``ASIDE`` far outliers of the window are set aside, so that no alarm rests on one or two odd nights; a third is no
outlier. What remains gives a t statistic, and an alarm when chance alone would give one as high too rarely.
``LOOKS`` says what is too rare: set by simulation so that alarms are raised on fewer than one night in a hundred.
The windows of following nights overlap, so an alarm usually stands for several nights: that is one alarm, not several.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WINDOW = 5
"""The latest runs, which are compared."""

BASELINE = 90
"""The most runs before them that they are compared with."""

LEAST_BASELINE = 20
"""The fewest; with fewer no alarm is raised."""

LEAST = LEAST_BASELINE + WINDOW
"""Runs that a series needs before an alarm can be raised."""

FAR = 4.0
"""A run of the window that lies so many standard deviations above the baseline may be an outlier."""

ASIDE = 2
"""So many of them are set aside at most."""

TRIM = 3.0
"""Runs of the baseline further than this from its median, in robust standard deviations, are left out of it."""

LEAST_SPREAD = 0.02
"""No series counts as steadier than this, as standard deviation of the logarithm: about two per cent."""

MATTERS = 1.05
"""A window must be so many times slower than its baseline: less is never an alarm, however sure."""

SHARING = 1.12
"""So many series divide that by their number to this power: outliers make the far tail heavier than that of t."""

LOOKS = {20: 0.0135, 30: 0.0145, 45: 0.0155, 60: 0.0165, 90: 0.017}
"""How rare a window must be under chance alone, by the length of the baseline (benchmarks/trend_power.py)."""


@dataclass(frozen=True)
class Look:
    """What one night's window says.

    ``ratio``: it against its baseline; ``chance``: of a ratio as high without a change; ``runs``: in the baseline.
    """

    ratio: float
    chance: float
    runs: int

    def alarms(self, series: int = 1) -> bool:
        """Whether that is an alarm, where so many series are watched at once and share the rate of false ones."""
        return self.ratio >= MATTERS and self.chance < limit(self.runs, series)


def limit(runs: int, series: int = 1) -> float:
    """How rare a window must be, with so many runs in its baseline; between two lengths that were simulated, a mean."""
    import numpy as np

    return float(np.interp(runs, list(LOOKS), list(LOOKS.values()))) / math.pow(series, SHARING)


def look(logs: Sequence[float]) -> Look | None:
    """What the latest window of a series says; None while there are too few runs.

    ``logs``: logarithms of the recoveries, by age.
    """
    import numpy as np

    if len(logs) < LEAST:
        return None
    values = np.asarray(logs[-BASELINE - WINDOW :], dtype=float)
    log_ratio, chance = compare(values[:-WINDOW], values[-WINDOW:])
    return Look(float(np.exp(log_ratio)), float(chance), len(values) - WINDOW)


def standing_since(logs: Sequence[float], series: int = 1) -> int:
    """How many of the latest runs in a row raise or keep an alarm; 0 for none that stands."""
    for nights in range(len(logs)):
        seen = look(logs[: len(logs) - nights])
        if seen is None or not seen.alarms(series):
            return nights
    return len(logs)


def compare(baseline: Floats, window: Floats) -> tuple[Floats, Floats]:
    """How much windows lie above their baselines, and the chance of as much without a change.

    Both hold logarithms along their last axis, of any length; the other axes are those of both results.
    """
    import numpy as np
    from scipy.special import stdtr

    middle, spread, size = _steady(baseline)
    heights = np.sort((window - middle[..., None]) / spread[..., None], axis=-1)
    odd = heights > FAR
    odd[..., : heights.shape[-1] - ASIDE] = False
    counted = heights.shape[-1] - odd.sum(-1)
    mean = np.where(odd, 0.0, heights).sum(-1) / counted
    statistic = mean / np.sqrt(1 / counted + 1 / size)
    return mean * spread, stdtr(size - 1, -statistic)


def _steady(baseline: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean, standard deviation and number of the runs of each baseline, outliers left out."""
    import numpy as np

    median = np.median(baseline, axis=-1, keepdims=True)
    distance = np.abs(baseline - median)
    robust = np.maximum(1.4826 * np.median(distance, axis=-1, keepdims=True), LEAST_SPREAD)
    kept = distance <= TRIM * robust
    size = kept.sum(-1)
    mean = np.where(kept, baseline, 0.0).sum(-1) / size
    square = np.where(kept, (baseline - mean[..., None]) ** 2, 0.0).sum(-1) / (size - 1)
    return mean, np.maximum(np.sqrt(square) * CUT_TAILS, LEAST_SPREAD), size


CUT_TAILS = 1.0136
"""What the standard deviation of a normal sample loses by what lies beyond ``TRIM`` is given back."""
