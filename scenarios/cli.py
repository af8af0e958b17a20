"""The command line: ``aftershock``."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chaos.exits import ExitCode, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from metrics.summary import Summary
    from scenarios.request import Options

RUN_EXAMPLES = """\b
Examples:
  aftershock run kill-worker
  aftershock run kill-worker --workers 3 --rank 2 --step 17 --json
  aftershock run kill-worker --set dropout=0 --set checkpoint_every=5
"""


class Group(click.Group):
    """Commands whose mistakes of the user's are one line and exit code 64."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command and exit with its code."""
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.exceptions.Exit as error:
            code = error.exit_code
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
            code = ExitCode.PASS
        except click.ClickException as error:
            click.echo(f"aftershock: {error.format_message()}", err=True)
            code = ExitCode.USAGE
        except UsageError as error:
            click.echo(f"aftershock: {error}", err=True)
            code = ExitCode.USAGE
        except (click.Abort, KeyboardInterrupt):
            click.echo("aftershock: interrupted", err=True)
            code = ExitCode.ABORTED
        except Exception as error:
            click.echo(f"{traceback.format_exc()}aftershock: a defect of the harness: {error!r}", err=True)
            code = ExitCode.BUG
        sys.exit(int(code or 0))


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="aftershock")
def cli() -> None:
    """Break a distributed training job on purpose, and prove with numbers that it came back whole."""


@cli.command(epilog=RUN_EXAMPLES)
@click.argument("scenario")
@click.option("--workers", type=int, help="Training workers, each on a node of its own.")
@click.option("--rank", type=int, help="Rank that the fault hits.")
@click.option("--step", type=int, help="The fault fires right after this step.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of weights, data order and dropout.")
@click.option("--out", default="runs", show_default=True, help="Where run directories are made.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON, progress to standard error.")
@click.option("--control/--no-control", default=True, show_default=True, help="Compare with a run without a fault.")
@click.option("--deadline", type=float, help="Longest life of a training script, s.  [default: 300, 60 more a fault]")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a value of the scenario or the trainer.")
@click.option("--quiet", is_flag=True, help="Print the result only.")
def run(scenario: str, out: str, as_json: bool, sets: tuple[str, ...], quiet: bool, **values: Any) -> int:
    """Run one SCENARIO and judge it. `aftershock list` shows what there is."""
    from scenarios.request import resolve

    request = resolve(scenario, _options(out=Path(out), settings=_settings(sets), **values))
    from chaos.version import untested
    from chaos.workload import check_own_chaos

    check_own_chaos()
    from scenarios.execute import FULL, StorageFailed, execute
    from scenarios.view import Progress

    for sentence in untested():
        click.echo(f"aftershock: warning: {sentence}", err=True)
    console = _console(stderr=as_json)
    title = f"{request.scenario.name}: {request.scenario.title}"
    try:
        with Progress(console, title, request.shape.steps, quiet) as progress:
            directory = execute(request, [progress])
            progress.phase("judge")
            summary = _judge(directory, fresh=True)
    except StorageFailed as error:
        click.echo(f"aftershock: {error}", err=True)
        return ExitCode.ABORTED
    except OSError as error:
        if error.errno not in FULL:
            raise
        click.echo(f"aftershock: the run is stored and healed, but not judged: {error}", err=True)
        return ExitCode.UNKNOWN
    _tell(summary, directory, as_json)
    return summary.exit_code


@cli.command()
@click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def analyze(directory: Path, as_json: bool) -> int:
    """Judge a stored RUN directory again, from its files alone."""
    summary = _judge(directory, fresh=False)
    _tell(summary, directory, as_json)
    return summary.exit_code


@cli.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_scenarios(as_json: bool) -> None:
    """List the scenarios."""
    from scenarios.scenario import all_scenarios

    known = all_scenarios().values()
    if as_json:
        import json

        click.echo(json.dumps([{"name": s.name, "title": s.title, "expects": s.expects} for s in known], indent=1))
        return
    width = max(len(s.name) for s in known)
    for s in known:
        click.echo(f"{s.name:<{width}}  {s.title}")


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def heal(as_json: bool) -> int:
    """Clean up after every dead harness; the runs of a living one are left alone."""
    import dataclasses
    import json

    from chaos.ledger import heal as heal_all

    done = heal_all()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(healing) for healing in done], indent=1))
    elif not done:
        click.echo("nothing to heal")
    for healing in done if not as_json else ():
        click.echo(f"run {healing.run_id}: {healing.action}" + "".join(f"\n  {error}" for error in healing.errors))
    return ExitCode.NOT_HEALED if any(healing.errors for healing in done) else ExitCode.PASS


def _options(**values: Any) -> Options:
    import pydantic

    from scenarios.request import Options

    try:
        return Options(**values)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"--{where} {first['input']}: {first['msg'].lower()}") from error


def _settings(sets: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text}: write --set KEY=VALUE")
        found[key.replace("-", "_")] = value
    return found


def _judge(directory: Path, fresh: bool) -> Summary:
    """Judge a run directory; a fresh run's history is told how long the judging took."""
    from metrics.publish import judge_run, publish, record_judged

    try:
        case, judgement = judge_run(directory)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise UsageError(f"{error}; name the directory of a run, such as one below runs/") from error
    if fresh:
        case = record_judged(case)
    return publish(case, judgement)


def _console(stderr: bool = False) -> Console:
    from scenarios.view import PatientConsole

    made = PatientConsole(stderr=stderr)
    if not made.is_terminal:
        made.width = 100
    return made


def _tell(summary: Summary, directory: Path, as_json: bool) -> None:
    from scenarios.view import show

    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(summary), indent=1).decode())
    else:
        show(summary, directory, _console())
