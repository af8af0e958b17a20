"""Many nights of stored runs: of each scenario how often it passed, how fast it recovered, and whether that changed."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec

from metrics import regression
from metrics.regression import WINDOW
from metrics.stored import Stored

SCHEMA = 1

RECENT = 30
"""The latest runs that say whether a scenario is flaky."""

LEAST_CHANGE = 2 * WINDOW
"""Recoveries that a series needs before a recent change is told."""

TOGETHER = "all together"
"""The series of the median over all scenarios, which shows what slows most of them down by little."""

LEAST_TOGETHER = 3
"""Scenarios that such a median needs on each night, and half of all that there are."""


class Total(msgspec.Struct, frozen=True):
    """Of a recovery, what a trend needs."""

    total_s: float
    missing: str


class Night(msgspec.Struct, frozen=True):
    """Of a ``verdict.json``, what a trend needs: no more is decoded."""

    schema: int
    scenario: str
    verdict: str
    exit_code: int
    workers: int
    steps: int
    recoveries: list[Total]

    @property
    def recovery_s(self) -> float | None:
        """The slowest whole recovery, as in the table of a suite."""
        return max((r.total_s for r in self.recoveries if not r.missing and r.total_s > 0), default=None)


class Health(StrEnum):
    """What the latest verdicts of a scenario say."""

    PASSES = "passes"
    FLAKY = "flaky"
    """It came and went: more than one change between passing and not."""
    BROKEN = "broken"
    """It passed, and from some run on no more."""
    MENDED = "mended"
    """It did not pass, and from some run on always."""
    NEVER = "never passed"


class Point(msgspec.Struct, frozen=True):
    """One run. ``began``: local time of its start. ``recovery_s``: null where there was none, or none whole."""

    began: str
    verdict: str
    recovery_s: float | None


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one scenario and shape, by age.

    ``health_since``: begin of the run that was the first to break or to pass again, else empty. ``recent``, ``failed``:
    how many of the latest runs were looked at, and how many of these did not pass. ``median_s``: of all recoveries;
    ``recent_s``: of the latest ``WINDOW``; ``change``: that against the median before, as a ratio less 1.
    ``slower_since``: when the alarm was raised that stands, empty for none.
    """

    name: str
    scenario: str
    workers: int
    steps: int
    runs: int
    passed: int
    health: Health
    health_since: str
    recent: int
    failed: int
    recoveries: int
    median_s: float | None
    recent_s: float | None
    change: float | None
    watched: bool
    slower_since: str
    points: list[Point]


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """All scenarios together, by night. ``change``: of the latest ``WINDOW`` nights, as a ratio less 1."""

    nights: int
    watched: bool
    change: float | None
    slower_since: str


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """Many runs, by series. ``watched``: how many series have enough runs for an alarm."""

    schema: int
    folder: str
    runs: int
    watched: int
    series: list[Series]
    together: Pool | None
    left_out: list[str]

    @property
    def regressed(self) -> list[str]:
        """The series whose alarm stands, with the day from which on it does."""
        named = [(one.name, one.slower_since) for one in self.series]
        named += [(TOGETHER, self.together.slower_since)] if self.together else []
        return [f"{name}, since {since[:10]}" for name, since in named if since]


def trend(folder: str, runs: Sequence[Stored[Night]], left_out: list[str], since: str = "") -> Trend:
    """Put the runs in series and look at each. ``since``: the first day, such as ``2026-11-30``, empty for any."""
    dated = sorted(((run.began, run.record) for run in runs), key=lambda pair: pair[0])
    undated = sum(not began for began, _ in dated)
    groups: dict[tuple[str, int, int], list[Point]] = defaultdict(list)
    for began, night in dated:
        if began and began >= since:
            key = night.scenario, night.workers, night.steps
            groups[key].append(Point(began, night.verdict, night.recovery_s))
    pool = _nights(groups.values())
    watched = sum(len(_logs(points)) >= regression.LEAST for points in groups.values())
    watched += len(pool) >= regression.LEAST
    shapes = [scenario for scenario, _, _ in groups]
    return Trend(
        schema=SCHEMA,
        folder=folder,
        runs=sum(map(len, groups.values())),
        watched=watched,
        series=[_series(key, points, shapes.count(key[0]) > 1, watched) for key, points in sorted(groups.items())],
        together=_together(pool, watched),
        left_out=left_out + ([f"left out {undated}, without a time in name or history"] if undated else []),
    )


def _series(key: tuple[str, int, int], points: list[Point], shaped: bool, watched: int) -> Series:
    scenario, workers, steps = key
    times = [point.recovery_s for point in points if point.recovery_s is not None]
    latest = points[-RECENT:]
    health, place = health_of([point.verdict == "pass" for point in latest])
    recent = statistics.median(times[-WINDOW:]) if times else None
    return Series(
        name=f"{scenario}, {workers} workers, {steps} steps" if shaped else scenario,
        scenario=scenario,
        workers=workers,
        steps=steps,
        runs=len(points),
        passed=sum(point.verdict == "pass" for point in points),
        health=health,
        health_since=latest[place].began if place else "",
        recent=len(latest),
        failed=sum(point.verdict != "pass" for point in latest),
        recoveries=len(times),
        median_s=statistics.median(times) if times else None,
        recent_s=recent,
        change=_change(times),
        watched=len(times) >= regression.LEAST,
        slower_since=_slower_since([p.began for p in points if p.recovery_s is not None], _logs(points), watched),
        points=points,
    )


def health_of(passed: Sequence[bool]) -> tuple[Health, int]:
    """What a sequence of verdicts says, by age, and the place of the run from which on it holds, 0 for all of them."""
    changes = [place for place, (before, after) in enumerate(pairwise(passed), 1) if before is not after]
    if not changes:
        return (Health.PASSES if passed and passed[0] else Health.NEVER), 0
    if len(changes) > 1:
        return Health.FLAKY, 0
    return (Health.MENDED if passed[-1] else Health.BROKEN), changes[0]


def _change(times: Sequence[float]) -> float | None:
    """The median of the latest window against that of up to a baseline's length before it, as a ratio less 1."""
    if len(times) < LEAST_CHANGE:
        return None
    before = times[-WINDOW - regression.BASELINE : -WINDOW]
    return statistics.median(times[-WINDOW:]) / statistics.median(before) - 1


def _logs(points: Iterable[Point]) -> list[float]:
    return [math.log(point.recovery_s) for point in points if point.recovery_s is not None]


def _slower_since(began: Sequence[str], logs: Sequence[float], watched: int) -> str:
    nights = regression.standing_since(logs, max(1, watched))
    return began[-nights] if nights else ""


def _nights(groups: Iterable[Iterable[Point]]) -> dict[str, float]:
    """The median of all watched scenarios by day: how far each lies from its own usual recovery, as logarithms."""
    by_day: dict[str, list[float]] = defaultdict(list)
    scenarios = 0
    for points in groups:
        times = [(point.began[:10], math.log(point.recovery_s)) for point in points if point.recovery_s is not None]
        if len(times) < regression.LEAST:
            continue
        scenarios += 1
        usual = statistics.median(log for _, log in times)
        for day, log in times:
            by_day[day].append(log - usual)
    least = max(LEAST_TOGETHER, scenarios / 2)
    return {day: statistics.median(found) for day, found in sorted(by_day.items()) if len(found) >= least}


def _together(pool: Mapping[str, float], watched: int) -> Pool | None:
    if not pool:
        return None
    logs = list(pool.values())
    seen = regression.look(logs)
    return Pool(
        nights=len(pool),
        watched=seen is not None,
        change=seen.ratio - 1 if seen else None,
        slower_since=_slower_since(list(pool), logs, watched),
    )
