"""Every metric that is exported: name, type, help, labels; ``docs/metrics.md`` says when each is absent.

Names and units follow Prometheus' conventions: base units, ``_total`` for what only grows within a run, ``_ratio`` for
0 to 1. Values of labels are bounded by the catalogue of scenarios; the id of a run is an exemplar, never a label.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "aftershock_"


class Kind(StrEnum):
    """The types of metrics that there are here, by Prometheus' names."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Spec:
    """One metric. ``short``: its name without the prefix. ``buckets``: upper bounds of a histogram but infinity."""

    short: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """As Prometheus stores it."""
        return PREFIX + self.short


RECOVERY_BOUNDS = (1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1800.0)
"""Upper bounds for whole recoveries, seconds: the bounds that scenarios set are among them, so they compare exactly."""

PHASE_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Upper bounds for one phase of a recovery, seconds; 600 and 1800 are Ray's and torch's own time-outs."""

SAVE_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds for saving and verifying checkpoints, seconds."""


def _gauge(short: str, help: str, *labels: str) -> Spec:
    return Spec(short, Kind.GAUGE, help, labels)


def _counter(short: str, help: str, *labels: str) -> Spec:
    return Spec(short, Kind.COUNTER, help, labels)


def _histogram(short: str, help: str, buckets: tuple[float, ...], *labels: str) -> Spec:
    return Spec(short, Kind.HISTOGRAM, help, labels, buckets)


# The outcome of the last run of a scenario

VERDICT = _gauge("verdict", "1 for the verdict of the last run, 0 for the others.", "scenario", "verdict")
CHECK_PASSED = _gauge("check_passed", "1 if the check passed, 0 if it failed or could not tell.", "scenario", "check")
EXIT_CODE = _gauge("exit_code", "Exit code of the last run.", "scenario")
KNOWN_ISSUE = _gauge("known_issue", "1 if Ray or torch is known to do wrong in the scenario, else 0.", "scenario")
HEAL_ERRORS = _gauge("heal_errors", "Things that the last run made and that could not be undone.", "scenario")
LAST_RUN = _gauge("last_run_timestamp_seconds", "When the last run ended.", "scenario")
LAST_SUCCESS = _gauge(
    "last_success_timestamp_seconds", "When the last run ended, if its verdict was a pass.", "scenario"
)
BUILD_INFO = _gauge(
    "build_info",
    "1; the versions that the last run took place with.",
    "scenario",
    "aftershock",
    "ray",
    "torch",
    "python",
)

# What the faults did, and what it cost

FAULTS_ARMED = _counter("faults_armed_total", "Faults that were armed in the run.", "scenario", "fault")
FAULTS_FIRED = _counter("faults_fired_total", "Faults that fired in the run.", "scenario", "fault")
FAULTS_CONFIRMED = _counter("faults_confirmed_total", "Faults whose effect was seen in the run.", "scenario", "fault")
RESTARTS = _counter("restarts_total", "Restarts of the worker group in the run.", "scenario", "class")
BUDGET_SPENT = _gauge(
    "budget_spent", "Retries charged to a budget of the job, by Ray's name for it.", "scenario", "budget"
)
RECOVERY = _histogram(
    "recovery_seconds", "From the fault to the step count passed.", RECOVERY_BOUNDS, "scenario", "strategy", "fault"
)
RECOVERY_PHASE = _histogram(
    "recovery_phase_seconds", "Each phase of the recoveries.", PHASE_BOUNDS, "scenario", "strategy", "fault", "phase"
)
RECOVERY_BUDGET = _gauge("recovery_budget_seconds", "What the scenario allows a recovery to take.", "scenario")
DETECTION = _histogram(
    "detection_seconds",
    "From the fault to the controller's acting on it.",
    PHASE_BOUNDS,
    "scenario",
    "strategy",
    "fault",
)
LOST_STEPS = _counter("lost_steps_total", "Steps that had to be done again.", "scenario", "fault")
REPLAYED_SAMPLES = _counter("replayed_samples_total", "Samples trained on again.", "scenario", "fault")

# Checkpoints

CHECKPOINT_SAVE = _histogram(
    "checkpoint_save_seconds",
    "From a step complete on every rank to its checkpoint handed over by every rank.",
    SAVE_BOUNDS,
    "scenario",
    "strategy",
)
CHECKPOINT_COMMIT = _histogram(
    "checkpoint_commit_seconds",
    "From a step complete on every rank to its checkpoint counting.",
    SAVE_BOUNDS,
    "scenario",
    "strategy",
)
CHECKPOINT_VERIFY = _histogram(
    "checkpoint_verify_seconds", "Reading back and comparing all checkpoints kept.", SAVE_BOUNDS, "scenario", "strategy"
)
CHECKPOINT_BYTES = _gauge("checkpoint_bytes", "Size of the checkpoint committed last.", "scenario", "strategy")

# Where the time went

GOODPUT = _gauge("goodput_ratio", "Productive time of the job / its wall clock (ETTR).", "scenario", "strategy")
JOB_SECONDS = _gauge("job_seconds", "Where the life of the training script went.", "scenario", "bucket")
RUN_SECONDS = _gauge("run_seconds", "Where the wall clock of the run went.", "scenario", "part")
HARNESS_OVERHEAD = _gauge("harness_overhead_ratio", "The harness's own part of the run's wall clock.", "scenario")

# While a run goes on: only served

RUN_IN_PROGRESS = _gauge("run_in_progress", "1 while a run of the scenario goes on, else 0.", "scenario")
RUN_PHASE = _gauge("run_phase", "1 for the phase that the run is in, 0 for the others.", "scenario", "phase")
RUN_STEP = _gauge("run_step", "Last step that every rank of the latest attempt has completed.", "scenario")
RUN_TARGET_STEP = _gauge("run_target_step", "Step at which the training is done.", "scenario")
RUN_RESTARTS = _gauge("run_restarts", "Restarts of the worker group so far in the run.", "scenario")

# Suites

SUITE_SCENARIOS = _gauge("suite_scenarios", "Members of the suite by their verdict.", "suite", "verdict")
SUITE_EXIT_CODE = _gauge("suite_exit_code", "Exit code of the suite.", "suite")
SUITE_LAST_RUN = _gauge("suite_last_run_timestamp_seconds", "When the suite ended.", "suite")
SCENARIO_SKIPPED = _gauge("scenario_skipped", "1 for a member that this machine does not permit.", "suite", "scenario")

ALL = tuple(value for value in globals().values() if isinstance(value, Spec))
"""Every metric, in the order in which they are exported."""
