"""The command ``aftershock compare``: two runs, suites or folders of repeats, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaos.exits import ExitCode, UsageError
from scenarios import asking

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from metrics.compare import Comparison, Difference, Report
    from metrics.summary import Summary

EXAMPLES = """\b
Examples:
  aftershock compare runs/<run> runs/<another>
  aftershock compare out/monday out/tuesday
  aftershock compare --a runs/<run> --a runs/<run> --b runs/<run> --b runs/<run>
  aftershock compare out/before out/after --fail-on-regression --json
"""

STYLES = {"worse": "red", "better": "green"}
PATH = click.Path(path_type=Path)


@click.command(epilog=EXAMPLES)
@click.argument("sides", metavar="[A B]", nargs=-1, type=PATH)
@click.option("--a", "more_a", multiple=True, metavar="DIR", type=PATH, help="A run or folder of side A; may repeat.")
@click.option("--b", "more_b", multiple=True, metavar="DIR", type=PATH, help="A run or folder of side B; may repeat.")
@click.option("--all", "everything", is_flag=True, help="Show every quantity, also of many scenarios.")
@click.option("--fail-on-regression", is_flag=True, help="Exit with 1 when B is worse: a verdict or a recovery.")
@click.option("--strict", is_flag=True, help="With that gate: too few runs to tell are unknown, exit code 2.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def compare(
    sides: tuple[Path, ...],
    more_a: tuple[Path, ...],
    more_b: tuple[Path, ...],
    everything: bool,
    fail_on_regression: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Compare stored runs: what became slower from A to B, and what the checks say now.

    A and B are runs, suites or folders of repeats.
    """
    report = gather(*_folders(sides, more_a, more_b))
    if as_json:
        import msgspec

        regressed = {one.scenario: one.regressed for one in report.scenarios if one.regressed}
        told = {**msgspec.to_builtins(report), "regressed": regressed}
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=1).decode())
    else:
        show(report, everything, asking.console())
    return _exit_code(report, strict) if fail_on_regression else ExitCode.PASS


def _exit_code(report: Report, strict: bool) -> ExitCode:
    if report.only_a or any(one.regressed for one in report.scenarios):
        return ExitCode.FAIL
    return ExitCode.UNKNOWN if strict and any(one.untold for one in report.scenarios) else ExitCode.PASS


def _folders(
    sides: tuple[Path, ...], more_a: tuple[Path, ...], more_b: tuple[Path, ...]
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The folders of both sides.

    Raises UsageError when there are not two sides.
    """
    if len(sides) == 2 and not (more_a or more_b):
        return sides[:1], sides[1:]
    if not sides and more_a and more_b:
        return more_a, more_b
    given = " ".join(map(str, sides)) or "nothing"
    raise UsageError(f"compare needs two sides, and was given {given}: write compare A B, or --a DIR ... --b DIR ...")


def gather(a: tuple[Path, ...], b: tuple[Path, ...]) -> Report:
    """Read both sides and compare them.

    Raises UsageError when one side has no run, or the sides have no scenario in common.
    """
    from metrics import compare as comparing

    (runs_a, left_a), (runs_b, left_b) = _side(a), _side(b)
    names_a, names_b = ({run.scenario for run in side} for side in (runs_a, runs_b))
    if not names_a & names_b:
        seen = f"A holds {', '.join(sorted(names_a))}; B holds {', '.join(sorted(names_b))}"
        raise UsageError(f"the sides have no scenario in common: {seen}; name runs of the same scenario")
    return comparing.Report(
        schema=comparing.SCHEMA,
        a=list(map(str, a)),
        b=list(map(str, b)),
        scenarios=comparing.compare(runs_a, runs_b),
        only_a=sorted(names_a - names_b),
        only_b=sorted(names_b - names_a),
        left_out=[f"A: {told}" for told in left_a] + [f"B: {told}" for told in left_b],
    )


def _side(folders: tuple[Path, ...]) -> tuple[list[Summary], list[str]]:
    from metrics.stored import survey
    from metrics.summary import Summary

    runs: dict[Path, Summary] = {}
    left_out: list[str] = []
    for folder in folders:
        try:
            found = survey(folder, Summary)
        except OSError as error:
            raise UsageError(f"{folder}: {error.strerror or error}; name a run, or a folder that holds runs") from error
        runs |= {stored.directory.absolute(): stored.record for stored in found.runs}
        left_out += found.told()
    if not runs:
        why = "; ".join(left_out) or "it is empty"
        raise UsageError(f"{', '.join(map(str, folders))} holds no run that can be used: {why}; name one that does")
    return list(runs.values()), left_out


def show(report: Report, everything: bool, console: Console) -> None:
    """Print one scenario in full, or of several one row each; then what changed, and what was left out."""
    several = len(report.scenarios) > 1
    if several:
        console.print(_overview(report.scenarios))
    for one in report.scenarios:
        if everything or not several:
            console.print(_quantities(one))
        for line in changes(one):
            console.print(f"{one.scenario}: {line}" if several else line, highlight=False, markup=False)
    for side, names in (("A", report.only_a), ("B", report.only_b)):
        if names:
            console.print(f"only in {side}: {', '.join(names)}", highlight=False, markup=False)
    for line in [*report.left_out, *confidence(report.scenarios)]:
        console.print(line, highlight=False, markup=False)


def _overview(scenarios: Iterable[Comparison]) -> Table:
    """One row a scenario: its verdicts and its recovery."""
    from rich.text import Text

    from metrics.compare import counted

    table = _table("scenario", ("A", "B"), ("recovery A", "B", "change", "interval"))
    for one in scenarios:
        found = one.difference("recovery")
        cells = [Text(counted(one.verdict_a)), Text(counted(one.verdict_b))]
        table.add_row(Text(one.scenario), *cells, *(_cells(found) if found else ("-",) * 4))
    return table


def _quantities(one: Comparison) -> Table:
    """One row a quantity; what is zero on both sides is left out."""
    from rich.text import Text

    title = Text(f"{one.scenario}: {len(one.a)} {_runs(one.a)} in A, {len(one.b)} in B", style="bold")
    table = _table("", (), ("A", "B", "change", "interval"), title)
    for found in one.differences:
        if any((*found.a, *found.b)):
            table.add_row(f"  {found.name}" if found.part_of else found.name, *_cells(found))
    return table


def _table(first: str, words: tuple[str, ...], numbers: tuple[str, ...], title: Text | None = None) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in (first, *words):
        table.add_column(column, no_wrap=True)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    return table


def _cells(found: Difference) -> tuple[str, ...]:
    """Both medians, the change, its interval, and what that says."""
    digits = 0 if not found.unit and all(value == int(value) for value in (*found.a, *found.b)) else 2
    told = found.low is not None and found.trend != "same"
    interval = f"{found.low:+.{digits}f} to {found.high:+.{digits}f}" if told else "-"
    style = STYLES.get(found.trend)
    word = f"[{style}]{found.trend}[/]" if style else f"[dim]{found.trend}[/]"
    unit = f" {found.unit}" if found.unit else ""
    share = f" ({found.change / found.a_median:+.0%})" if found.unit == "s" and found.a_median >= 1 else ""
    medians = f"{found.a_median:.{digits}f}{unit}", f"{found.b_median:.{digits}f}{unit}"
    return *medians, f"{found.change:+.{digits}f}{share}", interval, word


def changes(one: Comparison) -> list[str]:
    """What changed beside the numbers: verdicts, known issues, and what was asked."""
    from metrics.compare import counted

    lines = [
        f"{changed.name}: {counted(changed.a)} -> {counted(changed.b)}{' (worse)' if changed.worse else ''}"
        for changed in one.checks
    ]
    lines += [f"known issue that is gone: {issue}" for issue in one.issues_gone]
    lines += [f"known issue that is new: {issue}" for issue in one.issues_new]
    asked = [f"{asked.name} {', '.join(asked.a)} -> {', '.join(asked.b)}" for asked in one.asked]
    return lines + ([f"not the same was asked: {'; '.join(asked)}"] if asked else [])


def confidence(scenarios: Iterable[Comparison]) -> list[str]:
    """How sure the changes are, in one sentence for each way in which they are."""
    from metrics.intervals import LEAST

    levels = {found.level for one in scenarios for found in one.differences}
    lines = [f"intervals: {_levels([x for x in levels if x])} (exact Mann-Whitney)"] if levels - {None} else []
    few = sorted({f"{len(one.a)} against {len(one.b)}" for one in scenarios if one.untold})
    if few:
        lines.append(
            f"untold: {'; '.join(few)} runs cannot say how much runs differ by chance, so no change above is proof of "
            f"one; repeat them, 3 against 3 is the least for an interval of {LEAST:.0%}"
        )
    return lines


def _levels(levels: list[float]) -> str:
    low, high = min(levels), max(levels)
    return f"{low:.1%}" if round(low, 3) == round(high, 3) else f"{low:.1%} to {high:.1%}"


def _runs(runs: list[str]) -> str:
    return "run" if len(runs) == 1 else "runs"
