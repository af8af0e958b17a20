"""The command ``aftershock diff``: two checkpoints compared, whatever a training script stored them as."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chaos.exits import ExitCode, UsageError
from scenarios import asking

if TYPE_CHECKING:
    from rich.console import Console

    from metrics.checkpoints.foreign import Comparison
    from metrics.checkpoints.values import Gap

EXAMPLES = """\b
Examples:
  aftershock diff out/checkpoint-40 copy/checkpoint-40
  aftershock diff run_a/checkpoint_000003 run_b/checkpoint_000003 --within 1e-6
  aftershock diff model_a.pt model_b.pt --json
"""

SHOWN = 20
"""Differences that the table shows."""


@click.command(epilog=EXAMPLES)
@click.argument("a", metavar="CHECKPOINT_A", type=click.Path(path_type=Path))
@click.argument("b", metavar="CHECKPOINT_B", type=click.Path(path_type=Path))
@click.option("--within", type=float, default=0.0, metavar="X", help="How far floats may be apart.  [default: bitwise]")
@click.option("--json", "as_json", is_flag=True, help="Print all differences as JSON.")
def diff(a: Path, b: Path, within: float, as_json: bool) -> int:
    """Compare two checkpoints by value, in any form: DCP, torch.save, safetensors, numpy, JSON. Nothing is executed."""
    from metrics.checkpoints.dcp import BadCheckpoint
    from metrics.checkpoints.foreign import compared, kinds
    from metrics.checkpoints.trees import Words

    _check(a, b, within)
    try:
        made_of = {"A": kinds(a), "B": kinds(b)}
        found = compared(a, b, within, Words("A", "B", "B"))
    except BadCheckpoint as error:
        return _refused(a, b, str(error), as_json)
    code = ExitCode.FAIL if found.gaps else ExitCode.PASS
    if as_json:
        click.echo(json.dumps(_told(a, b, within, made_of, found, code), indent=1))
    else:
        _show(a, b, made_of, found, asking.console())
    return code


def _check(a: Path, b: Path, within: float) -> None:
    if not (math.isfinite(within) and within >= 0):
        raise UsageError(f"--within {within:g}: name a distance of 0 or more, such as 1e-6")
    for path in (a, b):
        if not path.exists():
            raise UsageError(f"{path} is not there; name the folder of a checkpoint, or a file of one")
    if a.is_dir() != b.is_dir():
        folder, file = (a, b) if a.is_dir() else (b, a)
        raise UsageError(f"{folder} is a folder and {file} is none; name two folders or two files")


def _refused(a: Path, b: Path, why: str, as_json: bool) -> ExitCode:
    """Tell that two checkpoints could not be compared."""
    if as_json:
        told = {"schema": 1, "a": str(a), "b": str(b), "exit_code": int(ExitCode.UNKNOWN), "reason": why}
        click.echo(json.dumps(told, indent=1))
    else:
        click.echo(f"aftershock: not comparable: {why}", err=True)
    return ExitCode.UNKNOWN


def _told(a: Path, b: Path, within: float, kinds: dict[str, str], found: Comparison, code: ExitCode) -> dict[str, Any]:
    """The result as plain values, for ``--json``."""
    return {
        "schema": 1,
        "a": str(a),
        "b": str(b),
        "made_of": kinds,
        "within": within,
        "exit_code": int(code),
        "files": found.files,
        "bytes": found.size,
        "differences": [_record(gap) for gap in found.gaps],
        "not_listed": found.beyond,
        "passed_over": list(found.passed),
        "as_bytes": list(found.as_bytes),
    }


def _record(gap: Gap) -> dict[str, Any]:
    """A difference as plain values; ``apart`` is null where no number tells how far."""
    apart = gap.apart if math.isfinite(gap.apart) else None
    return {"file": gap.file, "name": gap.name, "kind": gap.kind, "apart": apart, "why": gap.why}


def _show(a: Path, b: Path, kinds: dict[str, str], found: Comparison, screen: Console) -> None:
    """Print what both are made of, the first differences, and what was passed over."""
    from rich.text import Text

    from scenarios.view import short

    for side, path in (("A", a), ("B", b)):
        screen.print(Text(f"{side}  {short(path)}: {kinds[side]}"), soft_wrap=True)
    if found.gaps:
        screen.print(_table(found.gaps))
    many = len(found.gaps) + found.beyond
    size = f"{found.files} file{'s' * (found.files != 1)}, {found.size / 1e6:,.1f} MB"
    verdict, colour = (f"{many} differ{'s' * (many == 1)}", "red") if many else ("equal", "green")
    more = f", the first {SHOWN} are shown (all: --json)" if many > SHOWN else ""
    screen.print(f"[bold {colour}]{verdict}[/]{more}: {size}", highlight=False)
    notes = {"passed over, for they tell of time or place": found.passed, "compared as bytes": found.as_bytes}
    for note, names in notes.items():
        if names:
            more = f", and {len(names) - 1} more" if len(names) > 1 else ""
            screen.print(Text(f"{note}: {names[0]}{more}"), soft_wrap=True)


def _table(gaps: tuple[Gap, ...]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from scenarios.view import WIDTH

    shown = gaps[:SHOWN]
    several = any(gap.file for gap in shown)
    table = Table(box=None, padding=(0, 2, 0, 0), width=WIDTH)
    for title in ["file"] * several + ["value"]:
        table.add_column(title, overflow="fold")
    table.add_column("difference", ratio=1, overflow="fold")
    for gap in shown:
        told = [gap.file] * several + [gap.name, f"{gap.kind}: {gap.why}" if gap.kind else gap.why]
        table.add_row(*map(Text, told))
    return table
