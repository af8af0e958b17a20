"""What a run comes to, in one record: ``verdict.json``, and the source of terminal, report and exporters."""

from __future__ import annotations

from typing import Any

import msgspec

from chaos.agent.plan import Injection
from chaos.history import Event, History
from metrics.attempts import effective_steps
from metrics.budgets import budgets, tally
from metrics.continuity import consumed
from metrics.goodput import goodput
from metrics.recovery import RESOLUTION_S, Recovery, recoveries
from metrics.verdict import Case, Finding, Judgement

SCHEMA = 1


class PhaseTime(msgspec.Struct, frozen=True):
    """One phase of a recovery: seconds, what limits their exactness, and the rank that was last, where it takes all."""

    name: str
    seconds: float
    resolution: str
    rank: int | None = None


class RecoveryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One recovery. ``missing``: the phase whose end was never seen, empty when the recovery is whole.

    ``cause``: the error that the controller acted on. ``first_step_s``: from the fault to a step complete on every
    rank; ``usual_step_s``: to steps that take their usual time again.
    """

    injection: str
    fault: str
    rank: int
    step: int
    phase: str
    total_s: float
    phases: list[PhaseTime]
    missing: str
    step_before: int
    resume_step: int | None
    lost_steps: int | None
    lost_samples: int | None
    cause: str = ""
    first_step_s: float | None = None
    usual_step_s: float | None = None


class InjectionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One injection: what was asked for, and the evidence of its effect, empty where none was seen."""

    id: str
    fault: str
    target: str
    when: str
    evidence: str


class TimeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where the wall-clock time of the run went, in seconds; the parts sum to the whole.

    ``harness_s``: all that is neither cluster start nor a training script's life.
    """

    wall_s: float
    cluster_start_s: float
    workload_s: float
    control_s: float
    harness_s: float

    @property
    def harness_share(self) -> float:
        """The harness's own part of the wall clock, 0 to 1."""
        return self.harness_s / self.wall_s if self.wall_s else 0.0


class GoodputRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where the life of the training script went; the buckets sum to ``wall_s``.

    ``share``: productive time / wall-clock time (ETTR). ``rank_seconds_lost``: time that was not, times the ranks.
    """

    wall_s: float
    share: float
    rank_seconds_lost: float
    seconds: dict[str, float]


class BudgetRecord(msgspec.Struct, frozen=True):
    """A budget for one class of errors, by Ray's name: retries charged to it, and how many it allows; -1 for any."""

    name: str
    spent: int
    allowed: int | None


class CheckRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One check's answer."""

    name: str
    verdict: str
    expected: str
    seen: str
    where: str
    evidence: dict[str, Any]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The record of ``verdict.json``."""

    schema: int
    run: str
    scenario: str
    title: str
    verdict: str
    exit_code: int
    reason: str
    seed: int
    workers: int
    steps: int
    expect: str
    restarts: int
    injections: list[InjectionRecord]
    recoveries: list[RecoveryRecord]
    checks: list[CheckRecord]
    time: TimeRecord
    goodput: GoodputRecord | None = None
    budgets: list[BudgetRecord] = []
    repeat: str
    known_issue: str
    versions: dict[str, str]


def summarize(case: Case, judgement: Judgement) -> Summary:
    """Gather what was found about a stored run."""
    record = case.record
    return Summary(
        schema=SCHEMA,
        run=record.run,
        scenario=record.scenario,
        title=record.title,
        verdict=str(judgement.verdict),
        exit_code=int(judgement.exit_code),
        reason=judgement.reason,
        seed=record.seed,
        workers=record.workers,
        steps=record.steps,
        expect=record.expect,
        restarts=tally(case).restarts,
        injections=_injections(case),
        recoveries=[_recovery(case, recovery) for recovery in recoveries(case)],
        checks=[check_record(finding) for finding in judgement.findings],
        time=time_record(case),
        goodput=_goodput(case),
        budgets=[BudgetRecord(budget.name, budget.spent, budget.allowed) for budget in budgets(case)],
        repeat=record.command,
        known_issue=record.known_issue,
        versions=record.versions,
    )


def _goodput(case: Case) -> GoodputRecord | None:
    found = goodput(case)
    if found is None:
        return None
    return GoodputRecord(
        wall_s=found.wall_ns / 1e9,
        share=found.share,
        rank_seconds_lost=found.rank_seconds_lost,
        seconds=found.seconds,
    )


def check_record(finding: Finding) -> CheckRecord:
    """A finding as it is stored and shown."""
    return CheckRecord(
        name=finding.check,
        verdict=str(finding.verdict),
        expected=finding.expected,
        seen=finding.seen,
        where=finding.where,
        evidence=finding.evidence,
    )


def _injections(case: Case) -> list[InjectionRecord]:
    confirmed = {e.data.get("injection"): str(e.data.get("evidence")) for e in case.history.select("fault.confirmed")}
    asked = map(Injection.of, case.record.injections)
    return [
        InjectionRecord(id=i.id, fault=i.fault, target=i.where, when=str(i.trigger), evidence=confirmed.get(i.id, ""))
        for i in asked
    ]


def _recovery(case: Case, recovery: Recovery) -> RecoveryRecord:
    fired = recovery.fired[0]
    return RecoveryRecord(
        injection=recovery.injection,
        fault=str(fired.data.get("fault")),
        rank=fired.rank or 0,
        step=fired.step or 0,
        phase=str(fired.data.get("phase", "step")),
        total_s=recovery.total_s,
        phases=[PhaseTime(p.name, p.seconds, RESOLUTION_S[p.name], p.rank) for p in recovery.phases],
        missing=recovery.missing,
        step_before=recovery.before,
        resume_step=recovery.resumed,
        lost_steps=recovery.lost_steps,
        lost_samples=_lost_samples(case, recovery),
        cause=recovery.cause,
        first_step_s=recovery.since_s(recovery.stepped_ns),
        usual_step_s=recovery.since_s(recovery.usual_ns),
    )


def _lost_samples(case: Case, recovery: Recovery) -> int | None:
    """Samples trained on before the fault and again after it, over all ranks of the group that it hit."""
    if recovery.resumed is None:
        return None
    until = [attempt for attempt in case.attempts if attempt.number <= recovery.attempt]
    events = [e for found in effective_steps(until).values() for e in found if (e.step or 0) > recovery.resumed]
    return consumed(events)


def time_record(case: Case) -> TimeRecord:
    """Where the wall clock went, from the history's own events."""
    history = case.history
    end = history.first("run.judged") or history.first("run.end")
    start = history.first("run.start")
    if start is None or end is None:
        return TimeRecord(wall_s=0.0, cluster_start_s=0.0, workload_s=0.0, control_s=0.0, harness_s=0.0)
    wall = end.wall - float(start.data.get("process_started", start.wall))
    cluster = _span(history.first("cluster.node.start"), history.first("cluster.up"))
    own = case.control is not None and history.first("control.shared") is None
    workload, control = _life(history), _life(case.control) if case.control and own else 0.0
    return TimeRecord(
        wall_s=wall,
        cluster_start_s=cluster,
        workload_s=workload,
        control_s=control,
        harness_s=wall - cluster - workload - control,
    )


def _life(history: History) -> float:
    return _span(history.first("workload.start"), history.first("workload.exit"))


def _span(begin: Event | None, end: Event | None) -> float:
    return end.wall - begin.wall if begin and end else 0.0
