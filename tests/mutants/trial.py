"""Putting one trainer on trial: a real run with a kill, judged against the shared control run."""

from __future__ import annotations

from chaos.exits import ExitCode
from metrics.verdict import Judgement, Verdict
from tests.live.bench import Bench
from tests.mutants.catalogue import Mutant


def reds(judgement: Judgement) -> set[str]:
    """Names of the checks that failed."""
    return {finding.check for finding in judgement.findings if finding.verdict is Verdict.FAIL}


def told(judgement: Judgement) -> str:
    """Every finding on a line."""
    return "\n".join(f"{f.check} {f.verdict}: {f.seen}" for f in judgement.findings)


def is_caught(bench: Bench, mutant: Mutant) -> None:
    """The named check is red, and no other but those that the mutant declares."""
    directory = bench.train(bench.request(), mutant.name, mutant=mutant.name)
    _, judgement = bench.judge(directory)
    assert mutant.caught_by in reds(judgement), told(judgement)
    assert reds(judgement) - {mutant.caught_by} == mutant.also, told(judgement)
    assert judgement.exit_code is ExitCode.FAIL


def healthy_is_green(bench: Bench, name: str) -> None:
    """Every check passes, after one restart."""
    case, judgement = bench.judge(bench.train(bench.request(), name))
    assert all(finding.verdict is Verdict.PASS for finding in judgement.findings), told(judgement)
    assert judgement.exit_code is ExitCode.PASS
    assert len(case.attempts) == 2
