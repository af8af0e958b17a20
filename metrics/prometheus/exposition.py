"""A finished run, a suite of them, and one that goes on, put into families."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metrics.prometheus import catalogue as c
from metrics.prometheus.facts import Facts
from metrics.prometheus.families import Families, Observation
from metrics.verdict import Verdict

VERDICTS = (str(Verdict.PASS), str(Verdict.FAIL), str(Verdict.UNKNOWN))
PARTS = ("cluster_start", "workload", "control", "harness")
VERSIONS = ("aftershock", "ray", "torch", "python")


@dataclass(frozen=True, kw_only=True)
class SuiteFacts:
    """A suite that is over: its members by verdict, and those that the machine did not permit."""

    suite: str
    exit_code: int
    finished_s: float
    verdicts: Mapping[str, int]
    skipped: tuple[str, ...]


def put_run(facts: Facts, into: Families) -> None:
    """All that is known of a finished run; what is not known has no sample."""
    _put_outcome(facts, into)
    _put_faults(facts, into)
    _put_recoveries(facts, into)
    _put_checkpoints(facts, into)
    _put_times(facts, into)


def _put_outcome(facts: Facts, into: Families) -> None:
    summary, scenario = facts.summary, facts.summary.scenario
    into.states(c.VERDICT, VERDICTS, summary.verdict, "verdict", scenario=scenario)
    for check in (check for check in summary.checks if check.verdict != Verdict.NOT_APPLICABLE):
        into.put(c.CHECK_PASSED, check.verdict == Verdict.PASS, scenario=scenario, check=check.name)
    into.put(c.EXIT_CODE, summary.exit_code, scenario=scenario)
    into.put(c.KNOWN_ISSUE, bool(summary.known_issue), scenario=scenario)
    if facts.heal_errors is not None:
        into.put(c.HEAL_ERRORS, facts.heal_errors, scenario=scenario)
    into.put(c.LAST_RUN, facts.finished_s, scenario=scenario)
    if summary.verdict == Verdict.PASS:
        into.put(c.LAST_SUCCESS, facts.finished_s, scenario=scenario)
    versions = {name: summary.versions.get(name, "unknown") for name in VERSIONS}
    into.put(c.BUILD_INFO, 1, scenario=scenario, **versions)


def put_faults(faults: Mapping[str, Mapping[str, int]], scenario: str, into: Families) -> None:
    """How many faults were armed, fired and confirmed; the same of a finished run and of one that goes on."""
    counted = (("armed", c.FAULTS_ARMED), ("fired", c.FAULTS_FIRED), ("confirmed", c.FAULTS_CONFIRMED))
    for fault, counts in faults.items():
        for state, metric in counted:
            into.put(metric, counts.get(state, 0), scenario=scenario, fault=fault)


def _put_faults(facts: Facts, into: Families) -> None:
    scenario = facts.summary.scenario
    put_faults(facts.faults, scenario, into)
    for name, count in facts.restarts.items():
        into.put(c.RESTARTS, count, scenario=scenario, **{"class": name})
    for budget in facts.summary.budgets:
        into.put(c.BUDGET_SPENT, budget.spent, scenario=scenario, budget=budget.name)


def _put_recoveries(facts: Facts, into: Families) -> None:
    """Only whole recoveries have a length; the controller's acting on a fault may be known of others, too."""
    run, scenario, strategy = facts.summary.run, facts.summary.scenario, facts.strategy
    for fault, seconds in facts.detections:
        told = Observation(seconds, run, facts.finished_s)
        into.observe(c.DETECTION, told, scenario=scenario, strategy=strategy, fault=fault)
    steps: dict[str, int] = {}
    samples: dict[str, int] = {}
    for recovery in (recovery for recovery in facts.summary.recoveries if not recovery.missing):
        labels = {"scenario": scenario, "strategy": strategy, "fault": recovery.fault}
        into.observe(c.RECOVERY, Observation(recovery.total_s, run, facts.finished_s), **labels)
        for phase in recovery.phases:
            told = Observation(phase.seconds, run, facts.finished_s)
            into.observe(c.RECOVERY_PHASE, told, phase=phase.name, **labels)
        for sums, lost in ((steps, recovery.lost_steps), (samples, recovery.lost_samples)):
            if lost is not None:
                sums[recovery.fault] = sums.get(recovery.fault, 0) + lost
    for metric, sums in ((c.LOST_STEPS, steps), (c.REPLAYED_SAMPLES, samples)):
        for fault, lost in sums.items():
            into.put(metric, lost, scenario=scenario, fault=fault)
    if facts.budget_s is not None:
        into.put(c.RECOVERY_BUDGET, facts.budget_s, scenario=scenario)


def _put_checkpoints(facts: Facts, into: Families) -> None:
    labels = {"scenario": facts.summary.scenario, "strategy": facts.strategy}
    verified = () if facts.verifying_s is None else (facts.verifying_s,)
    measured = ((c.CHECKPOINT_SAVE, facts.saves), (c.CHECKPOINT_COMMIT, facts.commits), (c.CHECKPOINT_VERIFY, verified))
    for metric, times in measured:
        for seconds in times:
            into.observe(metric, Observation(seconds, facts.summary.run, facts.finished_s), **labels)
    if facts.checkpoint_bytes is not None:
        into.put(c.CHECKPOINT_BYTES, facts.checkpoint_bytes, **labels)


def _put_times(facts: Facts, into: Families) -> None:
    time, scenario = facts.summary.time, facts.summary.scenario
    if time.wall_s:
        for part in PARTS:
            into.put(c.RUN_SECONDS, getattr(time, f"{part}_s"), scenario=scenario, part=part)
        into.put(c.HARNESS_OVERHEAD, time.harness_share, scenario=scenario)
    if goodput := facts.summary.goodput:
        into.put(c.GOODPUT, goodput.share, scenario=scenario, strategy=facts.strategy)
        for bucket, seconds in goodput.seconds.items():
            into.put(c.JOB_SECONDS, seconds, scenario=scenario, bucket=bucket)


def put_suite(facts: SuiteFacts, into: Families) -> None:
    """What only the suite as a whole knows."""
    for verdict, count in facts.verdicts.items():
        into.put(c.SUITE_SCENARIOS, count, suite=facts.suite, verdict=verdict)
    into.put(c.SUITE_EXIT_CODE, facts.exit_code, suite=facts.suite)
    into.put(c.SUITE_LAST_RUN, facts.finished_s, suite=facts.suite)
    for scenario in facts.skipped:
        into.put(c.SCENARIO_SKIPPED, 1, suite=facts.suite, scenario=scenario)
