"""``metrics.prom``, parsed as Prometheus parses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from metrics import prometheus
from metrics.expectations import UNDISTURBED
from metrics.recovery import PHASES
from metrics.summary import Summary, summarize
from tests.histories import Run, faulty, healthy
from tests.stories import Hit

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def written(run: Run, directory: Path) -> tuple[Summary, Samples]:
    found = summarize(run.case(), run.judged())
    prometheus.write(found, 1234.5, directory / "metrics.prom")
    families = text_string_to_metric_families((directory / "metrics.prom").read_text())
    samples = [sample for family in families for sample in family.samples]
    return found, {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def at(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"aftershock_{name}", frozenset({"scenario": "kill-worker", **labels}.items())]


def named(samples: Samples, name: str) -> list[float]:
    return [value for (found, _), value in samples.items() if found == f"aftershock_{name}"]


@pytest.mark.parametrize(
    ("word", "run"),
    [
        ("pass", healthy()),
        ("fail", healthy().change("workload.exit", code=1)),
        ("unknown", healthy().with_control(None)),
    ],
)
def test_exactly_one_verdict_is_set(word: str, run: Run, tmp_path: Path) -> None:
    found, samples = written(run, tmp_path)
    verdicts = {verdict: at(samples, "verdict", verdict=verdict) for verdict in ("pass", "fail", "unknown")}
    assert verdicts == {verdict: float(verdict == word) for verdict in verdicts}
    assert at(samples, "exit_code") == found.exit_code


def test_a_recovery_is_exported_with_its_phases_and_cost(tmp_path: Path) -> None:
    found, samples = written(healthy(), tmp_path)
    (recovery,) = found.recoveries
    phases = [at(samples, "recovery_phase_seconds", fault="kill", phase=phase) for phase in PHASES]
    assert phases == [phase.seconds for phase in recovery.phases]
    assert at(samples, "recovery_seconds", fault="kill") == recovery.total_s
    assert sum(phases) == pytest.approx(recovery.total_s, abs=1e-3)
    assert at(samples, "lost_steps", fault="kill") == 2
    assert at(samples, "lost_samples", fault="kill") == 16
    assert at(samples, "restarts") == 1


def test_of_two_recoveries_the_last_is_exported(tmp_path: Path) -> None:
    _, samples = written(healthy(kills=((1, 6), (0, 11))), tmp_path)
    assert at(samples, "lost_steps", fault="kill") == 3


def test_two_faults_in_one_attempt_are_one_recovery_by_the_name_of_the_first(tmp_path: Path) -> None:
    _, samples = written(faulty((Hit(1, 6, fault="exit"), Hit(0, phase="teardown"))), tmp_path)
    assert at(samples, "lost_steps", fault="exit") == 2
    assert len(named(samples, "recovery_seconds")) == 1


def test_a_disturbance_exports_no_recovery(tmp_path: Path) -> None:
    _, samples = written(faulty((Hit(1, 6, fault="delay"),), expects=UNDISTURBED), tmp_path)
    assert named(samples, "recovery_seconds") == []
    assert at(samples, "restarts") == 0
    assert at(samples, "verdict", verdict="pass") == 1


def test_a_recovery_that_never_ended_exports_no_time(tmp_path: Path) -> None:
    _, samples = written(healthy().until("fault.confirmed"), tmp_path)
    assert named(samples, "recovery_seconds") == []
    assert named(samples, "recovery_phase_seconds") == []


def test_each_check_is_one_if_it_passed_and_else_zero(tmp_path: Path) -> None:
    found, samples = written(healthy().with_control(None), tmp_path)
    told = {check.name: at(samples, "check_passed", check=check.name) for check in found.checks}
    assert told == {check.name: float(check.verdict == "pass") for check in found.checks}
    assert told["trajectory"] == 0.0


def test_a_check_that_does_not_apply_is_not_exported(tmp_path: Path) -> None:
    found, samples = written(healthy(kills=((1, 2),)), tmp_path)
    assert (found.exit_code, len(named(samples, "check_passed"))) == (0, len(found.checks) - 1)


def test_the_parts_of_the_run_sum_to_its_wall_clock(tmp_path: Path) -> None:
    found, samples = written(healthy(), tmp_path)
    assert sum(named(samples, "run_seconds")) == pytest.approx(found.time.wall_s, abs=1e-3)


def test_the_time_of_the_run_is_exported(tmp_path: Path) -> None:
    _, samples = written(healthy(), tmp_path)
    assert at(samples, "last_run_timestamp_seconds") == 1234.5


def test_labels_with_quotes_and_line_ends_are_escaped(tmp_path: Path) -> None:
    _, samples = written(healthy().asked(scenario='a "b"\\\nc'), tmp_path)
    assert samples["aftershock_exit_code", frozenset({("scenario", 'a "b"\\\nc')})] == 0
