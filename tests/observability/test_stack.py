"""Aftershock's metrics, rules and dashboard against a real Prometheus and a real Pushgateway."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request

import pytest

from metrics import prometheus
from metrics.observability import read
from metrics.prometheus.catalogue import ALL, Kind
from metrics.prometheus.pushing import Gateway
from tests.observability.conftest import finished
from tests.promql import RULES, queries, rules

PROMTOOL = shutil.which("promtool")


def test_prometheus_stores_every_metric_with_its_type(stack):
    known = {name: told[0]["type"] for name, told in stack.ask("metadata").items()}
    assert {metric.name: str(metric.kind) for metric in ALL if metric.kind is not Kind.COUNTER}.items() <= known.items()
    counters = {metric.name for metric in ALL if metric.kind is Kind.COUNTER}
    assert {known.get(name) or known.get(name.removesuffix("_total")) for name in counters} == {"counter"}


def test_it_finds_nothing_wrong_with_what_it_scrapes(stack):
    targets = stack.ask("targets")["activeTargets"]
    assert {(t["labels"]["job"], t["health"], t["lastError"]) for t in targets} == {
        ("live", "up", ""), ("pushgateway", "up", ""),
    }  # fmt: skip


@pytest.mark.parametrize("name", queries())
def test_every_query_of_the_dashboard_has_an_answer(name, stack):
    assert stack.until(lambda: stack.result(queries()[name]))


def test_every_rule_is_evaluated_without_an_error(stack):
    def evaluated():
        found = [rule for group in stack.ask("rules")["groups"] for rule in group["rules"]]
        return found if all(rule["health"] == "ok" for rule in found) else []

    assert len(stack.until(evaluated)) == len(rules())


def test_the_alerts_of_a_failed_run_fire_and_those_of_a_good_one_do_not(stack):
    def firing():
        alerts = [alert["labels"] for alert in stack.ask("alerts")["alerts"] if alert["state"] == "firing"]
        return {(labels["alertname"], labels.get("scenario")) for labels in alerts}

    # The synthetic runs ended years ago, so all of them are late.
    awaited = {
        ("AftershockVerdictNotPass", "segfault"),
        ("AftershockNoRun", "kill-worker"),
        ("AftershockNoRun", "pushed"),
    }
    told = stack.until(lambda: found if (found := firing()) >= awaited else None)
    assert {name for name, scenario in told if scenario in ("kill-worker", "pushed")} == {"AftershockNoRun"}
    assert ("AftershockVerdictNotPass", "hang-frozen") not in told


def test_the_id_of_a_run_is_an_exemplar_and_no_label(stack):
    series = stack.ask("series", **{"match[]": '{__name__=~"aftershock_.*"}'})
    assert [labels for labels in series if "0badcafe" in labels.values()] == []
    told = stack.until(
        lambda: stack.ask("query_exemplars", query="aftershock_recovery_seconds_bucket", start=0, end="4102444800")
    )
    assert {exemplar["labels"]["run"] for found in told for exemplar in found["exemplars"]} == {"0badcafe"}


def test_a_push_reaches_prometheus_with_its_own_labels(stack):
    (found,) = stack.until(lambda: stack.result('aftershock_exit_code{scenario="pushed"}'))
    assert (found["metric"]["job"], found["value"][1]) == ("aftershock", "0")


def test_a_push_leaves_nothing_of_the_last_run_of_the_scenario_and_all_of_others(stack, tmp_path):
    gateway = Gateway.parse(stack.pushgateway)

    def held(scenario):
        with urllib.request.urlopen(f"{stack.pushgateway}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return {line.split("{")[0] for line in lines if f'scenario="{scenario}"' in line}

    gateway.push(prometheus.registry(finished(tmp_path, "replaced")), scenario="replaced")
    assert {"aftershock_recovery_seconds_sum", "aftershock_last_success_timestamp_seconds"} <= held("replaced")
    cut = finished(
        tmp_path / "cut", "replaced", lambda run: run.until("fault.fired").again("fault.fired", kind="run.end")
    )
    gateway.push(prometheus.registry(cut), scenario="replaced")
    assert "aftershock_exit_code" in held("replaced")
    assert "aftershock_recovery_seconds_sum" not in held("replaced")
    assert "aftershock_last_success_timestamp_seconds" not in held("replaced")
    assert "aftershock_recovery_seconds_sum" in held("pushed")


SPOILT = {
    "a verdict that is not looked at": ('verdict!="pass"', 'verdict="fail"'),
    "a budget that is not the scenario's": ("max by (scenario) (aftershock_recovery_budget_seconds)", "vector(1000)"),
    "a budget of its own for none": ("* 0 + 120", "* 0 + 1200"),
    "a later look for a missing run": ("> 26 * 3600", "> 46 * 3600"),
    "a series that may be gone": ("max_over_time(aftershock_last_run_timestamp_seconds[30d])",
                                  "aftershock_last_run_timestamp_seconds"),
    "a silence that nobody hears": ("[26h]", "[46h]"),
    "a smaller fall": ("< 0.8 *", "< 0.9 *"),
    "a larger fall": ("< 0.8 *", "< 0.7 *"),
    "a run that goes on": ("(aftershock_run_in_progress) == 1", "(aftershock_run_in_progress) == 2"),
    "an exit code that is not looked at": ("(aftershock_exit_code) == 5", "(aftershock_exit_code) == 6"),
    "errors that are not looked at": ("(aftershock_heal_errors) > 0", "(aftershock_heal_errors) > 1"),
    "another quantile": ("histogram_quantile(0.95, sum by (scenario, le) (aftershock_recovery",
                         "histogram_quantile(0.5, sum by (scenario, le) (aftershock_recovery"),
}  # fmt: skip


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
def test_the_tests_of_the_rules_see_every_spoilt_rule(tmp_path):
    for place, (before, after) in enumerate(SPOILT.values()):
        folder = tmp_path / str(place)
        folder.mkdir()
        text = RULES.read_text()
        assert before in text
        (folder / RULES.name).write_text(text.replace(before, after))
        (folder / "test.yml").write_bytes(read("prometheus/aftershock.rules.test.yml"))
    command = [PROMTOOL, "test", "rules", *(f"{place}/test.yml" for place in range(len(SPOILT)))]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}  # failures go to the latter, in between
    done = subprocess.run(command, cwd=tmp_path, text=True, check=False, timeout=110, **pipe)
    told = re.split(r"Unit Testing: +\d+/test.yml", done.stdout)[1:]
    assert len(told) == len(SPOILT)
    assert [defect for defect, text in zip(SPOILT, told, strict=True) if "FAILED" not in text] == []
