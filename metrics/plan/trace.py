"""A record of failures that really happened, read from CSV, to be replayed.

    time_h,machines
    0.7,1
    3.9,2

``time_h``: hours since the record began, rising. ``machines``: how many were lost at once; 1 where there is no such
column, 0 where the same machines went on. Other columns are not read.
"""

from __future__ import annotations

import csv
import itertools
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from metrics.plan.quantities import HOUR_S, YEAR_S, PlanError

GAP = 20.0
"""An interval that is so many times the mean: of random intervals one in 500 million is so long."""


@dataclass(frozen=True)
class Trace:
    """Failures by time, in seconds since the record began. ``gaps``: sentences on times of which it may lack a part."""

    times_s: tuple[float, ...]
    machines: tuple[int, ...]
    gaps: tuple[str, ...] = ()

    @property
    def end_s(self) -> float:
        """Its last failure: how much of the time it covers."""
        return self.times_s[-1]

    @property
    def mtbf_s(self) -> float:
        """The mean time between its failures."""
        return self.end_s / len(self.times_s)


@dataclass(frozen=True)
class Row:
    """A failure, and the line that tells of it."""

    line: int
    time_s: float
    machines: int


def read(file: Path) -> Trace:
    """Read a record of failures.

    Raises PlanError, with the number of the line, for what is no such record.
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = list(_rows(file, lines))
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{file} cannot be read: {getattr(error, 'strerror', '') or error}") from error
    if len(rows) < 2:
        raise PlanError(f"{file} holds {len(rows)} failures: at least 2 are needed to go by")
    for before, row in itertools.pairwise(rows):
        if row.time_s < before.time_s:
            raise _bad(file, row.line, f"time_h={row.time_s / HOUR_S:g} lies before the line above: sort by time")
    return Trace(tuple(r.time_s for r in rows), tuple(r.machines for r in rows), tuple(_gaps(file, rows)))


def _rows(file: Path, lines: Iterable[str]) -> Iterator[Row]:
    reader = csv.DictReader(lines)
    columns = reader.fieldnames or ()
    if "time_h" not in columns:
        raise _bad(file, 1, f"no column time_h among {', '.join(columns) or 'none'}: name it in the first line")
    for record in reader:
        time_h = _number(file, reader.line_num, "time_h", record["time_h"])
        machines = _number(file, reader.line_num, "machines", record["machines"]) if "machines" in columns else 1
        if not 0 <= time_h * HOUR_S <= 100 * YEAR_S:
            raise _bad(file, reader.line_num, f"time_h={time_h:g}: hours since the record began are meant")
        if not 0 <= machines <= 1e6 or machines != int(machines):
            raise _bad(file, reader.line_num, f"machines={machines:g} is no number of machines")
        yield Row(reader.line_num, time_h * HOUR_S, int(machines))


def _number(file: Path, line: int, column: str, text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        told = "is missing" if not (text or "").strip() else f"{text!r} is no number"
        raise _bad(file, line, f"{column} {told}: mend the line or leave it out") from None


def _bad(file: Path, line: int, message: str) -> PlanError:
    return PlanError(f"{file}, line {line}: {message}")


def _gaps(file: Path, rows: list[Row]) -> Iterator[str]:
    """Intervals that random failures would hardly leave; each is told by the line after it."""
    between = [(row.line, row.time_s - before.time_s) for before, row in itertools.pairwise(rows)]
    usual_s = statistics.fmean(seconds for _, seconds in between)
    for line, seconds in between:
        if seconds > GAP * usual_s:
            told = f"{seconds / HOUR_S:,.1f} hours without a failure, {seconds / usual_s:.0f} times the mean"
            yield f"{file}, line {line}: {told}: is a part of the record missing?"
