"""The command ``aftershock trend``: many nights of stored runs, as a table, a page or JSON, and as a gate."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from chaos.exits import ExitCode, UsageError
from scenarios import asking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

    from metrics.trend import Point, Series, Trend

EXAMPLES = """\b
Examples:
  aftershock trend runs
  aftershock trend runs --html trend.html
  aftershock trend /data/nightly --since 2026-09-01 --fail-on-regression
  aftershock trend runs --json
"""

BARS = "▁▂▃▄▅▆▇█"
SPARKS = 20
"""The latest runs that a line of the table shows."""


@click.command(epilog=EXAMPLES)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), metavar="DAY", help="Leave out what ran before that day.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with charts, for offline.")
@click.option("--fail-on-regression", is_flag=True, help="Exit with 1 while a recovery is slower than it was.")
@click.option("--strict", is_flag=True, help="With that gate: too few runs for any alarm are unknown, exit code 2.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def trend(
    folder: Path, since: datetime | None, html: Path | None, fail_on_regression: bool, strict: bool, as_json: bool
) -> int:
    """Show how the scenarios stored below DIR passed and recovered, night after night."""
    found = gather(folder, f"{since:%Y-%m-%d}" if since else "")
    if html:
        _write_page(found, html)
    if as_json:
        import msgspec

        told = {**msgspec.to_builtins(found), "regressed": found.regressed}
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=1).decode())
    else:
        show(found, asking.console())
    if not fail_on_regression:
        return ExitCode.PASS
    if found.regressed:
        return ExitCode.FAIL
    return ExitCode.UNKNOWN if strict and not found.watched else ExitCode.PASS


def gather(folder: Path, since: str) -> Trend:
    """Read what is stored below a folder, and look at it.

    Raises UsageError when there is no run in it.
    """
    from metrics import trend as trends
    from metrics.stored import survey

    try:
        found = survey(folder, trends.Night)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}; name a folder that holds runs") from error
    seen = trends.trend(str(folder), found.runs, found.told(), since)
    if not seen.runs:
        why = "; ".join(seen.left_out) or "it is empty"
        when = f" since {since}" if since else ""
        raise UsageError(f"{folder} holds no run{when} that can be used: {why}; name a folder that holds runs")
    return seen


def _write_page(found: Trend, file: Path) -> None:
    from metrics.report.trend import write

    try:
        write(found, file)
    except OSError as error:
        raise UsageError(f"--html {file}: {error.strerror or error}; name a file that can be written") from error


def show(found: Trend, console: Console) -> None:
    """Print one row for each series, and what the gate says."""
    from rich.table import Table
    from rich.text import Text

    from scenarios.view import WIDTH

    table = Table(box=None, padding=(0, 2, 0, 0), width=WIDTH)
    table.add_column("scenario", overflow="fold")
    for column in ("passed", "recovery", "change"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("latest", no_wrap=True)
    table.add_column("state", ratio=1)
    for one in found.series:
        usual = "-" if one.median_s is None else f"{one.median_s:.1f} s"
        change = "-" if one.change is None else f"{one.change:+.0%}"
        passed = f"{one.passed} of {one.runs}"
        table.add_row(Text(one.name), passed, usual, change, sparkline(one.points[-SPARKS:]), state(one))
    console.print(table)
    for line in sentences(found):
        console.print(line, highlight=False, markup=False)


def sparkline(points: Sequence[Point]) -> Text:
    """Recoveries as bars; red where a run did not pass, a dot where it had no recovery.

    They reach from the least recovery to the most, or to twice their median, so that an outlier hides nothing.
    """
    from rich.text import Text

    times = [point.recovery_s for point in points if point.recovery_s is not None]
    low, high = (min(times), min(max(times), 2 * median(times))) if times else (0.0, 0.0)
    line = Text()
    for point in points:
        bar = "·"
        if point.recovery_s is not None:
            share = (min(point.recovery_s, high) - low) / (high - low) if high > low else 0.0
            bar = BARS[round(share * (len(BARS) - 1))]
        line.append(bar, style="" if point.verdict == "pass" else "red")
    return line


def state(one: Series) -> Text:
    """What is to be said of a series, the worst first."""
    from rich.text import Text

    words = []
    if one.slower_since:
        words.append((f"slower since {one.slower_since[:10]}", "bold red"))
    match one.health.name:
        case "FLAKY":
            words.append((f"flaky: {one.failed} of {one.recent} did not pass", "yellow"))
        case "BROKEN" | "MENDED":
            words.append((f"{one.health} since {one.health_since[:10]}", "red" if one.health.name == "BROKEN" else ""))
        case "NEVER":
            words.append((f"{one.health}", "red"))
    return Text("; ").join(Text(*word) for word in words)


def sentences(found: Trend) -> list[str]:
    """How much was looked at, what was left out, and what the gate says."""
    from metrics.regression import LEAST, WINDOW

    lines = [f"{found.runs} runs of {len(found.series)} scenarios below {found.folder}", *found.left_out]
    if found.together and found.together.change is not None:
        pool = found.together
        lines.append(f"all scenarios together, the latest {WINDOW} of {pool.nights} nights: {pool.change:+.0%}")
    if found.regressed:
        lines.append(f"slower than before: {'; '.join(found.regressed)}")
    elif found.watched:
        lines.append(f"no recovery is slower than before ({found.watched} series watched)")
    else:
        most = max((one.recoveries for one in found.series), default=0)
        lines.append(f"no alarm is possible yet: it needs {LEAST} recoveries of a scenario, there are {most} at most")
    return lines
