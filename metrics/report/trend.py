"""The page of ``aftershock trend --html``: one chart for each scenario, drawn as SVG in the page itself.

No script and nothing from elsewhere: it opens offline and where scripts are forbidden, a screen reader is told each
chart in a sentence and each run in a table, and a scenario takes kilobytes where a plotting library takes megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metrics.report import ENVIRONMENT
from metrics.trend import Point, Series, Trend

SHOWN = 120
"""The latest runs that a chart shows."""

WIDTH, HEIGHT, MARGIN = 680.0, 120.0, 8.0


@dataclass(frozen=True)
class Dot:
    """One run in a chart: its place, and whether it passed; ``y`` is on the floor where there was no recovery."""

    x: float
    y: float
    point: Point

    @property
    def told(self) -> str:
        """The run in words."""
        time = "no whole recovery" if self.point.recovery_s is None else f"{self.point.recovery_s:.1f} s"
        return f"{self.point.began[:16]}: {self.point.verdict}, {time}"


@dataclass(frozen=True)
class Chart:
    """The chart of one series, its runs from left to right. ``line``: through the recoveries; ``top_s``: upper edge."""

    series: Series
    dots: Sequence[Dot]
    line: str
    median_y: float | None
    top_s: float

    @property
    def told(self) -> str:
        """The chart in a sentence."""
        return f"{self.series.name}: recoveries of the latest {len(self.dots)} runs, from 0 to {self.top_s:.1f} seconds"


def chart(series: Series) -> Chart:
    """Lay out the latest runs of a series; time grows to the right, seconds from 0 upwards."""
    points = series.points[-SHOWN:]
    top = 1.1 * max((point.recovery_s or 0.0 for point in points), default=0.0) or 1.0
    step = (WIDTH - 2 * MARGIN) / max(1, len(points) - 1)
    dots = [Dot(MARGIN + place * step, _y(point.recovery_s or 0.0, top), point) for place, point in enumerate(points)]
    line = " ".join(f"{dot.x:.1f},{dot.y:.1f}" for dot in dots if dot.point.recovery_s is not None)
    median = None if series.median_s is None else _y(min(series.median_s, top), top)
    return Chart(series, dots, line, median, top)


def _y(seconds: float, top: float) -> float:
    return MARGIN + (HEIGHT - 2 * MARGIN) * (1 - seconds / top)


def write(found: Trend, path: Path) -> None:
    """Write the page.

    Raises OSError when it cannot be written.
    """
    charts = [chart(series) for series in found.series]
    page = ENVIRONMENT.get_template("trend.html.j2").render(t=found, charts=charts, width=WIDTH, height=HEIGHT)
    path.write_text(page, encoding="utf-8")
