"""A suite by the command, with runs whose cluster and training script are only pretended, and real signals."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from chaos.exits import ExitCode
from chaos.watch import Interrupted
from tests.scenarios.members import ABORTED, PASS, summary
from tests.scenarios.pretended import in_place, of_kind


@pytest.fixture
def judged(monkeypatch):
    """Every run is judged a pass; with ``by``, as that says."""

    def judge(by=lambda name: PASS):
        def verdict(directory, fresh):
            name = json.loads((directory / "scenario.json").read_text())["scenario"]
            return summary(name, by(name))

        monkeypatch.setattr("scenarios.cli._judge", verdict)

    monkeypatch.setattr("chaos.workload.check_own_chaos", lambda: None)
    return judge


def members_of(place):
    """The run directories of the one suite, by scenario, and its record."""
    (file,) = place.glob("runs/*/suite.json")
    record = json.loads(file.read_text())
    return {m["scenario"]: file.parent / m["directory"] for m in record["members"]}, record


def test_the_members_of_a_suite_share_one_cluster_and_one_control_run_and_nothing_is_left(
    command, script, judged, place, short_registry
):
    judged()
    result = command("run", "kill-worker", "segfault", "kill-rank-zero", "--quiet")
    directories, record = members_of(place)
    assert result.exit_code == ExitCode.PASS
    assert (len(script.clusters), record["clusters"], len(record["controls"])) == (1, 1, 1)
    assert len(script.conducts) == 4  # each with its fault, one without
    shared = [of_kind(directories[name], "cluster.shared") for name in ("segfault", "kill-rank-zero")]
    assert [told["runs_before"] for (told,) in shared] == [1, 2]
    assert of_kind(directories["segfault"], "control.shared") == [{"from": str(directories["kill-worker"])}]
    assert in_place(script.clusters[0].ledger.path) == []
    assert list(short_registry.glob("aftershock-*/*")) == []


def test_no_share_starts_a_cluster_and_a_control_run_for_each(command, script, judged, place):
    judged()
    assert command("run", "kill-worker", "segfault", "--quiet", "--no-share").exit_code == ExitCode.PASS
    directories, record = members_of(place)
    assert (len(script.clusters), record["clusters"], record["controls"], len(script.conducts)) == (2, 0, {}, 4)
    assert all((directory / "ledger.jsonl").exists() for directory in directories.values())


def test_an_interruption_while_a_member_is_judged_ends_the_standing_cluster_and_can_be_resumed(
    command, script, judged, place, short_registry
):
    def judging(name):
        if name == "segfault":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        return PASS

    judged(judging)
    result = command("run", "kill-worker", "segfault", "kill-rank-zero", "--quiet")
    directories, record = members_of(place)
    assert (result.exit_code, list(directories)) == (ExitCode.ABORTED, ["kill-worker"])
    assert "2 not run to the end: the same command with --resume goes on" in result.stdout
    assert list(short_registry.glob("aftershock-*/*")) == []
    judged()
    result = command("run", "kill-worker", "segfault", "kill-rank-zero", "--quiet", "--resume")
    assert result.exit_code == ExitCode.PASS
    assert "3 of 3 passed; exit code 0" in result.stdout
    directories, record = members_of(place)
    assert (len(script.clusters), record["clusters"], len(record["controls"])) == (2, 2, 1)
    assert of_kind(directories["segfault"], "control.shared") == [{"from": str(directories["kill-worker"])}]


def test_an_interruption_inside_a_member_is_told_and_the_member_runs_again(command, script, judged, place):
    judged(lambda name: ABORTED)
    script.error = Interrupted("SIGINT")
    result = command("run", "kill-worker", "segfault", "--quiet")
    assert result.exit_code == ExitCode.ABORTED
    assert "2 not run to the end" in result.stdout
    script.error = None
    judged()
    assert command("run", "kill-worker", "segfault", "--quiet", "--resume").exit_code == ExitCode.PASS
    assert members_of(place)[1]["clusters"] == 2
