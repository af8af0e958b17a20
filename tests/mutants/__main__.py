"""``python -m tests.mutants``: every buggy trainer and every healthy variant, judged on real clusters."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from chaos.exits import ExitCode
from chaos.watch import Interrupted, interrupt_by_signals
from tests.live.bench import CONTROL, Bench, is_sound
from tests.mutants.catalogue import MUTANTS, PROGRAMS, SAMPLE
from tests.mutants.outcome import WIDTH, Outcome, keep, kept, show
from tests.mutants.program import Program
from tests.mutants.trial import declared, try_program


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(PROGRAMS), help="these programs")
    made.add_argument("--sample", action="store_true", help="the mutants that CI tries")
    made.add_argument("--list", action="store_true", help="name the programs and start nothing")
    made.add_argument("--out", type=Path, metavar="DIR", help="a new directory for runs and results")
    made.add_argument("--resume", type=Path, metavar="DIR", help="go on in the directory of an earlier call")
    return made


def asked(options: argparse.Namespace) -> list[Program]:
    """The programs to try, those of one cluster after each other."""
    names = options.only or (SAMPLE if options.sample else list(PROGRAMS))
    clusters = list(dict.fromkeys(PROGRAMS[name].trial.cluster for name in names))
    return sorted((PROGRAMS[name] for name in names), key=lambda program: clusters.index(program.trial.cluster))


def controls(directory: Path) -> dict[str, Path]:
    """The control runs that an earlier call has left, by what they serve for."""
    found = (path for path in directory.glob(f"cluster-*/*-{CONTROL}*") if is_sound(path))
    return {path.name.split(f"-{CONTROL}", 1)[1]: path for path in found}


def try_all(programs: Iterable[Program], directory: Path) -> Iterator[Outcome]:
    """The outcome of each program; one cluster for all in a row that can share it."""
    known = controls(directory)
    for _, group in itertools.groupby(programs, key=lambda program: program.trial.cluster):
        first, *others = group
        folder = directory / f"cluster-{len(list(directory.glob('cluster-*'))) + 1}"
        folder.mkdir()
        with Bench(folder, first.trial.request(), known) as bench:
            for program in (first, *others):
                yield _outcome(bench, program)


def _outcome(bench: Bench, program: Program) -> Outcome:
    """The outcome of a program; of one that cannot be tried, with the error."""
    try:
        return try_program(bench, program)[0]
    except Exception as error:
        return declared(Outcome(name=program.name, error=repr(error)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Try what is asked for; 0 when all is as declared, 1 when not, 6 when interrupted."""
    options = parser().parse_args(arguments)
    programs = asked(options)
    if options.list:
        print("\n".join(program.name for program in programs))
        return ExitCode.PASS
    os.environ.pop("RAY_ADDRESS", None)
    directory = (options.resume or options.out or Path("runs", time.strftime("%Y%m%d-%H%M%S-mutants"))).absolute()
    directory.mkdir(parents=True, exist_ok=options.resume is not None)
    names = {program.name for program in programs}
    done = {name: declared(one) for name, one in kept(directory).items() if name in names}
    interrupted = False
    interrupt_by_signals()
    try:
        left = [program for program in programs if program.name not in done]
        with contextlib.closing(try_all(left, directory)) as outcomes:
            for outcome in outcomes:
                keep(outcome, directory)
                done[outcome.name] = outcome
                told = "; ".join(filter(None, (outcome.verdict, outcome.rest)))
                print(f"[{len(done)}/{len(programs)}] {outcome.name}  {told}  {outcome.seconds:.0f} s", flush=True)
    except Interrupted:
        interrupted = True
    mutants = sum(program.name in MUTANTS for program in programs)
    print(f"\n{directory}")
    good = show(done.values(), mutants, len(programs) - mutants, Console(width=WIDTH))
    return ExitCode.ABORTED if interrupted else ExitCode.PASS if good else ExitCode.FAIL


if __name__ == "__main__":
    sys.exit(main())
