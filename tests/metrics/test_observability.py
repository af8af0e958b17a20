"""The shipped rules, dashboard and examples: they parse, name what exists, and the rules do what their tests say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from metrics import prometheus
from metrics.observability import FILES, HERE, read
from scenarios.scenario import Suite, all_scenarios
from tests.docs.pages import ROOT
from tests.histories import faulty, healthy
from tests.promql import DASHBOARD, RULES, dashboard, exported, named, panels, queries, recorded, rules
from tests.stories import Hit

PROMTOOL = shutil.which("promtool")
SYSTEMD = shutil.which("systemd-analyze")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


def promtool(*arguments, input=None, cwd=None):
    command = [PROMTOOL, *map(str, arguments)]
    return subprocess.run(command, input=input, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)


def succeeds(*arguments, **options):
    done = promtool(*arguments, **options)
    assert done.returncode == 0, done.stdout + done.stderr


# The files


def test_every_file_is_listed_with_what_it_is_and_no_other():
    there = {str(p.relative_to(HERE)) for p in HERE.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert there - {"__init__.py"} == set(FILES)
    assert all(FILES.values())


def test_every_file_is_packaged():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["metrics.observability"]
    assert [name for name in FILES if not any(fnmatch(name, p.replace("**/", "*/")) for p in patterns)] == []


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yml")])
def test_every_yaml_file_parses(name):
    assert isinstance(yaml.safe_load(read(name)), dict)


def test_the_files_name_no_command_option_or_suite_that_does_not_exist():
    from scenarios.cli import cli

    text = "".join(read(name).decode() for name in FILES)
    for command, rest in re.findall(
        r"(?:bin/|^|[ `])aftershock (run|heal|prune|status|doctor|analyze)\b([^;|\n`]*)", text
    ):
        known = {option for p in cli.commands[command].params for option in p.opts}
        assert set(re.findall(r"(?<= )--[a-z-]+", rest)) <= known
    suites = {name for name, found in all_scenarios().items() if isinstance(found, Suite)}
    assert {name for name in re.findall(r"aftershock run (\w[\w-]*)", text)} <= suites


@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_service_and_its_timer(tmp_path):
    for name in ("aftershock.service", "aftershock.timer"):
        text = read(f"systemd/{name}").decode().replace("/usr/local/bin/aftershock", "/bin/true")
        (tmp_path / name).write_text(text)
    command = [SYSTEMD, "verify", "--man=no", "./aftershock.service", "./aftershock.timer"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"systemd-analyze cannot work here: {done.stderr.strip()}")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_workflow_and_the_timers_run_once_a_night_so_a_missing_run_is_told_the_next_morning():
    hours = {
        re.search(r'cron: "\d+ (\d+) \* \* \*"', read("github/aftershock-nightly.yml").decode())[1],
        re.search(r"^\d+ (\d+) \* \* \* aftershock ", read("cron/aftershock").decode(), re.M)[1],
    }
    assert hours == {"2"}
    assert "OnCalendar=*-*-* 02:" in read("systemd/aftershock.timer").decode()
    assert "26 * 3600" in RULES.read_text()


# The rules


def test_there_is_an_alert_for_each_thing_that_must_not_go_unseen():
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert {a.removeprefix("Aftershock") for a in alerts} == {
        "VerdictNotPass", "RecoverySlow", "NoRun", "Silent", "GoodputDrop", "InjectionUnconfirmed", "HealFailed",
    }  # fmt: skip


def test_every_alert_has_a_severity_a_summary_and_a_description():
    for rule in (rule for rule in rules() if "alert" in rule):
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_rules_name_only_metrics_that_exist():
    for rule in rules():
        assert named(rule["expr"])
        assert named(rule["expr"]) - exported() - set(recorded()) == set(), rule


def test_every_alert_is_tested_both_ways():
    tests = yaml.safe_load(read("prometheus/aftershock.rules.test.yml"))["tests"]
    outcomes = {(t["alertname"], bool(t["exp_alerts"])) for test in tests for t in test["alert_rule_test"]}
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert outcomes == {(alert, raised) for alert in alerts for raised in (False, True)}


def test_the_alerts_that_alertmanager_routes_exist():
    text = read("alertmanager/alertmanager.yml").decode()
    routed = set(re.findall(r"alertname = (\w+)", text))
    assert routed
    assert routed <= {rule.get("alert") for rule in rules()}


@needs_promtool
def test_promtool_takes_the_rules_and_the_configuration(tmp_path):
    succeeds("check", "rules", RULES)
    succeeds("check", "config", HERE / "prometheus" / "prometheus.yml")


@needs_promtool
def test_the_rules_pass_their_own_tests():
    succeeds("test", "rules", "aftershock.rules.test.yml", cwd=HERE / "prometheus")


# The dashboard


def test_the_dashboard_is_ready_for_provisioning():
    found = dashboard()
    assert found["uid"] == "aftershock"
    assert "id" not in found
    variables = {variable["name"]: variable["type"] for variable in found["templating"]["list"]}
    assert variables == {"datasource": "datasource", "scenario": "query"}
    assert "__inputs" not in found
    assert json.dumps(found, indent=1) + "\n" == DASHBOARD.read_text()


def test_every_panel_takes_its_data_from_the_chosen_source_and_has_a_place_of_its_own():
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    cells = [(x, y) for p in every for x in range(p["gridPos"]["x"], p["gridPos"]["x"] + p["gridPos"]["w"])
             for y in range(p["gridPos"]["y"], p["gridPos"]["y"] + p["gridPos"]["h"])]  # fmt: skip
    assert len(cells) == len(set(cells))
    assert {x for x, _ in cells} == set(range(24))


def test_the_dashboard_names_only_metrics_that_exist_and_shows_every_one():
    shown = set().union(*map(named, queries().values()))
    assert shown - exported() - set(recorded()) == set()
    metrics = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in exported()}
    seen = {re.sub(r"_(bucket|sum|count)$", "", name.split(":")[1] if ":" in name else name) for name in shown}
    assert metrics - seen == {"aftershock_suite_last_run_timestamp_seconds"}


def test_an_old_name_on_the_dashboard_would_be_seen():
    assert named('sum(aftershock_lost_samples{scenario=~".*"})') - exported() == {"aftershock_lost_samples"}


@needs_promtool
def test_every_query_of_the_dashboard_parses(tmp_path):
    asked = [{"record": f"query:{place}", "expr": expr} for place, expr in enumerate(queries().values())]
    assert len(asked) > 30
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": asked}]}))
    succeeds("check", "rules", file)
    asked[3]["expr"] += " by ("
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": asked}]}))
    assert promtool("check", "rules", file).returncode != 0


# The text of a run


@needs_promtool
@pytest.mark.parametrize(
    "run",
    [healthy(), healthy(kills=((1, 6), (0, 11))), healthy().until("fault.fired"), faulty((Hit(1, 6, fault="delay"),))],
    ids=("one recovery", "two", "cut short", "disturbed"),
)
def test_promtool_finds_nothing_to_say_of_a_runs_text(run, tmp_path):
    from metrics.prometheus.facts import facts
    from metrics.summary import summarize

    case = run.case()
    prometheus.write(facts(case, summarize(case, run.judged())), tmp_path / "metrics.prom")
    done = promtool("check", "metrics", input=Path(tmp_path / "metrics.prom").read_text())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert promtool("check", "metrics", input="# TYPE a_total gauge\na_total 1\n").returncode != 0
