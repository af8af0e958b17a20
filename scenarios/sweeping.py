"""The command ``aftershock sweep checkpoint``: from its options to its exit code."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from chaos.exits import ExitCode
from scenarios import asking, doctor, sweep_record
from scenarios.execute import StorageFailed, execute
from scenarios.request import Options, resolve
from scenarios.sweep import SCENARIO, Sweep
from scenarios.view import Progress

NEEDS = ("strace", "ptrace")


def run(options: Options, stages: Sequence[str], as_json: bool, quiet: bool) -> int:
    """Sweep, judge, tell; returns the exit code.

    Raises UsageError for options that cannot be run.
    """
    request = resolve(SCENARIO, options)
    lacking = [finding for finding in doctor.examine().findings if finding.name in NEEDS and finding.state != "ok"]
    why = "; ".join(f"{finding.name}: {finding.seen}; {finding.remedy}" for finding in lacking)
    title = "sweep checkpoint: every point of a checkpoint's life, crashed one by one"
    try:
        with Progress(asking.console(stderr=as_json), title, request.shape.steps, quiet) as progress:
            swept = Sweep(request, [progress], stages, why)
            directory = execute(request, [progress], stages=swept.stages)
            progress.phase("judge")
            shape = request.shape
            record = sweep_record.make(directory, shape.workers, shape.steps, shape.checkpoint_every)
    except StorageFailed as error:
        click.echo(f"aftershock: {error}", err=True)
        return ExitCode.ABORTED
    sweep_record.write(record, directory)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(record), indent=1).decode())
    else:
        sweep_record.show(record, directory, asking.console())
    return record.exit_code
