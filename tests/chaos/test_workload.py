"""The environment that a training script is started in."""

from __future__ import annotations

import json
import sys

import pytest

from chaos import INSTALLATION
from chaos.agent.plan import VARIABLE
from chaos.exits import UsageError
from chaos.workload import AGENT, CALLBACKS, Workload, check_own_chaos

TELL = "import json, os, sys; print(json.dumps([dict(os.environ), os.getsid(0) == os.getpid()]))"


def workload(**options):
    return Workload((sys.executable, "-S", "-c", TELL), options.pop("environment", {}), workers=2, steps=4, **options)


def launched(tmp_path, **cluster):
    log = tmp_path / "driver.log"
    assert workload().launch(cluster, tmp_path / "plan.json", log).wait(20) == 0
    return json.loads(log.read_text())


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ({}, AGENT),
        ({CALLBACKS: ""}, AGENT),
        ({CALLBACKS: "mine.First,mine.Second"}, f"mine.First,mine.Second,{AGENT}"),
    ],
    ids=["none", "empty", "two of the user's own"],
)
def test_our_callback_comes_after_the_users_own(tmp_path, present, expected) -> None:
    environment, _ = launched(tmp_path, **present)
    assert environment[CALLBACKS] == expected


def test_it_is_told_its_plan_and_leads_a_session_of_its_own(tmp_path) -> None:
    environment, leads = launched(tmp_path, OTHER="kept")
    assert environment[VARIABLE] == str(tmp_path / "plan.json")
    assert environment["OTHER"] == "kept"
    assert leads


def test_a_cluster_and_a_plan_of_somebody_else_are_not_inherited(monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv(VARIABLE, "/elsewhere/plan.json")
    monkeypatch.setenv("OTHER", "kept")
    environment = workload().base_environment()
    assert {"RAY_ADDRESS", VARIABLE}.isdisjoint(environment)
    assert environment["OTHER"] == "kept"


def test_an_isolated_workload_finds_our_installation_only(monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/project/with/a/trainer")
    environment = workload().base_environment()
    assert environment["PYTHONPATH"] == str(INSTALLATION)
    assert environment["PYTHONSAFEPATH"] == "1"
    assert (INSTALLATION / "chaos" / "agent" / "callback.py").is_file()


def test_a_workload_that_is_not_isolated_keeps_the_users_path(monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/project")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    environment = workload(isolated=False).base_environment()
    assert environment["PYTHONPATH"] == "/project"
    assert "PYTHONSAFEPATH" not in environment


def test_the_workloads_own_variables_win(monkeypatch) -> None:
    monkeypatch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "2")
    set_to = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5"}
    assert workload(environment=set_to).base_environment().items() >= set_to.items()


def test_a_module_of_the_users_that_takes_our_name_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_own_chaos()
    (tmp_path / "chaos.py").touch()
    with pytest.raises(UsageError, match=str(tmp_path / "chaos.py")):
        check_own_chaos()
