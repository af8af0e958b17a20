"""``metrics.prom``: the numbers of one run in Prometheus' text format, for node_exporter's textfile collector."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from metrics.summary import Summary


def write(summary: Summary, finished_s: float, path: Path) -> None:
    """Write the metrics of a run that finished at a time (seconds since the epoch)."""
    write_to_textfile(str(path), registry(summary, finished_s))


def registry(summary: Summary, finished_s: float) -> CollectorRegistry:
    """The metrics of a run; labels are bounded: scenario, fault, phase, verdict, check, part, bucket."""
    made = CollectorRegistry()
    scenario = summary.scenario

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"aftershock_{name}", text, ["scenario", *labels], registry=made)

    verdict = gauge("verdict", "1 for the verdict of the last run, 0 for the others.", "verdict")
    for word in ("pass", "fail", "unknown"):
        verdict.labels(scenario, word).set(summary.verdict == word)
    checks = gauge("check_passed", "1 if the check passed, 0 if it failed or could not tell.", "check")
    for check in (c for c in summary.checks if c.verdict != "not-applicable"):
        checks.labels(scenario, check.name).set(check.verdict == "pass")
    gauge("exit_code", "Exit code of the last run.").labels(scenario).set(summary.exit_code)
    gauge("restarts", "Restarts of the worker group.").labels(scenario).set(summary.restarts)
    budgets = gauge("budget_spent", "Retries charged to a budget of the job, by Ray's name for it.", "budget")
    for budget in summary.budgets:
        budgets.labels(scenario, budget.name).set(budget.spent)
    gauge("last_run_timestamp_seconds", "When the last run ended.").labels(scenario).set(finished_s)
    phases = gauge("recovery_phase_seconds", "Time of each phase of the last recovery.", "fault", "phase")
    total = gauge("recovery_seconds", "Time from the fault to the step count passed.", "fault")
    steps = gauge("lost_steps", "Steps that had to be done again.", "fault")
    samples = gauge("lost_samples", "Samples trained on again.", "fault")
    for recovery in (r for r in summary.recoveries if not r.missing):
        total.labels(scenario, recovery.fault).set(recovery.total_s)
        steps.labels(scenario, recovery.fault).set(recovery.lost_steps or 0)
        samples.labels(scenario, recovery.fault).set(recovery.lost_samples or 0)
        for phase in recovery.phases:
            phases.labels(scenario, recovery.fault, phase.name).set(phase.seconds)
    time = gauge("run_seconds", "Where the wall clock of the run went.", "part")
    for part in ("cluster_start", "workload", "control", "harness"):
        time.labels(scenario, part).set(getattr(summary.time, f"{part}_s"))
    if summary.goodput:
        gauge("goodput_ratio", "Productive time of the job / its wall clock (ETTR).").labels(scenario).set(
            summary.goodput.share
        )
        job = gauge("job_seconds", "Where the life of the training script went.", "bucket")
        for bucket, seconds in summary.goodput.seconds.items():
            job.labels(scenario, bucket).set(seconds)
    return made
