"""What the loss, the freezing and the draining of nodes, and the watchdog, rely on in Ray."""

from __future__ import annotations

import dataclasses
import inspect
import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray._raylet
import ray.train
from ray._raylet import Config, InnerGcsClient, NodeID
from ray.core.generated import autoscaler_pb2
from ray.core.generated.gcs_pb2 import GcsNodeInfo
from ray.exceptions import RayActorError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.controller import state as states
from ray.train.v2._internal.execution.failure_handling import FailureDecision
from ray.train.v2._internal.execution.failure_handling.default import DefaultFailurePolicy
from ray.train.v2._internal.execution.worker_group import WorkerGroup
from ray.train.v2._internal.execution.worker_group.poll import WorkerGroupPollStatus, WorkerStatus
from ray.train.v2.api.exceptions import PreemptionError, WorkerGroupError

from chaos import eyes
from chaos.agent import watchdog
from chaos.agent.callback import Agent
from chaos.agent.watchdog import NoProgress, Watchdog
from chaos.cluster import drain, health
from tests.contract.parts import parameters, told

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


# Draining


class Client:
    """A client of the GCS that notes what it is asked, and answers as told."""

    answer: tuple[bool, str] = (True, "")
    asked: list[Any]

    def __init__(self, address: str) -> None:
        type(self).asked = [address]

    def drain_node(self, *arguments: Any) -> tuple[bool, str]:
        inspect.signature(InnerGcsClient.drain_node).bind(self, *arguments)
        self.asked.extend(arguments)
        return self.answer


def test_a_drain_asks_the_gcs_with_the_arguments_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "GcsClient", Client)
    assert drain.drain("127.0.0.1:1", "ab", 17) == (True, "")
    assert Client.asked == ["127.0.0.1:1", "ab", autoscaler_pb2.DRAIN_NODE_REASON_PREEMPTION, drain.MESSAGE, 17]
    wanted = ["self", "node_id", "reason", "reason_message", "deadline_timestamp_ms"]
    assert parameters(InnerGcsClient.drain_node)[:5] == wanted


def test_a_preemption_is_a_reason_of_its_own() -> None:
    reasons = dict(autoscaler_pb2.DrainNodeReason.items())
    assert reasons["DRAIN_NODE_REASON_PREEMPTION"] == autoscaler_pb2.DRAIN_NODE_REASON_PREEMPTION
    assert len(set(reasons.values())) == len(reasons) >= 3


def test_ray_itself_drains_by_the_id_in_hex_and_milliseconds_of_unix_time() -> None:
    from ray.scripts.scripts import drain_node

    source = inspect.getsource(drain_node.callback)
    assert "NodeID.from_hex(node_id)" in source
    assert "is_accepted, rejection_error_message = gcs_client.drain_node(" in source
    assert "time.time_ns() // 1000000" in source


@pytest.mark.parametrize(("answer", "code"), [((True, ""), None), ((False, "no such node"), "no such node")])
def test_a_notice_that_is_refused_ends_the_process_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[bool, str], code: str | None
) -> None:
    monkeypatch.setattr(ray._raylet, "GcsClient", Client)
    monkeypatch.setattr(Client, "answer", answer)
    monkeypatch.setattr(sys, "argv", ["drain", "127.0.0.1:1", "ab", "17"])
    monkeypatch.delitem(sys.modules, "chaos.cluster.drain")
    if code is None:
        runpy.run_path(drain.__file__, run_name="__main__")
    else:
        with pytest.raises(SystemExit, match=code):
            runpy.run_path(drain.__file__, run_name="__main__")
    assert Client.asked[0] == "127.0.0.1:1"
    assert Client.asked[-1] == 17


def test_what_a_training_loop_learns_of_a_preemption() -> None:
    info = ray.train.PreemptionInfo(deadline_ms=1000, preempted_node_to_ranks={"b": [3, 1], "a": [1]})
    assert [field.name for field in dataclasses.fields(info)] == ["deadline_ms", "preempted_node_to_ranks"]
    assert (info.deadline_ms, info.preempted_ranks, info.preempted_node_ids) == (1000, [1, 3], ["a", "b"])
    assert callable(ray.train.get_preemption_info)
    assert parameters(ray.train.get_preemption_info) == []


def test_a_preemption_has_a_budget_of_its_own_without_a_limit() -> None:
    failures = ray.train.FailureConfig()
    assert (failures.max_failures, failures.max_preemption_failures) == (0, -1)
    info = ray.train.PreemptionInfo(deadline_ms=None, preempted_node_to_ranks={})
    assert DefaultFailurePolicy(failures).make_decision(PreemptionError(info)) is FailureDecision.RETRY


@pytest.mark.parametrize("preempted", [True, False])
def test_a_worker_that_died_with_a_node_that_was_taken_away_is_charged_as_a_preemption(
    agent: Agent, preempted: bool
) -> None:
    """Ray's own reading of such an error, and the agent's."""
    died = WorkerHealthCheckFailedError("gone", RayActorError(preempted=preempted))
    error = WorkerGroupError("gone", {0: RuntimeError("peer"), 1: died})
    policy = DefaultFailurePolicy(ray.train.FailureConfig(max_failures=0))
    wanted = FailureDecision.RETRY if preempted else FailureDecision.RAISE
    assert policy.make_decision(error) is wanted
    agent.after_controller_state_update(states.RunningState(), states.RestartingState(training_failed_error=error))
    assert ("preempted" in told(agent)[0]["data"]) is preempted


# Ray's view of the nodes


def node(number: int, state: Any) -> tuple[NodeID, GcsNodeInfo]:
    """A node as the GCS lists it: its id, and its record."""
    key = NodeID(bytes([number]) * NodeID.size())
    return key, GcsNodeInfo(node_id=key.binary(), node_manager_address=f"127.0.0.{number}", state=state)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[dict[NodeID, GcsNodeInfo]]:
    """What the GCS answers, look by look; the one who looks is interrupted after the last."""
    answers: list[dict[NodeID, GcsNodeInfo]] = []
    monkeypatch.setattr(health, "GcsClient", lambda address: SimpleNamespace(get_all_node_info=lambda: answers.pop(0)))

    def pause(seconds: float) -> None:
        assert seconds == health.LOOK_S
        if not answers:
            raise KeyboardInterrupt

    monkeypatch.setattr(health.time, "sleep", pause)
    return answers


def seen(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, bool]]:
    """Which nodes were told alive or dead, in order, by the last number of their addresses."""
    with pytest.raises(KeyboardInterrupt):
        health.watch("127.0.0.1:1")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(set(line) == {"node_id", "address", "alive", "wall_ns", "mono_ns"} for line in lines)
    assert all(line["node_id"] == f"{int(line['address'].rpartition('.')[2]):02x}" * NodeID.size() for line in lines)
    return [(line["address"].rpartition(".")[2], line["alive"]) for line in lines]


def test_every_change_of_a_node_is_told_once(
    looks: list[dict[NodeID, GcsNodeInfo]], capsys: pytest.CaptureFixture[str]
) -> None:
    alive, dead = GcsNodeInfo.ALIVE, GcsNodeInfo.DEAD
    first, second, third = [dict([node(n, alive)]) for n in (1, 2, 3)]
    lost = dict([node(2, dead)])
    looks += [first, first | second, first | second, first | lost, first | lost, first | lost | third]
    assert seen(capsys) == [("1", True), ("2", True), ("2", False), ("3", True)]


def test_a_node_that_an_earlier_run_has_lost_is_not_told(
    looks: list[dict[NodeID, GcsNodeInfo]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The GCS keeps the dead in its list; one that comes back has another id."""
    before, now = dict([node(1, GcsNodeInfo.DEAD)]), dict([node(2, GcsNodeInfo.ALIVE)])
    looks += [before | now, before | now]
    assert seen(capsys) == [("2", True)]


def test_how_often_ray_is_asked_is_told_with_each_change() -> None:
    assert eyes.RESOLUTION_MS == health.RESOLUTION_MS


def test_the_gcs_lists_its_nodes_by_their_ids_with_address_and_state() -> None:
    inspect.signature(InnerGcsClient.get_all_node_info).bind(None)
    assert {"node_id", "node_manager_address", "state"} <= set(GcsNodeInfo.DESCRIPTOR.fields_by_name)
    key, info = node(7, GcsNodeInfo.ALIVE)
    assert key.hex() == info.node_id.hex() == "07" * 28


# Raylets


def test_the_process_that_is_the_node_to_ray_is_called_raylet() -> None:
    from ray._private import services

    assert Path(services.RAYLET_EXECUTABLE).name == "raylet"


def test_labels_are_taken_as_pairs_joined_by_commas() -> None:
    from ray._private.label_utils import parse_node_labels_string

    assert parse_node_labels_string("zone=b,spot=yes") == {"zone": "b", "spot": "yes"}


def test_the_settings_of_the_node_health_check_have_our_names_and_the_documented_defaults() -> None:
    from scenarios.library.nodes import HEALTH

    documented = {
        "health_check_initial_delay_ms": 5000,
        "health_check_period_ms": 3000,
        "health_check_timeout_ms": 10000,
        "health_check_failure_threshold": 5,
    }
    assert {name: getattr(Config, name)() for name in documented} == documented
    assert set(HEALTH) == {f"RAY_{name}" for name in documented}


# The watchdog


@pytest.fixture
def stuck(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent in its first attempt, of two ranks of which none has made a step; its watchdog's patience is over."""
    assert agent.plan is not None
    monkeypatch.setattr(watchdog, "STARTING_S", 0.0)
    agent.attempt, agent._watchdog = 1, Watchdog(agent.plan.board, 0, 2, 1e-9)
    return agent


def polled(*statuses: WorkerStatus) -> WorkerGroupPollStatus:
    return WorkerGroupPollStatus(dict(enumerate(statuses)))


def test_the_watchdog_speaks_through_the_poll_of_a_group_whose_ranks_all_run(stuck: Agent) -> None:
    with pytest.raises(WorkerGroupError, match="no step on any rank"):
        stuck.after_worker_group_poll_status(polled(WorkerStatus(running=True), WorkerStatus(running=True)))
    assert [event["kind"] for event in told(stuck)] == ["watchdog.fired"]


@pytest.mark.parametrize(
    "other", [WorkerStatus(running=False), WorkerStatus(running=True, error=ValueError("mine"))], ids=["over", "failed"]
)
def test_the_watchdog_is_silent_in_a_group_of_which_a_rank_has_ended(stuck: Agent, other: WorkerStatus) -> None:
    stuck.after_worker_group_poll_status(polled(WorkerStatus(running=True), other))
    assert "watchdog.fired" not in [event["kind"] for event in told(stuck)]


def test_the_error_of_the_watchdog_is_one_that_ray_retries_within_the_budget(tmp_path: Path) -> None:
    error = Watchdog(tmp_path, 0, 2, 8.0).error({0: 5, 1: 4})
    assert parameters(WorkerGroupError.__init__) == ["self", "error_message", "worker_failures"]
    assert isinstance(error, ray.train.TrainingFailedError)
    assert {rank: type(failure) for rank, failure in error.worker_failures.items()} == {1: NoProgress}
    policy = DefaultFailurePolicy(ray.train.FailureConfig(max_failures=1))
    assert [policy.make_decision(error) for _ in range(2)] == [FailureDecision.RETRY, FailureDecision.RAISE]


def test_an_error_out_of_a_poll_reaches_the_failure_policy_as_itself() -> None:
    polls = inspect.getsource(WorkerGroup.poll_status)
    assert "try:" not in polls, "what the hook raises is not caught there"
    loop = inspect.getsource(TrainController._run_control_loop_iteration)
    assert "if isinstance(e, TrainingFailedError):\n                training_error = e" in loop
    assert "self._failure_policy.make_decision(" in loop
