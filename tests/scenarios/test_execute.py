"""Executing a run on its own cluster or a shared one; cluster and training script are only pretended."""

from __future__ import annotations

import json
import os
import signal
from types import SimpleNamespace

import pytest

from chaos.cluster.local import ClusterFailed
from chaos.ledger import Account
from chaos.watch import Interrupted
from scenarios import execute as executing
from scenarios.execute import execute
from scenarios.request import Options, resolve
from scenarios.scenario import find
from scenarios.testbed import Pool, StillStanding
from tests.scenarios.pretended import Conducted, in_place, kinds, of_kind


@pytest.fixture
def pool(place):
    (place / "suite").mkdir()
    return Pool(place / "suite")


@pytest.fixture
def run(script, place):
    """Execute a scenario; returns its directory."""

    def go(name="kill-worker", pool=None, settings=None, control_from=None, observers=(), **options):
        request = resolve(find(name), Options(out=place / "suite", settings=settings or {}, **options))
        return execute(executing.dataclasses.replace(request, control_from=control_from), observers, pool)

    return go


# A run of its own


def test_a_run_of_its_own_starts_and_ends_its_cluster_under_its_own_ledger(run, script):
    directory = run()
    assert (len(script.clusters), in_place(directory / "ledger.jsonl")) == (1, [])
    assert not script.clusters[0].workspace.exists()
    assert of_kind(directory, "run.healed") == [{"errors": []}]
    assert kinds(directory)[-1] == "run.end"
    assert "cluster.up" in kinds(directory)
    assert "cluster.shared" not in kinds(directory)
    assert all(conduct.drained for conduct in script.conducts)


def test_the_cluster_is_made_as_the_shape_and_the_scenario_say(run, script):
    run("drain-node")
    (cluster,) = script.clusters
    scenario = find("drain-node")
    assert (cluster.workers, cluster.cpus_per_node) == (3, 3)
    assert cluster.node_environment == scenario.node_environment(scenario.shape)
    assert cluster.environment["RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S"] == "0.5"


def test_after_a_run_of_its_own_signals_do_what_they_do_in_any_program(run):
    run()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# A shared cluster


def test_a_clean_shared_cluster_stands_and_serves_the_next_run(run, script, pool, place):
    first, second = run(pool=pool), run("segfault", pool=pool)
    ledger = place / "suite" / "cluster-1" / "ledger.jsonl"
    assert (len(script.clusters), pool.starts) == (1, 1)
    assert in_place(ledger) == ["directory", "processes"]
    assert not (first / "ledger.jsonl").exists()
    assert "cluster.up" in kinds(first)
    assert "cluster.up" not in kinds(second)
    assert of_kind(first, "cluster.shared") == []
    assert of_kind(second, "cluster.shared") == [{"ledger": str(ledger), "runs_before": 1}]
    assert of_kind(second, "run.healed") == [{"errors": []}]
    assert (pool.close(), in_place(ledger)) == ([], [])


def test_what_happens_to_a_shared_cluster_is_told_to_the_run_that_is_on_it(run, script, pool):
    class Loses(Conducted):
        def run(self):
            self.cluster.emit("cluster.node.lost", data={"name": "w1"})
            return super().run()

    told = {"first": [], "second": []}
    run(pool=pool, observers=[lambda event: told["first"].append(event.kind)])
    script.conducted = Loses
    second = run("segfault", pool=pool, observers=[lambda event: told["second"].append(event.kind)])
    assert "cluster.node.lost" in told["second"]
    assert "cluster.node.lost" not in told["first"]
    assert {"name": "w1"} in of_kind(second, "cluster.node.lost")


def test_the_injections_of_a_run_are_in_the_shared_ledger_while_it_goes_on_and_done_after_it(run, script, pool, place):
    open_then = []

    class Looks(Conducted):
        def run(self):
            open_then.append(in_place(place / "suite" / "cluster-1" / "ledger.jsonl"))
            return super().run()

    script.conducted = Looks
    run("kill-during-recovery", pool=pool, control=False)
    assert open_then == [["directory", "processes", "injection", "injection"]]
    assert in_place(place / "suite" / "cluster-1" / "ledger.jsonl") == ["directory", "processes"]


@pytest.mark.parametrize("left", [(False, True), (True, False)], ids=["the run", "the control run"])
def test_one_on_which_something_is_left_is_ended_and_the_next_run_has_a_fresh_one(run, script, pool, left):
    script.left = left
    first = run(pool=pool)
    assert in_place(script.clusters[0].ledger.path) == []
    assert of_kind(first, "run.healed") == [{"errors": []}]
    second = run("segfault", pool=pool)
    assert (len(script.clusters), pool.starts, of_kind(second, "cluster.shared")) == (2, 2, [])


def test_a_job_that_missed_its_goal_but_left_nothing_leaves_the_cluster_standing(run, script, pool):
    script.finished = False
    run(pool=pool)
    run("segfault", pool=pool)
    assert len(script.clusters) == 1
    assert len(script.conducts) == 2  # no control runs


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Interrupted("SIGTERM"), "run.aborted"),
        (RuntimeError("a defect"), "run.bug"),
        (ClusterFailed("no"), "run.failed"),
    ],
    ids=repr,
)
def test_one_whose_run_was_cut_short_is_ended(run, script, pool, error, kind):
    script.error = error
    directory = run(pool=pool)
    assert kind in kinds(directory)
    assert in_place(script.clusters[0].ledger.path) == []
    assert pool.close() == []


def test_one_that_did_not_start_is_ended(run, script, pool):
    script.start_error = ClusterFailed("Ray node w1 did not start")
    directory = run(pool=pool)
    assert of_kind(directory, "run.failed") == [{"error": "Ray node w1 did not start"}]
    assert in_place(script.clusters[0].ledger.path) == []
    script.start_error = None
    assert of_kind(run(pool=pool), "cluster.shared") == []


def test_what_could_not_be_undone_at_its_end_is_told_by_the_run(run, script, pool):
    class Harms(Conducted):
        def run(self):
            self.cluster.ledger.intend("directory", path="/")
            raise RuntimeError("a defect")

    script.conducted = Harms
    ((told,),) = [data["errors"] for data in of_kind(run(pool=pool), "run.healed")]
    assert told.startswith("directory 3: / is not in ")


def test_another_shape_gets_another_cluster_after_the_end_of_the_first(run, script, pool):
    run(pool=pool)
    run("kill-two-at-once", pool=pool)
    first, second = script.clusters
    assert (in_place(first.ledger.path), first.workspace.exists()) == ([], False)
    assert (in_place(second.ledger.path), second.workers) == (["directory", "processes"], 3)


def test_the_time_of_a_shared_cluster_is_counted_from_each_run_on(run, script, pool, place):
    run(pool=pool, deadline=10.0)
    ledger = place / "suite" / "cluster-1" / "ledger.jsonl"
    assert 315 < Account.read(ledger).left_s <= 320
    run("segfault", pool=pool, deadline=1000.0)
    assert 2295 < Account.read(ledger).left_s <= 2300


def test_a_run_keeps_only_the_logs_that_have_grown_since_it_began(run, script, pool):
    run(pool=pool)
    logs = script.clusters[0].workspace / "w0" / "session_2026" / "logs"
    logs.mkdir(parents=True)
    for name in ("raylet.out", "worker-1.out"):
        (logs / name).write_text("an old line\n")
        os.utime(logs / name, (1e9, 1e9))

    class Writes(Conducted):
        def run(self):
            (logs / "raylet.out").write_text("a new line\n")
            return super().run()

    script.conducted = Writes
    second = run("segfault", pool=pool)
    assert [path.name for path in (second / "logs" / "w0").iterdir()] == ["raylet.out"]


def test_while_a_pool_is_open_a_signal_is_an_interruption_also_after_the_run(run, pool):
    run(pool=pool)
    handler = signal.getsignal(signal.SIGTERM)
    assert callable(handler)
    with pytest.raises(Interrupted):
        handler(signal.SIGTERM, None)


def test_a_run_directory_that_cannot_be_filled_is_removed_and_leaves_the_pool_usable(run, script, pool, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr(executing.shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
        with pytest.raises(executing.UsageError, match="0 MiB are free there"):
            run(pool=pool)
    assert not [path for path in pool.directory.iterdir() if "kill-worker" in path.name]
    run(pool=pool)
    assert len(script.clusters) == 1


def test_where_the_cluster_before_cannot_be_ended_nothing_is_started_nor_left(run, script, pool):
    run(pool=pool)
    script.clusters[0].ledger.intend("directory", path="/")
    with pytest.raises(StillStanding, match="/ is not in "):
        run("kill-two-at-once", pool=pool)
    assert (len(script.clusters), len(script.conducts)) == (1, 2)
    assert not [path for path in pool.directory.iterdir() if "kill-two-at-once" in path.name]


# The control run


def test_the_control_run_has_no_fault_nothing_to_wait_for_and_no_watchdog(run, script):
    run("kill-worker", settings={"pace": "0.5", "watchdog_s": "8"})
    broken, control = script.conducts
    assert ([i.id for i in broken.plan.injections], control.plan.injections) == (["kill-0"], ())
    assert (broken.plan.watchdog_s, control.plan.watchdog_s) == (8.0, 0.0)
    assert (broken.options["pace"], control.options["pace"]) == ("0.5", "0.0")
    same = ("seed", "steps", "workers", "dropout", "checkpoint-every", "timeout-s")
    assert [broken.options[key] for key in same] == [control.options[key] for key in same]
    assert broken.workload.environment == control.workload.environment
    assert control.directory == broken.directory / "control"
    assert control.options["storage"] == str(control.directory / "storage")


def test_only_the_run_with_the_fault_waits_for_capacity(run, script):
    run("below-minimum", control=True)
    broken, control = script.conducts
    assert (broken.waits_s, control.waits_s) == (find("below-minimum").waits_s, 0.0)
    assert broken.waits_s > 0


def test_before_the_control_run_lost_nodes_are_brought_back(run, script):
    run()
    assert [conduct.looks for conduct in script.conducts] == [0, 1]


def test_a_control_run_of_another_member_is_taken_over(run, script, place, pool):
    first = run(pool=pool)
    second = run("segfault", pool=pool, control_from=first)
    assert len(script.conducts) == 3
    assert of_kind(second, "control.shared") == [{"from": str(first)}]
    history = (first / "control" / "history.jsonl").read_text()
    assert (second / "control" / "history.jsonl").read_text() == history
    assert "workload.exit" in history


def test_of_a_run_that_did_not_finish_no_control_run_is_made_nor_taken_over(run, script, pool):
    first = run(pool=pool)
    script.finished = False
    second = run("segfault", pool=pool, control_from=first)
    assert len(script.conducts) == 3
    assert not (second / "control").exists()


def test_the_record_of_a_member_names_its_own_command(run, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/pytest"])
    assert json.loads((run() / "scenario.json").read_text())["command"] == "aftershock run kill-worker"
