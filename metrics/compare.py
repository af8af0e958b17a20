"""Two sides of stored runs, compared: what became slower, what the checks say now, what was asked differently."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from metrics import intervals
from metrics.goodput import BUCKETS
from metrics.recovery import PHASES
from metrics.summary import RecoveryRecord, Summary

SCHEMA = 1

MATTERS = 1.05
"""A recovery must be so many times slower before ``regressed`` calls it a regression."""

ABSENT = "absent"
"""Stands for the verdict of a check that a run does not have."""

SEVERITY = ("pass", "not-applicable", ABSENT, "unknown", "fail")
"""The verdicts, from best to worst."""


class Trend(StrEnum):
    """What two sides say about a quantity."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    UNCLEAR = "unclear"
    """The interval holds zero: the repeats differ among themselves as much as the sides do."""
    UNTOLD = "untold"
    """They differ, but too few runs tell by how much runs of one side differ among themselves."""


@dataclass(frozen=True)
class Quantity:
    """A number of a run. ``of``: None where the run has none. ``more_is_better``: as of goodput."""

    name: str
    unit: str
    of: Callable[[Summary], float | None]
    part_of: str = ""
    more_is_better: bool = False


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity on both sides. ``part_of``: the quantity that it is a part of, empty for none.

    ``change``: by how much B lies above A, by Hodges and Lehmann. ``low``, ``high``: its interval of confidence
    ``level``, null where too few runs permit none.
    """

    name: str
    part_of: str
    unit: str
    a: list[float]
    b: list[float]
    a_median: float
    b_median: float
    change: float
    low: float | None
    high: float | None
    level: float | None
    trend: Trend


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts of a check, or of whole runs (``verdict``), where the sides have different ones; runs by verdict."""

    name: str
    a: dict[str, int]
    b: dict[str, int]
    worse: bool


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the sides' runs were asked for differently, or ran with, such as the version of Ray."""

    name: str
    a: list[str]
    b: list[str]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario on both sides. ``a``, ``b``: ids of the runs. ``issues_gone``, ``issues_new``: known issues."""

    scenario: str
    a: list[str]
    b: list[str]
    verdict_a: dict[str, int]
    verdict_b: dict[str, int]
    differences: list[Difference]
    checks: list[Changed]
    issues_gone: list[str]
    issues_new: list[str]
    asked: list[Asked]

    def difference(self, name: str) -> Difference | None:
        """The quantity of that name, which is no part of another, where both sides have it."""
        return next((one for one in self.differences if (one.name, one.part_of) == (name, "")), None)

    @property
    def regressed(self) -> list[str]:
        """What makes B a regression: a worse verdict, or a recovery that is clearly slower; empty for none."""
        found = [f"{one.name}: {counted(one.a)} -> {counted(one.b)}" for one in self.checks if one.worse]
        slower = self.difference("recovery")
        if slower and slower.trend is Trend.WORSE and slower.b_median >= MATTERS * slower.a_median:
            found.append(f"recovery {slower.change:+.2f} s ({slower.low:+.2f} to {slower.high:+.2f})")
        return found

    @property
    def untold(self) -> bool:
        """Whether there is a recovery on both sides, but too few runs to say that it is slower or not."""
        found = self.difference("recovery")
        return found is not None and found.level is None and found.trend is not Trend.SAME


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides compared. ``only_a``, ``only_b``: scenarios of one side. ``left_out``: sentences, see ``stored``."""

    schema: int
    a: list[str]
    b: list[str]
    scenarios: list[Comparison]
    only_a: list[str]
    only_b: list[str]
    left_out: list[str]


def _slowest(run: Summary) -> RecoveryRecord | None:
    """The slowest whole recovery of a run, which stands for it, as in the table of a suite."""
    return max((r for r in run.recoveries if not r.missing), key=lambda r: r.total_s, default=None)


def _recovery(field: str) -> Callable[[Summary], float | None]:
    def value(run: Summary) -> float | None:
        slowest = _slowest(run)
        return getattr(slowest, field) if slowest else None

    return value


def _phase(name: str) -> Callable[[Summary], float | None]:
    def value(run: Summary) -> float | None:
        slowest = _slowest(run)
        return sum(p.seconds for p in slowest.phases if p.name == name) if slowest else None

    return value


def _bucket(name: str) -> Callable[[Summary], float | None]:
    return lambda run: run.goodput.seconds.get(name) if run.goodput else None


def _part(field: str) -> Callable[[Summary], float | None]:
    return lambda run: float(getattr(run.time, field))


def _lost_steps(run: Summary) -> float | None:
    return max((r.lost_steps or 0 for r in run.recoveries if not r.missing), default=None)


RECOVERY = (
    Quantity("recovery", "s", _recovery("total_s")),
    *(Quantity(name, "s", _phase(name), "recovery") for name in PHASES),
    Quantity("first step", "s", _recovery("first_step_s")),
    Quantity("usual pace", "s", _recovery("usual_step_s")),
)
"""Of the slowest whole recovery of a run; the phases sum to it."""

QUANTITIES = (
    *RECOVERY,
    Quantity("lost steps", "", _lost_steps),
    Quantity("restarts", "", lambda run: float(run.restarts)),
    Quantity("goodput", "%", lambda run: 100 * run.goodput.share if run.goodput else None, more_is_better=True),
    *(Quantity(name, "s", _bucket(name), "goodput", more_is_better=name == "productive") for name in BUCKETS),
    Quantity("run time", "s", _part("wall_s")),
    Quantity("cluster start", "s", _part("cluster_start_s"), "run time"),
    Quantity("training", "s", _part("workload_s"), "run time"),
    Quantity("control run", "s", _part("control_s"), "run time"),
    Quantity("harness", "s", _part("harness_s"), "run time"),
)
"""All that is compared, in order, the parts of a quantity below it."""


def compare(a: Sequence[Summary], b: Sequence[Summary]) -> list[Comparison]:
    """Compare the scenarios that both sides have, sorted by name."""
    sides = _by_scenario(a), _by_scenario(b)
    return [_compared(name, sides[0][name], sides[1][name]) for name in sorted(sides[0].keys() & sides[1].keys())]


def _by_scenario(runs: Iterable[Summary]) -> dict[str, list[Summary]]:
    found: dict[str, list[Summary]] = {}
    for run in runs:
        found.setdefault(run.scenario, []).append(run)
    return found


def _compared(name: str, a: list[Summary], b: list[Summary]) -> Comparison:
    before, after = ({run.known_issue for run in side if run.known_issue} for side in (a, b))
    return Comparison(
        scenario=name,
        a=[run.run for run in a],
        b=[run.run for run in b],
        verdict_a=Counter(run.verdict for run in a),
        verdict_b=Counter(run.verdict for run in b),
        differences=[found for quantity in QUANTITIES if (found := difference(quantity, a, b))],
        checks=_checks_changed(a, b),
        issues_gone=sorted(before - after),
        issues_new=sorted(after - before),
        asked=_asked_differently(a, b),
    )


def difference(quantity: Quantity, a: Iterable[Summary], b: Iterable[Summary]) -> Difference | None:
    """A quantity on both sides; None where no run of one side has it."""
    first, second = ([value for run in side if (value := quantity.of(run)) is not None] for side in (a, b))
    if not first or not second:
        return None
    found = intervals.shift(first, second)
    return Difference(
        name=quantity.name,
        part_of=quantity.part_of,
        unit=quantity.unit,
        a=first,
        b=second,
        a_median=statistics.median(first),
        b_median=statistics.median(second),
        change=intervals.estimate(first, second),
        low=found.low if found else None,
        high=found.high if found else None,
        level=found.level if found else None,
        trend=_trend(quantity, found, len({*first, *second}) == 1),
    )


def _trend(quantity: Quantity, found: intervals.Shift | None, all_equal: bool) -> Trend:
    if all_equal:
        return Trend.SAME
    if found is None:
        return Trend.UNTOLD
    if not found.clear:
        return Trend.UNCLEAR
    return Trend.BETTER if (found.low > 0) is quantity.more_is_better else Trend.WORSE


def _checks_changed(a: Sequence[Summary], b: Sequence[Summary]) -> list[Changed]:
    """The run's own verdict and each check whose verdicts are not the same ones on both sides."""
    sides = [[{"verdict": run.verdict} | {c.name: c.verdict for c in run.checks} for run in side] for side in (a, b)]
    names = dict.fromkeys(name for side in sides for run in side for name in run)
    found = []
    for name in names:
        before, after = (Counter(run.get(name, ABSENT) for run in side) for side in sides)
        if before.keys() != after.keys():
            found.append(Changed(name=name, a=before, b=after, worse=_worst(after) > _worst(before)))
    return found


def _worst(verdicts: Iterable[str]) -> int:
    return max(SEVERITY.index(verdict) if verdict in SEVERITY else len(SEVERITY) for verdict in verdicts)


def counted(verdicts: dict[str, int]) -> str:
    """Verdicts in words: ``pass``, or ``pass 2, fail 1`` of several."""
    if sum(verdicts.values()) == 1:
        return next(iter(verdicts))
    return ", ".join(f"{verdict} {count}" for verdict, count in sorted(verdicts.items(), key=lambda kv: -kv[1]))


def _asked_differently(a: Iterable[Summary], b: Iterable[Summary]) -> list[Asked]:
    """What explains a difference before any regression does: shape, seed, expectation and versions."""
    before, after = (list(map(_asked, side)) for side in (a, b))
    found = []
    for name in dict.fromkeys(name for run in (*before, *after) for name in run):
        first, second = (sorted({run.get(name, "-") for run in side}) for side in (before, after))
        if first != second:
            found.append(Asked(name=name, a=first, b=second))
    return found


def _asked(run: Summary) -> dict[str, str]:
    shape = {"workers": run.workers, "steps": run.steps, "seed": run.seed, "expect": run.expect}
    return {name: str(value) for name, value in (shape | run.versions).items()}
