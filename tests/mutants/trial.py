"""Putting one program on trial: a real run with its fault, judged against a control run of its configuration."""

from __future__ import annotations

import time

import msgspec

from metrics.verdict import Judgement, Verdict
from tests.live.bench import Bench
from tests.mutants.catalogue import PROGRAMS, THEMES
from tests.mutants.outcome import Outcome
from tests.mutants.program import Mutant, Program


def told(judgement: Judgement) -> str:
    """Every finding on a line."""
    return "\n".join(f"{f.check} {f.verdict}: {f.seen}" for f in judgement.findings)


def named(judgement: Judgement, verdict: Verdict) -> list[str]:
    """Names of the checks with that verdict."""
    return [finding.check for finding in judgement.findings if finding.verdict is verdict]


def declared(outcome: Outcome) -> Outcome:
    """The outcome with what the catalogue declares of its program by now."""
    program = PROGRAMS[outcome.name]
    mutant = program if isinstance(program, Mutant) else None
    return msgspec.structs.replace(
        outcome,
        theme=next((theme for theme, found in THEMES.items() if program in found), ""),
        caught_by=mutant.caught_by if mutant else "",
        also=sorted(mutant.also) if mutant else [],
    )


def try_program(bench: Bench, program: Program) -> tuple[Outcome, str]:
    """Train, judge; the outcome, and every finding in words."""
    began = time.monotonic()
    request = program.trial.request_in(bench.folder)
    control = bench.control_of(request, program.name if program.own_control else "") if request.control else None
    recovers = request.scenario.recovers
    directory = bench.train(request, program.name, program=program.name, recovers=recovers)
    _, judgement = bench.judge(directory, control)
    outcome = Outcome(
        name=program.name,
        red=named(judgement, Verdict.FAIL),
        unknown=named(judgement, Verdict.UNKNOWN),
        exit_code=judgement.exit_code,
        seconds=time.monotonic() - began,
        directory=str(directory),
    )
    return declared(outcome), told(judgement)
