"""A run from the launch to the end, with a workload of real processes that only pretends to train."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest

from chaos import confirm, runner
from chaos.agent.plan import Injection, Plan
from chaos.cluster.local import LocalCluster
from chaos.ledger import Account
from chaos.process import Identity
from chaos.runner import Conduct
from chaos.triggers import at_step, before_step
from chaos.watch import Interrupted
from chaos.workload import Workload

TRAIN = """
import os, sys, time
from chaos.agent.events import EventWriter
from chaos.agent.firing import Firing
from chaos.agent.plan import Plan
from chaos.agent.session import write_stacks_on_signal
from chaos.process import current

STEPS, PAUSE = int(sys.argv[1]), 0.02
plan = Plan.from_environment()

def train(attempt, done):
    writer = EventWriter(plan.events, "n")
    writer.common = {"attempt": attempt, "rank": 0, "world_size": 1}
    write_stacks_on_signal(plan.stacks, 0)
    writer.emit("worker.start", data={"start": current().start})
    firing = Firing(plan, writer, 0, attempt, lambda: done)
    while done < STEPS:
        done += 1
        writer.emit("step.end", step=done)
        firing.reach("step")
        time.sleep(PAUSE)

controller = EventWriter(plan.events, "n")
for attempt in range(3):
    controller.emit("attempt.start", attempt=attempt, world_size=1)
    worker = os.fork()
    if not worker:
        train(attempt, 0)
        os._exit(0)
    if os.waitpid(worker, 0)[1] == 0:
        break
"""


class Cluster(LocalCluster):
    """A cluster without nodes, at which nothing is ever left behind; counts who looks at Ray's own view of them."""

    left: ClassVar = {"actors": [], "placement_groups": [], "seconds": 0.0}
    eyes_opened = 0

    def left_behind(self, seconds):
        return self.left

    def eyes(self):
        self.eyes_opened += 1
        told = json.dumps({"node_id": "a", "address": self.head.address, "alive": True, "wall_ns": 1, "mono_ns": 1})
        return subprocess.Popen(["sh", "-c", 'echo "$1"; exec sleep 60', "sh", told], stdout=subprocess.PIPE)


@pytest.fixture
def conduct(tmp_path, writer, ledger, monkeypatch):
    """A run under some injections; ``code`` takes the place of the training script."""
    monkeypatch.setattr(runner, "GONE_S", 0.2)
    ledger.intend("processes")
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    def make(*injections, steps=8, code=TRAIN, deadline_s=20.0, **options):
        workload = Workload((sys.executable, "-S", "-c", code, str(steps)), {}, workers=1, steps=steps)
        plan = Plan(run_id=ledger.run_id, directory=str(tmp_path), injections=injections)
        cluster = Cluster(1, 2, workspace, ledger, writer.emit, workload.base_environment())
        return Conduct(tmp_path, workload, plan, cluster, writer, deadline_s, **options)

    return make


@pytest.fixture
def of_kind(told):
    return lambda kind: [event for event in told if event.kind == kind]


@pytest.fixture
def phases(of_kind):
    return lambda kind="run.phase": [event.data["phase"] for event in of_kind(kind)]


def armed(fault, trigger, **values):
    return Injection(id=f"{fault}-0", fault=fault, rank=0, trigger=trigger, values=values)


def test_a_healthy_run_goes_through_every_phase(conduct, phases, of_kind) -> None:
    run = conduct()
    assert run.run() is True
    assert phases() == ["launch", "steady", "inject", "recover", "finish"]
    assert phases("run.phase.missed") == []
    (started,), (ended,) = of_kind("workload.start"), of_kind("workload.exit")
    assert (started.data, ended.data) == ({"pid": run.driver.pid}, {"code": 0})
    assert run.live.step == 8


def test_the_run_has_its_driver_s_log_and_its_resources_and_looks_what_is_left(conduct, of_kind, tmp_path) -> None:
    assert conduct(code=f"print('hello', flush=True)\n{TRAIN}").run() is True
    assert (tmp_path / "logs" / "driver.log").read_text() == "hello\n"
    (sample,) = of_kind("probe.resources")
    assert sample.attempt == 0
    (residue,) = of_kind("residue.checked")
    assert residue.data == {"workers": [], "actors": [], "placement_groups": [], "seconds": 0.0}


def test_a_killed_worker_is_confirmed_and_the_next_attempt_passes_its_step(conduct, phases, of_kind) -> None:
    run = conduct(armed("kill", at_step(3)))
    assert run.run() is True
    (fired,), (confirmed,) = of_kind("fault.fired"), of_kind("fault.confirmed")
    assert (fired.step, confirmed.step) == (3, 3)
    assert confirmed.data["evidence"].startswith(f"process {fired.pid} left the process table")
    assert [event.attempt for event in of_kind("attempt.start")] == [0, 1]
    assert next(event.data["pid"] for event in of_kind("process.exit")) == fired.pid
    assert phases("run.phase.missed") == []


def test_an_attack_from_outside_is_carried_out_while_its_victim_waits(conduct, ledger, told, of_kind) -> None:
    run = conduct(armed("straggler", at_step(3), seconds=0.2, stopped_s=0.03, running_s=0.03), steps=30)
    assert run.run() is True
    (due,) = of_kind("fault.due")
    assert [(e.kind, e.pid == due.pid) for e in told if e.kind.startswith("fault.")] == [
        ("fault.due", True),
        ("fault.fired", False),
        ("fault.confirmed", False),
        ("fault.healed", False),
    ]
    kinds = [entry["kind"] for entry in Account.read(ledger.path).open.values()]
    assert "stopped" not in kinds
    assert len(of_kind("attempt.start")) == 1


def test_where_a_fault_hits_nodes_ray_is_watched_and_only_there(conduct, of_kind) -> None:
    run = conduct(armed("add-node", at_step(3)), steps=20)
    run.cluster.join = lambda name="": iter(())
    assert run.run() is True
    assert [event.data["name"] for event in of_kind("cluster.node.alive")] == ["head"]
    assert run.cluster.eyes_opened == 1
    assert run._eyes._process is None
    assert [event.data["evidence"] for event in of_kind("fault.confirmed")] == ["a node has joined"]


@pytest.mark.parametrize("injections", [(), (armed("kill", at_step(3)),), (armed("freeze", at_step(3), seconds=0.05),)])
def test_where_no_fault_hits_nodes_ray_is_not_asked(conduct, injections) -> None:
    run = conduct(*injections)
    run.run()
    assert run.cluster.eyes_opened == 0


@pytest.mark.parametrize(
    ("left", "state", "nothing"),
    [
        ({"actors": [], "placement_groups": [], "seconds": 0.5}, "FINISHED", True),
        ({"actors": [], "placement_groups": [], "seconds": 0.5}, "ERRORED", True),
        ({"actors": [], "placement_groups": [], "seconds": 0.5}, "RESCHEDULING", False),
        ({"actors": [], "placement_groups": [], "seconds": 0.5}, "", False),
        ({"actors": ["A"], "placement_groups": [], "seconds": 0.5}, "FINISHED", False),
        ({"actors": [], "placement_groups": ["00"], "seconds": 0.5}, "FINISHED", False),
        ({"error": "the GCS did not answer"}, "FINISHED", False),
    ],
)
def test_a_cluster_is_as_before_when_it_was_seen_to_be_and_its_controller_came_to_its_end(
    conduct, left, state, nothing
) -> None:
    run = conduct()
    run.cluster.left = left
    run.live.state = state
    assert run.left_nothing is False
    run.run()
    assert run.left_nothing is nothing


def test_a_job_that_waits_is_watched_for_its_time_and_then_interrupted(conduct, of_kind, phases) -> None:
    first = "for attempt in range(3):"
    run = conduct(
        code=TRAIN.replace(first, f"controller.emit('controller.start')\n{first}") + "\ntime.sleep(60)", waits_s=0.3
    )
    assert run.run() is True
    (probe,), (interrupted,) = of_kind("probe.waiting"), of_kind("workload.interrupted")
    assert 0.3 <= probe.data["seconds"] < 10
    assert 0 <= probe.data["cpu_share"] < 1
    assert 0 < interrupted.data["seconds"] < 10
    assert probe.mono_ns < interrupted.mono_ns
    assert of_kind("workload.exit")[0].data["code"] not in (0, None)
    assert phases() == ["launch", "steady", "inject", "recover", "wait", "finish"]
    assert phases("run.phase.missed") == []


def test_a_job_that_is_not_to_wait_is_neither_watched_nor_interrupted(conduct, of_kind) -> None:
    assert conduct().run() is True
    assert of_kind("probe.waiting") == of_kind("workload.interrupted") == []


def test_a_training_script_that_ends_before_a_step_misses_the_gate(conduct, phases, of_kind) -> None:
    assert conduct(armed("kill", at_step(3)), code="raise SystemExit(3)").run() is False
    assert phases() == ["launch", "steady"]
    assert phases("run.phase.missed") == ["steady"]
    assert of_kind("run.deadline") == []
    assert of_kind("workload.exit")[0].data == {"code": 3}


def test_a_fault_that_never_fires_is_a_phase_missed(conduct, phases) -> None:
    assert conduct(armed("kill", before_step(3))).run() is False
    assert phases("run.phase.missed") == ["inject"]


def test_a_fault_that_fires_and_shows_no_effect_is_a_phase_missed(conduct, phases, of_kind) -> None:
    assert conduct(armed("hang", at_step(3), seconds=0.05), recovers=False).run() is False
    assert len(of_kind("fault.fired")) == 1
    assert phases("run.phase.missed") == ["inject"]


def test_going_on_without_a_restart_is_no_recovery(conduct, phases, of_kind) -> None:
    run = conduct(armed("freeze", at_step(3), seconds=0.05))
    assert run.run() is False
    assert (len(of_kind("fault.confirmed")), run.live.step) == (1, 8)
    assert phases("run.phase.missed") == ["recover"]


def test_a_run_that_does_not_get_beyond_its_fault_has_not_recovered(conduct, phases) -> None:
    code = TRAIN.replace("range(3)", "range(1)")
    assert conduct(armed("kill", at_step(3)), code=code).run() is False
    assert phases("run.phase.missed") == ["recover"]


def test_a_run_that_is_not_expected_to_recover_may_end(conduct, phases) -> None:
    code = TRAIN.replace("range(3)", "range(1)")
    assert conduct(armed("kill", at_step(3)), code=code, recovers=False).run() is True
    assert phases("run.phase.missed") == []


def test_a_run_beyond_its_deadline_is_ended_and_its_worker_named(conduct, phases, of_kind, writer, monkeypatch) -> None:
    monkeypatch.setattr(confirm, "QUIET_S", 0.1)
    run = conduct(armed("hang", at_step(3)), deadline_s=60.0, recovers=False)

    def let_it_expire(event):
        if event.kind == "fault.confirmed":
            run.watch.deadline = time.monotonic()

    writer.observe(let_it_expire)
    assert run.run() is False
    (confirmed,) = of_kind("fault.confirmed")
    assert confirmed.data["evidence"].startswith("rank 0 stands in fire (hang.py:")
    (deadline,) = of_kind("run.deadline")
    assert deadline.data == {"phase": "finish", "seconds": 60.0}
    assert run.driver.returncode == -9
    assert of_kind("workload.exit")[0].data == {"code": None}
    (worker,) = of_kind("worker.start")
    assert of_kind("residue.checked")[0].data["workers"] == [{"rank": 0, "pid": worker.pid}]


def test_a_frozen_worker_goes_on_when_the_run_ends(conduct, of_kind, eventually) -> None:
    driver_leaves_it = TRAIN.replace("os.waitpid(worker, 0)", "os.waitpid(worker, os.WUNTRACED)")
    run = conduct(armed("freeze", at_step(3), seconds=60), code=driver_leaves_it.replace("range(3)", "range(1)"))
    assert run.run() is False
    (confirmed,), (healed,) = of_kind("fault.confirmed"), of_kind("fault.healed")
    assert confirmed.mono_ns < healed.mono_ns
    (worker,) = of_kind("worker.start")
    assert eventually(lambda: not Identity(worker.pid, worker.data["start"]).stopped())


def test_an_interrupted_run_ends_its_driver_and_asks_nobody_what_is_left(conduct, of_kind, writer) -> None:
    run = conduct(steps=1000)

    def interrupt(event):
        if event.kind == "step.end":
            raise Interrupted("SIGINT")

    writer.observe(interrupt)
    with pytest.raises(Interrupted):
        run.run()
    assert run.driver.returncode == -9
    assert [event.data for event in of_kind("workload.exit")] == [{"code": None}]
    assert of_kind("residue.checked") == []


def test_nothing_of_the_run_goes_on_when_the_healing_of_an_attack_fails(conduct, of_kind, monkeypatch) -> None:
    run = conduct()
    closed = []
    monkeypatch.setattr(run._attacks, "close", lambda: 1 / 0)
    monkeypatch.setattr(run._eyes, "close", lambda: closed.append("eyes"))
    run.writer.observe(lambda event: 1 / 0 if event.kind == "step.end" else None)
    with pytest.raises(ZeroDivisionError):
        run.run()
    assert run.driver.returncode == -9
    assert closed == ["eyes"]
    assert run.watch._exits.workers == []


def test_a_training_script_that_cannot_be_started_is_an_error(conduct, of_kind, tmp_path) -> None:
    run = conduct()
    run.workload = Workload((str(tmp_path / "nowhere"),), {}, workers=1, steps=1)
    with pytest.raises(FileNotFoundError):
        run.run()
    assert of_kind("workload.start") == of_kind("workload.exit") == []


def test_what_was_written_last_is_taken_in_before_the_event_files_go(conduct, of_kind, tmp_path) -> None:
    run = conduct()
    run.run()
    steps = len(of_kind("step.end"))
    file = next(file for file in run.plan.events.iterdir() if "worker.start" in file.read_text())
    with file.open("a") as stream:
        stream.write(file.read_text().splitlines()[1] + "\n")
    run.drain()
    assert len(of_kind("step.end")) == steps + 1
    assert not Path(tmp_path, "events").exists()


def test_a_run_that_was_never_launched_is_drained_too(conduct, tmp_path) -> None:
    conduct().drain()
    assert not Path(tmp_path, "events").exists()
