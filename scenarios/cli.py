"""The command line: ``aftershock``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chaos.exits import ExitCode, UsageError
from scenarios import asking, telling
from scenarios.group import Group

if TYPE_CHECKING:
    from metrics.summary import Summary
    from scenarios.request import Request
    from scenarios.testbed import Pool

RUN_EXAMPLES = """\b
Examples:
  aftershock run kill-worker
  aftershock run kill-worker --workers 3 --rank 2 --step 17 --json
  aftershock run kill-worker --set dropout=0 --set checkpoint_every=5
  aftershock run hang-frozen --expect 'recovers(within=60) & loses(steps<=10)'
  aftershock run kill-two-at-once --seed 7 --dry-run
  aftershock run kill-worker segfault hang-frozen
  aftershock run preprod --out out/preprod --resume
  aftershock run --inject 'kill; at_step(25); Rank(1)'
  aftershock run kill-worker -- python train.py --epochs 3
  aftershock run preprod --serve-metrics 9464 --push http://127.0.0.1:9091
"""

LISTS = ("scenarios", "faults", "triggers", "targets", "expectations")

LIST_EXAMPLES = """\b
Examples:
  aftershock list
  aftershock list faults
  aftershock list expectations --json
"""

PRUNE_EXAMPLES = """\b
Examples:
  aftershock prune --dry-run
  aftershock prune --keep 3
  aftershock prune --out /data/runs --keep 0 --json
"""

SWEEP_EXAMPLES = """\b
Examples:
  aftershock sweep checkpoint
  aftershock sweep checkpoint --stage transfer --stage snapshot --json
  aftershock sweep checkpoint --workers 3 --set save=asynchronous
"""

STAGES = ("save", "transfer", "report", "snapshot", "retention")
"""What happens to a checkpoint, in order; the last two in the controller."""

VERIFY_EXAMPLES = """\b
Examples:
  aftershock verify runs/<run>/storage/<experiment>/checkpoint_<n>
  aftershock verify /data/step_9000 --world-sizes 16 --json
  aftershock verify /data/step_9000 --record step_9000.json
  aftershock verify /copy/step_9000 --against step_9000.json
"""

LATER: dict[str, str] = {
    "compare": "scenarios.comparing",
    "config": "scenarios.configured",
    "diff": "scenarios.differing",
    "new": "scenarios.starting",
    "observability": "scenarios.observability",
    "plan": "scenarios.planning",
    "trend": "scenarios.trending",
    "validate": "scenarios.validating",
}
"""Commands in modules of their own: the attribute of that name there is the command."""


@click.group(cls=Group, later=LATER, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="aftershock")
def cli() -> None:
    """Break a distributed training job on purpose, and prove with numbers that it came back whole."""


@cli.command(epilog=RUN_EXAMPLES, cls=asking.WithScript)
@click.argument("names", metavar="SCENARIO... [-- COMMAND]", nargs=-1)
@asking.injections
@click.option("--workers", type=int, help="Training workers, each on a node of its own.")
@click.option("--nodes", type=int, help="Nodes of the cluster.  [default: as many as the workers need]")
@click.option("--cpus-per-node", type=int, help="CPUs of each, for a COMMAND of your own.  [default: 2 or more]")
@click.option("--rank", type=int, help="Rank that the fault hits.")
@click.option("--step", type=int, help="The fault fires right after this step.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of training and of random targets.")
@click.option("--expect", default="", metavar="TEXT", help="Bounds of your own, such as 'recovers(within=60)'.")
@click.option("--out", default="runs", show_default=True, help="Where run directories are made.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON, progress to standard error.")
@click.option("--control/--no-control", default=None, help="Compare with a run without a fault.  [default: control]")
@click.option("--deadline", type=float, help="Longest life of a training script, s.  [default: 300, 60 more a fault]")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a value of the scenario or the trainer.")
@click.option("--dry-run", is_flag=True, help="Show the resolved plan and its blast radius; touch nothing.")
@click.option(
    "--resume", is_flag=True, help="Go on with the newest run of this suite below --out that was interrupted."
)
@click.option("--share/--no-share", default=True, help="A suite's members share clusters and control runs.  [default]")
@click.option("--strict/--no-strict", help="What is skipped or not applicable makes the outcome unknown.")
@asking.from_files
@click.option("--quiet", is_flag=True, help="Print the result only.")
@telling.options
def run(
    names: tuple[str, ...],
    out: str,
    as_json: bool,
    sets: tuple[str, ...],
    quiet: bool,
    dry_run: bool,
    resume: bool,
    share: bool,
    **values: Any,
) -> int:
    """Run one SCENARIO, several, or a suite of them, and judge. `aftershock list scenarios` shows what there is.

    A SCENARIO may be a file of your own; FILE::NAME is one of several there. The reference trainer is broken, or, as it
    is, the Ray Train script that COMMAND starts.
    """
    from scenarios import extensions, preview
    from scenarios.request import resolver

    options = asking.options(out=Path(out), settings=asking.settings(sets), **values)
    extensions.gather(options.sources)
    chosen = extensions.members(names, options.inject)
    resolve = resolver(asking.script())
    requests = [replace(resolve(one, options), asked=names) for one in chosen.scenarios]
    if resume and not chosen.suite:
        raise UsageError(f"--resume: {' '.join(names)} is a single scenario; only a suite can be resumed")
    if dry_run:
        return preview.tell(requests, as_json)
    from chaos.version import untested
    from chaos.workload import check_own_chaos

    check_own_chaos()
    for sentence in untested():
        click.echo(f"aftershock: warning: {sentence}", err=True)
    telling.begin()
    if chosen.suite:
        return _run_suite(chosen.suite, requests, as_json, quiet, resume, share)
    from scenarios.doctor import require

    require(requests[0].scenario)
    outcome = _run_one(requests[0], as_json, quiet)
    if isinstance(outcome, ExitCode):
        return outcome
    summary, directory = outcome
    _tell(summary, directory, as_json)
    return summary.exit_code


def _run_one(request: Request, as_json: bool, quiet: bool, pool: Pool | None = None) -> tuple[Summary, Path] | ExitCode:
    """Run and judge one scenario; a code where there is nothing to show."""
    from scenarios import scripts
    from scenarios.execute import execute
    from scenarios.view import Progress

    title = f"{request.scenario.name}: {request.scenario.title}"

    def run_and_judge() -> tuple[Summary, Path]:
        show = Progress(asking.console(stderr=as_json), title, request.known_steps, quiet)
        with telling.current().of(request) as told, show as progress:
            stages = scripts.STAGES if request.program.script else None
            directory = execute(request, [progress, told], pool, stages)
            progress.phase("judge")
            return told.judged(_judge(directory, fresh=True), directory)

    return asking.while_there_is_room(run_and_judge)


def _run_suite(name: str, requests: list[Request], as_json: bool, quiet: bool, resume: bool, share: bool) -> int:
    from scenarios import suite
    from scenarios.doctor import lacking

    out, asked = requests[0].options.out, [request.scenario.name for request in requests]
    told = requests[0].options.model_dump(mode="json", exclude={"out"})
    options = {**told, "share": share, "script": list(requests[0].program.script) or None}
    before = None
    if resume:
        directory, before = suite.to_resume(out, name, options, asked)
    else:
        directory = suite.make_directory(out, name)
    under_way = suite.SuiteRun(
        name,
        requests,
        lambda request, pool: _run_one(request, as_json, quiet, pool),
        directory,
        options,
        share,
        before,
        lacking([request.scenario for request in requests]),
    )
    record = under_way.run()
    telling.current().finish_suite(record)
    if as_json:
        import msgspec

        told = {**msgspec.to_builtins(record), "spent": msgspec.to_builtins(record.spent)}
        click.echo(json.dumps(told, indent=1))
    else:
        suite.show(record, directory, asking.console())
    return record.exit_code


@cli.command(epilog=SWEEP_EXAMPLES, cls=asking.Configured)
@click.argument("what", type=click.Choice(["checkpoint"]))
@click.option("--stage", "stages", multiple=True, type=click.Choice(STAGES), help="Crash only there.  [default: all]")
@click.option("--workers", type=int, help="Training workers, each on a node of its own.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of training.")
@click.option("--out", default="runs", show_default=True, help="Where the run directory is made.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a value of the sweep or of the trainer.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON, progress to standard error.")
@click.option("--quiet", is_flag=True, help="Print the result only.")
def sweep(
    what: str, stages: tuple[str, ...], out: str, sets: tuple[str, ...], as_json: bool, quiet: bool, **values: Any
) -> int:
    """Crash the job at every point of a CHECKPOINT's life, one by one, and tell what it resumed from."""
    from chaos.workload import check_own_chaos
    from scenarios import sweeping

    options = asking.options(out=Path(out), settings=asking.settings(sets), **values)
    check_own_chaos()
    return sweeping.run(options, stages or STAGES, as_json, quiet)


@cli.command()
@click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--expect", default="", metavar="TEXT", help="Bounds of your own, such as 'recovers(within=60)'.")
@asking.from_files
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def analyze(directory: Path, expect: str, as_json: bool, sources: tuple[Path, ...]) -> int:
    """Judge a stored RUN directory again, from its files alone."""
    from scenarios import extensions, sweep_record, sweeping

    if sweep_record.is_sweep(directory):
        if expect:
            raise UsageError(f"--expect {expect}: {directory} is a sweep, of which nothing else can be expected")
        return sweeping.tell(directory, as_json)
    extensions.of_run(directory, sources)
    summary = _judge(directory, fresh=False, expect=expect)
    _tell(summary, directory, as_json)
    return summary.exit_code


@cli.command(epilog=VERIFY_EXAMPLES)
@click.argument("folder", metavar="CHECKPOINT", type=click.Path(path_type=Path))
@click.option(
    "--world-sizes",
    "worlds",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Largest group whose loading is tried.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Digests to compare with.  [default: those of the run it lies in]",
)
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="FILE", help="Write the digests of a sound checkpoint."
)
@click.option("--strict", is_flag=True, help="Digests that nobody recorded make the verdict unknown.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def verify(as_json: bool, **values: Any) -> int:
    """Verify a CHECKPOINT of torch.distributed.checkpoint from its files alone; nothing in it is executed."""
    from scenarios import verification

    asked = verification.Asked(**values)
    found, seconds = verification.run(asked, asking.console(stderr=True))
    if as_json:
        click.echo(json.dumps(verification.told(asked, found, seconds), indent=1))
    else:
        verification.show(asked, found, seconds, asking.console())
    return verification.exit_code(found, asked.strict)


@cli.command(name="list", epilog=LIST_EXAMPLES)
@click.argument("what", type=click.Choice(LISTS), default="scenarios")
@asking.from_files
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_(what: str, as_json: bool, sources: tuple[Path, ...]) -> None:
    """List the scenarios, or what a scenario is made of."""
    from scenarios import catalogue, extensions

    extensions.gather(sources)
    items = catalogue.items(what)
    if as_json:
        click.echo(json.dumps(items, indent=1))
    else:
        catalogue.show(items, asking.console())


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def doctor(as_json: bool) -> int:
    """Say what this machine permits, and which scenarios that costs."""
    from scenarios.doctor import examine
    from scenarios.view import show_diagnosis

    found = examine()
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    else:
        show_diagnosis(found, asking.console())
    return ExitCode.PASS if found.well else ExitCode.FAIL


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def status(as_json: bool) -> None:
    """Show what is in place on this machine: runs, their processes, what a dead harness has left."""
    import dataclasses

    from chaos.healing import status as look
    from scenarios.view import show_status

    found = look()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(run) for run in found], indent=1))
    else:
        show_status(found, asking.console())


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def heal(as_json: bool) -> int:
    """Clean up after every dead harness; the runs of a living one are left alone."""
    import dataclasses

    from chaos.healing import heal as heal_all

    done = heal_all()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(healing) for healing in done], indent=1))
    elif not done:
        click.echo("nothing to heal")
    for healing in done if not as_json else ():
        click.echo(f"run {healing.run_id}: {healing.action}" + "".join(f"\n  {error}" for error in healing.errors))
    return ExitCode.NOT_HEALED if any(healing.errors for healing in done) else ExitCode.PASS


@cli.command(epilog=PRUNE_EXAMPLES, cls=asking.Configured)
@click.option("--out", default="runs", show_default=True, help="Where the run directories are.")
@click.option(
    "--keep", type=click.IntRange(min=0), default=10, show_default=True, help="Passed runs of each name to keep."
)
@click.option("--dry-run", is_flag=True, help="Show what would go; touch nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def prune(out: str, keep: int, dry_run: bool, as_json: bool) -> int:
    """Remove old run directories: the newest of each scenario or suite stay, and all that did not pass."""
    from scenarios import prune as pruning

    done = pruning.prune(Path(out), keep, dry_run=dry_run)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(done), indent=1).decode())
    else:
        pruning.show(done, asking.console())
    for fate in done.failed:
        click.echo(f"aftershock: {fate.directory} could not be removed: {fate.reason}", err=True)
    return ExitCode.FAIL if done.failed else ExitCode.PASS


def _judge(directory: Path, fresh: bool, expect: str = "") -> Summary:
    """Judge a run directory; a fresh run's history is told how long the judging took."""
    from metrics.expectations import parse
    from metrics.publish import judge_run, publish, record_judged

    try:
        case, judgement = judge_run(directory, parse(expect) if expect else None)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise UsageError(f"{error}; name the directory of a run, such as one below runs/") from error
    if fresh:
        case = record_judged(case, judgement)
    return publish(case, judgement)


def _tell(summary: Summary, directory: Path, as_json: bool) -> None:
    from scenarios.view import show

    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(summary), indent=1).decode())
    else:
        show(summary, directory, asking.console())
