"""The command ``aftershock sweep checkpoint``: from its options to its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from chaos.exits import ExitCode, UsageError
from scenarios import asking, doctor, sweep_record
from scenarios.execute import execute
from scenarios.request import Options, resolve
from scenarios.sweep import SCENARIO, Sweep
from scenarios.view import Progress

NEEDS = ("strace", "ptrace")

TITLE = "sweep checkpoint: every point of a checkpoint's life, crashed one by one"


def run(options: Options, stages: Sequence[str], as_json: bool, quiet: bool) -> int:
    """Sweep, judge, tell; returns the exit code.

    Raises UsageError for options that cannot be run.
    """
    request = resolve(SCENARIO, options)
    lacking = [finding for finding in doctor.examine().findings if finding.name in NEEDS and finding.state != "ok"]
    why = "; ".join(f"{finding.name}: {finding.seen}; {finding.remedy}" for finding in lacking)

    def sweep() -> Path:
        with Progress(asking.console(stderr=as_json), TITLE, request.shape.steps, quiet) as progress:
            swept = Sweep(request, [progress], stages, why)
            return execute(request, [progress], stages=swept.stages)

    directory = asking.while_there_is_room(sweep)
    return directory if isinstance(directory, ExitCode) else tell(directory, as_json)


def tell(directory: Path, as_json: bool) -> int:
    """Judge a stored sweep, write down what was found, print it; returns the exit code.

    Raises UsageError when the directory cannot be judged.
    """
    try:
        record = sweep_record.make(directory)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise UsageError(f"{error}; name the directory of a sweep, such as one below runs/") from error
    written = asking.while_there_is_room(lambda: sweep_record.write(record, directory))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(record), indent=1).decode())
    else:
        sweep_record.show(record, directory, asking.console())
    return record.exit_code if written is None else written
