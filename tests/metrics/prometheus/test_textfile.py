"""``metrics.prom``, parsed as Prometheus parses it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from metrics import prometheus
from metrics.expectations import UNDISTURBED
from metrics.prometheus.catalogue import ALL, Kind
from metrics.prometheus.families import Families, Observation
from metrics.recovery import PHASES
from tests.histories import Run, faulty, healthy
from tests.metrics.prometheus.conftest import Samples
from tests.stories import MS, Hit

KILL = {"strategy": "fsdp", "fault": "kill"}


@pytest.fixture
def written(told, tmp_path):
    """The summary of a run, and the samples of its file."""

    def write(run: Run, directory: Path = Path("nowhere")):
        found = told(run, directory)
        prometheus.write(found, tmp_path / "metrics.prom")
        families = text_string_to_metric_families((tmp_path / "metrics.prom").read_text())
        return found.summary, Samples(families)

    return write


# The outcome


@pytest.mark.parametrize(
    ("word", "run"),
    [
        ("pass", healthy()),
        ("fail", healthy().change("workload.exit", code=1)),
        ("unknown", healthy().with_control(None)),
    ],
)
def test_exactly_one_verdict_is_set(word, run, written):
    found, samples = written(run)
    verdicts = {verdict: samples.at("verdict", verdict=verdict) for verdict in ("pass", "fail", "unknown")}
    assert verdicts == {verdict: float(verdict == word) for verdict in verdicts}
    assert samples.at("exit_code") == found.exit_code


def test_the_time_of_the_run_is_that_of_its_last_event_and_a_success_has_the_same(written):
    run = healthy()
    _, samples = written(run)
    assert samples.at("last_run_timestamp_seconds") == run.events[-1].wall
    assert samples.at("last_success_timestamp_seconds") == run.events[-1].wall


def test_a_run_that_did_not_pass_tells_no_time_of_success(written):
    _, samples = written(healthy().change("workload.exit", code=1))
    assert samples.named("last_run_timestamp_seconds")
    assert samples.named("last_success_timestamp_seconds") == []


def test_each_check_is_one_if_it_passed_and_else_zero(written):
    found, samples = written(healthy().with_control(None))
    told = {check.name: samples.at("check_passed", check=check.name) for check in found.checks}
    assert told == {check.name: float(check.verdict == "pass") for check in found.checks}
    assert told["trajectory"] == 0.0


def test_a_check_that_does_not_apply_is_not_exported(written):
    found, samples = written(healthy(kills=((1, 2),)))
    assert (found.exit_code, len(samples.named("check_passed"))) == (0, len(found.checks) - 1)


@pytest.mark.parametrize(("text", "value"), [("", 0.0), ("torch hangs, see its tracker", 1.0)])
def test_a_scenario_with_a_known_issue_says_so(text, value, written):
    _, samples = written(healthy().asked(known_issue=text))
    assert samples.at("known_issue") == value


def test_what_could_not_be_undone_is_counted_and_is_absent_where_healing_was_not_told(written):
    assert written(healthy())[1].at("heal_errors") == 0
    assert written(healthy().change("run.healed", errors=["a", "b"]))[1].at("heal_errors") == 2
    assert written(healthy().drop("run.healed"))[1].named("heal_errors") == []


def test_the_versions_are_labels_and_one_that_is_not_told_is_unknown(written):
    _, samples = written(healthy().asked(versions={"aftershock": "0.1.0", "ray": "2.60.0"}))
    versions = {"aftershock": "0.1.0", "ray": "2.60.0", "torch": "unknown", "python": "unknown"}
    assert samples.at("build_info", **versions) == 1


# Recoveries and restarts


def test_a_recovery_is_exported_with_its_phases_and_cost(written):
    found, samples = written(healthy())
    (recovery,) = found.recoveries
    phases = [samples.at("recovery_phase_seconds_sum", phase=phase, **KILL) for phase in PHASES]
    assert phases == [phase.seconds for phase in recovery.phases]
    assert samples.at("recovery_seconds_sum", **KILL) == recovery.total_s
    assert samples.at("recovery_seconds_count", **KILL) == 1
    assert sum(phases) == pytest.approx(recovery.total_s, abs=1e-3)
    assert samples.at("detection_seconds_sum", **KILL) == recovery.phases[0].seconds
    assert samples.at("lost_steps_total", fault="kill") == 2
    assert samples.at("replayed_samples_total", fault="kill") == 16
    assert samples.at("recovery_budget_seconds") == 120


def test_all_recoveries_of_a_run_are_counted_and_their_losses_summed(written):
    found, samples = written(healthy(kills=((1, 6), (0, 11))))
    assert samples.at("recovery_seconds_count", **KILL) == 2
    assert samples.at("recovery_seconds_sum", **KILL) == pytest.approx(sum(r.total_s for r in found.recoveries))
    assert samples.at("lost_steps_total", fault="kill") == 2 + 3
    assert samples.at("restarts_total", class_="worker") == 2


def test_two_faults_in_one_attempt_are_one_recovery_by_the_name_of_the_first(written):
    _, samples = written(faulty((Hit(1, 6, fault="exit"), Hit(0, phase="teardown"))))
    assert samples.at("lost_steps_total", fault="exit") == 2
    assert samples.named("recovery_seconds_count") == [1]


def test_a_disturbance_exports_no_recovery(written):
    _, samples = written(faulty((Hit(1, 6, fault="delay"),), expects=UNDISTURBED))
    assert samples.named("recovery_seconds_count") == []
    assert samples.named("restarts_total") == [0, 0, 0]
    assert samples.at("verdict", verdict="pass") == 1


def test_a_recovery_that_never_ended_exports_no_time(written):
    _, samples = written(healthy().until("fault.confirmed"))
    assert samples.named("recovery_seconds_count") == []
    assert samples.named("recovery_phase_seconds_count") == []
    assert samples.named("detection_seconds_count") == []
    assert samples.named("lost_steps_total") == []


def test_how_soon_a_fault_was_noticed_is_exported_of_a_recovery_that_never_ended_too(written):
    _, samples = written(healthy().until("controller.state", to="RESTARTING"))
    assert samples.at("detection_seconds_sum", **KILL) == pytest.approx(0.3)
    assert samples.named("recovery_seconds_count") == []


def test_a_restart_belongs_to_the_class_that_ray_charges_it_to(written):
    _, samples = written(faulty((Hit(1, 6),), (Hit(0, phase="rendezvous"),)))
    assert samples.at("restarts_total", class_="worker") == 1
    assert samples.at("restarts_total", class_="controller") == 1
    preempted = healthy().change("controller.state", {"to": "RESTARTING"}, error="PreemptionError")
    _, samples = written(preempted)
    assert samples.at("restarts_total", class_="preemption") == 1
    assert samples.at("restarts_total", class_="worker") == 0


def test_restarts_are_absent_where_the_controller_was_not_seen(written):
    assert written(healthy().drop("controller.start"))[1].named("restarts_total") == []


@pytest.mark.parametrize(
    ("expect", "bounds"),
    [("recovers(within=60)", [60.0]), ("completes()", []), ("recovers() | fails(error='E')", []), ("nonsense(", [])],
)
def test_the_bound_of_a_recovery_is_exported_where_the_scenario_sets_one(expect, bounds, told):
    from metrics.prometheus.facts import _budget_s

    assert [found for found in [_budget_s(expect)] if found is not None] == bounds


def test_faults_are_counted_as_armed_fired_and_confirmed(written):
    _, samples = written(healthy(kills=((1, 6), (0, 11))))
    states = ("armed", "fired", "confirmed")
    assert [samples.at(f"faults_{state}_total", fault="kill") for state in states] == [2, 2, 2]
    _, samples = written(healthy().until("fault.fired"))
    assert [samples.at(f"faults_{state}_total", fault="kill") for state in states] == [1, 1, 0]


# Checkpoints


def handed_over(run: Run, ms: float = 250.0, ranks: int = 2) -> Run:
    """With the reports of the first checkpoint, the slowest rank's after so many milliseconds."""
    step = run.select("step.end", step=4, attempt=0)[-1]

    def told(kind, rank, after_ns, **data):
        at = {"wall_ns": step.wall_ns + after_ns, "mono_ns": step.mono_ns + after_ns}
        return msgspec.structs.replace(step, kind=kind, rank=rank, data=data, **at)

    for rank in range(ranks):
        begin = told("checkpoint.transfer.begin", rank, MS, checkpoint="checkpoint_000004")
        run = run.add(begin, told("report.end", rank, int(ms * MS) - (ranks - 1 - rank) * MS))
    return run


def test_a_save_lasts_from_the_step_to_the_slowest_ranks_report(written):
    _, samples = written(handed_over(healthy()))
    assert samples.at("checkpoint_save_seconds_count", strategy="fsdp") == 1
    assert samples.at("checkpoint_save_seconds_sum", strategy="fsdp") == pytest.approx(0.25)
    assert samples.at("checkpoint_save_seconds_bucket", strategy="fsdp", le="0.25") == 1
    assert samples.at("checkpoint_save_seconds_bucket", strategy="fsdp", le="0.1") == 0


def test_a_save_that_not_every_rank_handed_over_is_none(written):
    assert written(handed_over(healthy(), ranks=1))[1].named("checkpoint_save_seconds_count") == []


def test_a_save_that_no_event_tells_of_is_absent_not_zero(written):
    assert written(healthy())[1].named("checkpoint_save_seconds_sum") == []


def test_a_commit_lasts_from_the_step_to_the_controllers_word(written):
    run = healthy()
    _, samples = written(run)
    assert samples.at("checkpoint_commit_seconds_count", strategy="fsdp") == len(run.select("checkpoint.commit"))
    assert samples.at("checkpoint_commit_seconds_sum", strategy="fsdp") == pytest.approx(3 * 0.03)


def test_the_bytes_are_those_of_the_last_checkpoint_on_disk(written, tmp_path):
    directory = healthy().write(tmp_path / "run")
    (last,) = directory.glob("storage/*/checkpoint_000012")
    size = sum(file.stat().st_size for file in last.iterdir())
    assert size > 0
    assert written(healthy(), directory)[1].at("checkpoint_bytes", strategy="fsdp") == size
    assert written(healthy())[1].named("checkpoint_bytes") == []


def test_verifying_is_timed_where_the_run_was_judged_freshly_and_the_check_decided(told):
    run = healthy()
    timed = run.again("run.end", kind="run.judged", data={"seconds": {"checkpoints": 1.5}})
    assert told(timed).verifying_s is None  # judged without its storage, the check said nothing
    case = timed.case()
    from metrics.prometheus.facts import facts
    from metrics.summary import CheckRecord, summarize

    decided = CheckRecord(name="checkpoints", verdict="pass", expected="", seen="", where="", evidence={})
    found = summarize(case, timed.judged())
    found.checks.append(decided)
    assert facts(case, found).verifying_s == 1.5
    assert facts(run.case(), found).verifying_s is None


def test_the_strategy_is_that_of_the_settings_else_the_reference_trainers(told):
    assert told(healthy()).strategy == "fsdp"
    assert told(healthy().asked(settings={"strategy": "ddp"})).strategy == "ddp"


# Time


def test_the_parts_of_the_run_sum_to_its_wall_clock(written):
    found, samples = written(healthy())
    assert sum(samples.named("run_seconds")) == pytest.approx(found.time.wall_s, abs=1e-3)
    assert samples.at("harness_overhead_ratio") == pytest.approx(found.time.harness_s / found.time.wall_s)


def test_the_times_of_a_run_without_an_end_are_absent(written):
    assert written(healthy().until("fault.confirmed"))[1].named("run_seconds") == []


def test_the_buckets_sum_to_the_life_of_the_job(written):
    found, samples = written(healthy())
    assert sum(samples.named("job_seconds")) == pytest.approx(found.goodput.wall_s, abs=1e-6)
    assert samples.at("goodput_ratio", strategy="fsdp") == found.goodput.share


# The text


def test_labels_with_quotes_and_line_ends_are_escaped(written):
    _, samples = written(healthy().asked(scenario='a "b"\\\nc'))
    assert samples["aftershock_exit_code", frozenset({("scenario", 'a "b"\\\nc')})] == 0


def test_no_label_holds_the_id_of_a_run_and_exemplars_do(told):
    text = openmetrics(prometheus.registry(told(healthy()))).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line for line in lines if "0badcafe" in line.split(" # ")[0]] == []
    named = {line.split("{")[0] for line in lines if '# {run="0badcafe"}' in line}
    assert {"aftershock_recovery_seconds_bucket", "aftershock_checkpoint_commit_seconds_bucket"} <= named
    assert list(openmetrics_families(text))


def test_an_exemplar_lies_in_its_bucket_and_only_there():
    from metrics.prometheus.catalogue import RECOVERY

    found = Families()
    for value in (0.5, 0.9, 3.0, 9999.0):
        found.observe(RECOVERY, Observation(value, f"run-{value}", 1.0), scenario="s", strategy="fsdp", fault="kill")
    (family,) = found.collect()
    told = {s.labels["le"]: s.exemplar.value for s in family.samples if s.exemplar}
    assert told == {"1.0": 0.9, "5.0": 3.0, "+Inf": 9999.0}
    counts = [s.value for s in family.samples if s.name.endswith("_bucket")]
    assert counts == sorted(counts)
    assert counts[-1] == 4


def test_a_label_that_the_metric_does_not_have_is_a_defect():
    from metrics.prometheus.catalogue import EXIT_CODE

    with pytest.raises(AssertionError, match="aftershock_exit_code has the labels"):
        Families().put(EXIT_CODE, 0, scenario="s", run="0badcafe")


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.short)
def test_names_and_units_follow_the_conventions(metric):
    assert re.fullmatch(r"[a-z][a-z_]*[a-z]", metric.short)
    assert (metric.kind is Kind.COUNTER) == metric.short.endswith("_total")
    assert not re.search(r"_(ms|ns|minutes|hours|kb|mb|mib|percent)(_|$)", metric.short)
    assert metric.buckets == tuple(sorted(set(metric.buckets)))
    assert (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets)
    assert {"le", "run", "job", "instance"}.isdisjoint(metric.labels)
    assert metric.help.endswith(".")
