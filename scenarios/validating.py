"""The command ``aftershock validate``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from chaos.exits import ExitCode

EXAMPLES = """\b
Examples:
  aftershock validate my_scenario.py
  aftershock validate tests/my_fault.py tests/my_check.py --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def validate(files: tuple[Path, ...], as_json: bool) -> int:
    """Find every mistake in FILEs of your own.

    Scenarios, faults and checks are read, and loaded where their text is sound; nothing is run.
    """
    from scenarios import soundness

    found = soundness.problems(files)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(problem) for problem in found], indent=1))
    else:
        for line in found or map(soundness.defines, files):
            click.echo(str(line))
        if found:
            click.echo(f"{len(found)} problem{'s' * (len(found) != 1)}")
    return ExitCode.USAGE if found else ExitCode.PASS
