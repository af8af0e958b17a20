"""What the code relies on inside Ray, one test each, so that an upgrade that changes it fails by name.

No cluster is started, and none may be: connecting by accident is turned off while these tests run.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import pickle
import subprocess
import sys
import textwrap
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray.data
import ray.train
import ray.train.torch
import ray.util
from ray._private import auto_init_hook
from ray.data.expressions import Expr, col
from ray.train.v2._internal import constants
from ray.train.v2._internal.callbacks import datasets as datasets_module
from ray.train.v2._internal.callbacks.backend_setup import BackendSetupCallback
from ray.train.v2._internal.callbacks.env_callback import _initialize_env_callbacks
from ray.train.v2._internal.execution import callback as callbacks
from ray.train.v2._internal.execution.callback_manager import CallbackManager
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
from ray.train.v2._internal.execution.checkpoint.report_handler import ReportCallbackHandler
from ray.train.v2._internal.execution.context import (
    DistributedContext,
    TrainContext,
    TrainRunContext,
    get_train_context,
    set_train_context,
)
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.controller import state as states
from ray.train.v2._internal.execution.failure_handling import FailureDecision
from ray.train.v2._internal.execution.training_report import _TrainingReport
from ray.train.v2._internal.execution.worker_group import (
    ActorMetadata,
    Worker,
    WorkerGroup,
    WorkerGroupContext,
    WorkerGroupState,
)
from ray.train.v2._internal.execution.worker_group.placement_group_handle import DefaultPlacementGroupHandle
from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker
from ray.train.v2.api import exceptions
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

import chaos.cluster.local as local_cluster
from chaos.agent import callback as agent_module
from chaos.agent import session
from chaos.agent.callback import Agent
from chaos.agent.plan import VARIABLE, Plan
from chaos.logs import KEPT
from chaos.workload import AGENT, CALLBACKS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

BASES = (
    callbacks.ControllerCallback,
    callbacks.WorkerGroupCallback,
    callbacks.ReportCallback,
    callbacks.WorkerCallback,
    callbacks.TrainContextCallback,
)
HOOKS = sorted(name for name in vars(Agent) if not name.startswith("_"))
CHECKPOINT = "checkpoint_2026-01-01_00-00-00.000001"


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ray must not connect, and must not write a log about a controller."""
    monkeypatch.setattr(auto_init_hook, "enable_auto_connect", False)
    monkeypatch.setenv(constants.ENABLE_CONTROLLER_STRUCTURED_LOGGING_ENV_VAR, "0")
    monkeypatch.delenv(VARIABLE, raising=False)
    before = ray.is_initialized()
    yield
    assert ray.is_initialized() == before


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent with a plan, as the controller holds it."""
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    made = Agent()
    made.plan = Plan(run_id="r", directory=str(tmp_path))
    made.plan.write()
    return made


def told(agent: Agent) -> list[dict[str, Any]]:
    """The events that an agent wrote; none may be a mistake of its own."""
    assert agent.plan is not None
    lines = [line for file in agent.plan.events.glob("*.jsonl") for line in file.read_text().splitlines()]
    events = [json.loads(line) for line in lines]
    assert [e for e in events if e["kind"] == "agent.error"] == []
    return events


def run_context(tmp_path: Path) -> TrainRunContext:
    return TrainRunContext(
        run_config=ray.train.RunConfig(
            name="x",
            storage_path=str(tmp_path),
            failure_config=ray.train.FailureConfig(max_failures=3),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
        train_loop_config=None,
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        backend_config=ray.train.torch.TorchConfig(),
        dataset_config=ray.train.DataConfig(),
    )


def group_context() -> WorkerGroupContext:
    return WorkerGroupContext(run_attempt_id="1", train_fn_ref=None, num_workers=2, resources_per_worker={"CPU": 1})


def default_callbacks(context: TrainRunContext, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The callbacks that a trainer makes in the driver with the agent in the environment."""
    monkeypatch.setenv(CALLBACKS, AGENT)
    trainer = SimpleNamespace(
        backend_config=context.backend_config,
        scaling_config=context.scaling_config,
        train_run_context=context,
        datasets={},
        run_config=context.run_config,
    )
    return DataParallelTrainer._create_default_callbacks(trainer)  # type: ignore[arg-type]


class StillController(TrainController):
    """A controller that is made and does nothing."""

    def _start(self) -> None:
        pass


def controller(context: TrainRunContext, made: list[Any]) -> TrainController:
    return StillController(
        train_fn_ref=None, train_run_context=context, scaling_policy=None, failure_policy=None, callbacks=made
    )


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def order(function: Any, *texts: str) -> list[int]:
    """Where texts first stand in a function's source; an absent one fails."""
    source = inspect.getsource(function)
    return [source.index(text) for text in texts]


# Getting on board


def test_the_environment_variable_that_adds_callbacks_has_our_name() -> None:
    assert constants.RAY_TRAIN_CALLBACKS_ENV_VAR == CALLBACKS


def test_the_agent_named_to_ray_is_the_agent() -> None:
    assert AGENT == AGENT == f"{Agent.__module__}.{Agent.__qualname__}"


def test_ray_makes_the_agent_from_the_environment_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CALLBACKS, f"chaos.agent.callback.Agent,{AGENT}")
    assert [type(made) for made in _initialize_env_callbacks()] == [Agent, Agent]


def test_the_agent_survives_pickling(agent: Agent) -> None:
    agent.attempt, agent.steps_of = 3, {CHECKPOINT: 10}
    copy = pickle.loads(pickle.dumps(agent))
    assert (copy.attempt, copy.steps_of, copy.plan) == (3, {CHECKPOINT: 10}, agent.plan)


def test_callbacks_of_the_environment_come_before_the_backend_is_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = default_callbacks(run_context(tmp_path), monkeypatch)
    kinds = [type(callback) for callback in made]
    assert kinds[0] is Agent
    assert BackendSetupCallback in kinds


def test_the_backend_is_set_up_in_the_hook_where_an_attempt_begins() -> None:
    assert "after_worker_group_start" not in vars(BackendSetupCallback)
    assert "after_execution_group_start" in vars(BackendSetupCallback)
    assert "after_execution_group_start" in inspect.getsource(callbacks.WorkerGroupCallback.after_worker_group_start)


def test_the_polling_interval_is_read_from_our_variable_and_reaches_the_controller() -> None:
    assert constants.HEALTH_CHECK_INTERVAL_S_ENV_VAR == "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"
    assert constants.HEALTH_CHECK_INTERVAL_S_ENV_VAR in constants.ENV_VARS_TO_PROPAGATE
    assert constants.DEFAULT_HEALTH_CHECK_INTERVAL_S == 2.0


# The hooks


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_of_the_agent_overrides_one_of_ray_with_the_same_parameters(name: str) -> None:
    overridden = [getattr(base, name) for base in BASES if hasattr(base, name)]
    assert len(overridden) == 1, "the hook exists in exactly one of the base classes"
    assert parameters(getattr(Agent, name)) == parameters(overridden[0])
    assert not inspect.iscoroutinefunction(overridden[0])


@pytest.mark.parametrize("name", ["on_worker_group_start", "on_report", "on_checkpoint_transfer"])
def test_the_hooks_that_span_a_time_are_context_managers(name: str) -> None:
    base = next(base for base in BASES if hasattr(base, name))
    assert isinstance(getattr(base(), name)(), AbstractContextManager)


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_the_base_classes_make_no_demands_on_the_constructor(base: type) -> None:
    base()


def test_the_order_of_a_group_start_is_schedule_then_context_then_group_then_backend() -> None:
    places = order(
        WorkerGroup._start_impl,
        "on_worker_group_start",
        "before_worker_group_start",
        "self._create_placement_group(",
        "self._create_workers(",
        "self._init_train_context(",
        "self._worker_group_state = ",
        "callback.after_worker_group_start(self)",
        "run_train_fn",
    )
    assert places == sorted(places)


def test_the_process_group_is_ready_before_training_starts_and_after_the_group_hook_closes() -> None:
    body = ast.parse(textwrap.dedent(inspect.getsource(WorkerGroup._start_impl)))
    span = next(n for n in ast.walk(body) if isinstance(n, ast.With) and "on_worker_group_start" in ast.unparse(n))
    assert "after_worker_group_start(self)" in ast.unparse(span)
    assert "run_train_fn" not in ast.unparse(span)


def test_a_group_tells_the_agent_and_carries_it_to_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = run_context(tmp_path)
    made = controller(context, default_callbacks(context, monkeypatch))
    group = WorkerGroup(context, group_context(), made._worker_group_callbacks_to_propagate)
    assert Agent in map(type, group._callbacks)
    assert Agent in map(type, group._worker_callbacks_to_propagate)
    assert Agent in map(type, made._controller_callbacks)


def test_a_worker_calls_the_agent_once_its_context_is_set() -> None:
    places = order(RayTrainWorker.init_train_context, "set_train_context(context)", ".after_init_train_context()")
    assert places == sorted(places)


# What the hooks read in the controller


def test_the_start_of_the_controller_tells_budgets_and_storage(agent: Agent, tmp_path: Path) -> None:
    agent.after_controller_start(run_context(tmp_path))
    (event,) = told(agent)
    assert event["data"] == {
        "experiment": str(tmp_path / "x"),
        "workers": 2,
        "max_failures": 3,
        "controller_failure_limit": -1,
        "keep": 2,
    }


def test_the_controller_gives_its_hook_the_context_of_the_run() -> None:
    assert '"after_controller_start", self._train_run_context' in inspect.getsource(TrainController._start)


def test_the_states_of_the_controller_have_the_names_that_borders_are_cut_by() -> None:
    names = {kind.name: kind.state_name for kind in states.TrainControllerStateType}
    assert names == {name: name for name in names}
    assert set(names) == {
        "INITIALIZING", "SCHEDULING", "RESCHEDULING", "RUNNING", "PREEMPTING", "RESTARTING", "RESIZING",
        "SHUTTING_DOWN", "ERRORED", "FINISHED", "ABORTED",
    }  # fmt: skip


def test_a_change_of_state_tells_both_names_and_the_error(agent: Agent) -> None:
    error = ray.train.TrainingFailedError("worker died")
    agent.after_controller_state_update(states.RunningState(), states.RestartingState(training_failed_error=error))
    (event,) = told(agent)
    expected = {"from": "RUNNING", "to": "RESTARTING", "error": "TrainingFailedError", "message": "worker died"}
    assert event["data"] == expected


def test_an_update_without_a_change_of_state_is_recognised(agent: Agent) -> None:
    agent.after_controller_state_update(states.RunningState(), states.RunningState())
    assert told(agent) == []


@pytest.mark.parametrize("kind", [states.RestartingState, states.ReschedulingState, states.ErroredState])
def test_the_states_after_a_failure_carry_its_error(kind: type) -> None:
    error = ray.train.TrainingFailedError("worker died")
    assert kind(training_failed_error=error).training_failed_error is error


def test_a_failure_is_decided_by_the_words_that_the_budget_check_reads(agent: Agent) -> None:
    assert {decision.name: decision.value for decision in FailureDecision} == {
        "RETRY": "RETRY", "RAISE": "RAISE", "NOOP": "NOOP",
    }  # fmt: skip
    agent.before_controller_execute_failure_decision(FailureDecision.RETRY)
    assert told(agent)[0]["data"] == {"decision": "RETRY"}


def test_an_exception_in_a_controller_hook_ends_the_run_so_ours_must_be_harmless() -> None:
    class Broken(callbacks.ControllerCallback):
        def before_controller_abort(self) -> None:
            raise RuntimeError("mine")

    with pytest.raises(ray.train.TrainingFailedError):
        CallbackManager([Broken()]).invoke("before_controller_abort")


def test_scheduling_tells_the_size_of_the_group(agent: Agent) -> None:
    agent.before_worker_group_start(group_context())
    assert told(agent)[0]["data"] == {"workers": 2}


def test_a_started_group_tells_ranks_processes_nodes_and_placement(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = [
        Worker(
            actor=None,
            metadata=ActorMetadata(node_id="n", node_ip=f"127.0.0.{rank}", hostname="h", accelerator_ids={}, pid=rank),
            resources={},
            distributed_context=DistributedContext(rank, 2, 0, 1, rank),
        )
        for rank in range(2)
    ]
    group = WorkerGroup(run_context(tmp_path), group_context())
    handle = DefaultPlacementGroupHandle("the group")  # type: ignore[arg-type]
    group._worker_group_state = WorkerGroupState(0.0, handle, workers, None)
    asked: list[Any] = []
    table = {"stats": {"end_to_end_creation_latency_ms": 12.5}}
    monkeypatch.setattr(ray.util, "placement_group_table", lambda placed: asked.append(placed) or table)
    agent.after_worker_group_start(group)
    (event,) = told(agent)
    assert asked == ["the group"]
    assert event["world_size"] == 2
    assert event["data"]["placement_ms"] == 12.5
    assert event["data"]["workers"] == [{"rank": r, "pid": r, "node": f"127.0.0.{r}"} for r in range(2)]


def test_the_table_of_placement_groups_holds_the_creation_latency_in_milliseconds() -> None:
    from ray._private.state import GlobalState

    source = inspect.getsource(GlobalState)
    assert '"stats": {' in source
    assert '"end_to_end_creation_latency_ms": (' in source
    assert parameters(ray.util.placement_group_table) == ["placement_group"]


def test_the_address_of_a_node_is_asked_without_arguments() -> None:
    inspect.signature(ray.util.get_node_ip_address).bind()


# Reports and commits


def test_the_checkpoint_manager_registers_before_the_agent_hears_of_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = run_context(tmp_path)
    made = controller(context, default_callbacks(context, monkeypatch))
    heard = [type(callback) for callback in made._report_handler._report_callbacks]
    assert heard[:2] == [CheckpointManager, Agent]


class Heard(callbacks.ReportCallback):
    """Notes the arguments of each report."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []

    def after_report(self, training_report: Any, metrics: Any) -> None:
        self.reports.append({"training_report": training_report, "metrics": metrics})


def _polled(*steps: int | None) -> Any:
    reports = [None if step is None else _TrainingReport(None, {"step": step}, False) for step in steps]
    return SimpleNamespace(worker_statuses=dict(enumerate(SimpleNamespace(training_report=r) for r in reports)))


def test_a_report_is_handed_on_when_every_rank_of_it_has_been_polled() -> None:
    heard = Heard()
    handler = ReportCallbackHandler([heard])
    handler.after_worker_group_start(deque([0, 1]))  # type: ignore[arg-type]
    handler.after_worker_group_poll_status(_polled(1, None))
    assert heard.reports == []
    handler.after_worker_group_poll_status(_polled(2, 1))
    assert [report["metrics"] for report in heard.reports] == [[{"step": 1}, {"step": 1}]]


def test_reports_that_were_not_polled_on_every_rank_are_lost_with_the_group() -> None:
    heard = Heard()
    handler = ReportCallbackHandler([heard])
    handler.after_worker_group_start(deque([0, 1]))  # type: ignore[arg-type]
    handler.after_worker_group_poll_status(_polled(1, None))
    handler.before_worker_group_shutdown(deque([0, 1]))  # type: ignore[arg-type]
    handler.after_worker_group_start(deque([0, 1]))  # type: ignore[arg-type]
    handler.after_worker_group_poll_status(_polled(None, 1))
    assert heard.reports == []


def test_a_committed_report_gives_the_checkpoint_by_path_and_the_step_by_number(agent: Agent, tmp_path: Path) -> None:
    assert agent.plan is not None
    agent.attempt = 1
    (agent.plan.board / "report-0-1").write_text("10")
    checkpoint = ray.train.Checkpoint(str(tmp_path / CHECKPOINT))
    agent.after_report(training_report=_TrainingReport(checkpoint, {}, False), metrics=[{}])
    (event,) = told(agent)
    assert (event["step"], event["data"]) == (10, {"checkpoint": CHECKPOINT})
    assert agent.steps_of == {CHECKPOINT: 10}


def test_a_report_without_a_checkpoint_has_none(agent: Agent) -> None:
    agent.after_report(training_report=_TrainingReport(None, {}, False), metrics=[{}])
    assert (told(agent), agent.reports) == ([], 1)


def test_the_queue_of_reports_holds_one_and_is_emptied_by_one_at_each_poll() -> None:
    assert "queue.Queue(maxsize=1)" in inspect.getsource(RayTrainWorker.init_train_context)
    assert inspect.getsource(RayTrainWorker.poll_status).count("get_nowait()") == 1


def test_workers_number_their_reports_on_from_those_that_were_committed() -> None:
    given = inspect.getsource(CheckpointManager.before_init_train_context)
    assert '"current_report_index": [self._current_report_index]' in given
    assert "self.report_call_index = self.current_report_index" in inspect.getsource(TrainContext.__post_init__)


async def _told_to(manager: CheckpointManager, report: _TrainingReport) -> None:
    """Give a report to the checkpoint manager, which notifies its waiters in the running event loop."""
    manager.after_report(training_report=report, metrics=[report.metrics])
    await asyncio.sleep(0)


def test_every_committed_report_is_counted_once(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    manager = CheckpointManager(context.run_config.checkpoint_config, context.run_config.storage_context)
    asyncio.run(_told_to(manager, _TrainingReport(None, {}, False)))
    assert manager._current_report_index == 1


def test_the_hook_around_a_report_begins_before_the_report_is_numbered() -> None:
    places = order(TrainContext.report, "callback.on_report", "self.report_call_index += 1", "_upload_checkpoint")
    assert places == sorted(places)


def test_the_hook_around_a_transfer_spans_the_copy_of_the_files() -> None:
    places = order(TrainContext._upload_checkpoint, "callback.on_checkpoint_transfer", "persist_current_checkpoint(")
    assert places == sorted(places)


# What the hooks read in a worker


class Context(TrainContext):
    """A worker's context without the cluster around it."""

    def __init__(self, checkpoint: Any, reports: int) -> None:
        self.distributed_context = DistributedContext(0, 2, 0, 1, 0)
        self.checkpoint = checkpoint
        self.current_report_index = reports
        self.__post_init__()


@pytest.fixture
def in_worker(agent: Agent, tmp_path: Path) -> Iterator[Agent]:
    """The agent in a worker that was given a checkpoint of step 10, after one committed report."""
    agent.steps_of = {CHECKPOINT: 10}
    agent.attempt = 1
    set_train_context(Context(ray.train.Checkpoint(str(tmp_path / CHECKPOINT)), 1))
    agent.after_init_train_context()
    me = session.session()
    yield agent
    if me is not None:
        me.stop()
        me._end_restore(exact=True)
    session.begin(None)
    set_train_context(None)


def test_a_worker_learns_rank_world_size_and_checkpoint_from_its_context(in_worker: Agent) -> None:
    event = next(e for e in told(in_worker) if e["kind"] == "worker.start")
    assert (event["rank"], event["world_size"], event["attempt"]) == (0, 2, 1)
    assert (event["data"]["checkpoint"], event["data"]["steps"]) == (CHECKPOINT, 10)


def test_rank_zero_notes_its_step_under_the_number_that_the_report_will_get(in_worker: Agent) -> None:
    assert in_worker.plan is not None
    with in_worker.on_report():
        get_train_context().report_call_index += 1
    assert get_train_context().report_call_index == 2
    assert (in_worker.plan.board / "report-1-1").read_text() == "10"
    assert [e["kind"] for e in told(in_worker)] == ["worker.start", "report.begin", "report.end"]


def test_the_agent_asks_the_context_of_this_process() -> None:
    set_train_context(mine := Context(None, 0))
    try:
        assert agent_module._train_context() is mine
    finally:
        set_train_context(None)


def test_a_context_has_the_attributes_that_the_agent_reads() -> None:
    fields = {"checkpoint", "report_call_index", "current_report_index"}
    assert fields <= set(TrainContext.__dataclass_fields__)
    assert callable(TrainContext.get_world_rank)
    assert callable(TrainContext.get_world_size)


# Clusters


def test_every_option_of_ray_start_that_nodes_are_started_with_is_understood() -> None:
    from ray.scripts.scripts import start

    source = inspect.getsource(local_cluster.LocalCluster)
    options = {option.split("=")[0].split("{")[0] for option in _strings(source) if option.startswith("--")}
    known = {option for parameter in start.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert len(options) >= 12
    assert options - known == set()


def _strings(source: str) -> set[str]:
    """Every string in a source, an f-string by its literal beginning."""
    tree = ast.parse(textwrap.dedent(source))
    parts = [node.values[0] for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) and node.values]
    nodes = [*parts, *ast.walk(tree)]
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_ray_start_takes_the_head_and_the_worker_command_line() -> None:
    from ray.scripts.scripts import start

    common = [
        "--node-ip-address=127.0.0.1", "--num-cpus=0", "--num-gpus=0", "--object-store-memory=209715200",
        "--min-worker-port=0", "--max-worker-port=0", "--temp-dir=x", "--disable-usage-stats",
    ]  # fmt: skip
    head = start.make_context("start", ["--head", "--port=0", "--include-dashboard=false", "--no-monitor", *common])
    worker = start.make_context("start", ["--address=127.0.0.1:1", *common])
    assert (head.params["head"], head.params["no_monitor"], head.params["include_dashboard"]) == (True, True, False)
    assert (worker.params["address"], worker.params["num_cpus"]) == ("127.0.0.1:1", 0)


def test_ray_scripts_can_be_run_as_a_module() -> None:
    import ray.scripts.scripts as scripts

    assert '__name__ == "__main__"' in inspect.getsource(scripts)
    assert callable(scripts.main)


def test_the_port_of_the_gcs_is_written_to_a_file_of_the_session() -> None:
    from ray import _raylet
    from ray._private.node import Node

    assert _raylet.GCS_SERVER_PORT_NAME == "gcs_server_port"
    assert callable(_raylet.get_port_filename)
    assert 'f"session_{date_str}_' in inspect.getsource(Node)


def test_the_members_of_a_cluster_can_be_asked_of_the_gcs() -> None:
    from ray._raylet import GcsClient, InnerGcsClient
    from ray.core.generated.gcs_pb2 import GcsNodeInfo

    from chaos.cluster.members import ALIVE, alive

    assert "get_all_node_info" in dir(InnerGcsClient), "the client hands on what the inner one has"
    assert hasattr(GcsClient, "__getattr__")
    assert ALIVE == GcsNodeInfo.ALIVE
    nodes = [GcsNodeInfo(node_id=b"\1", node_manager_address="127.0.0.1", state=GcsNodeInfo.ALIVE)]
    nodes += [GcsNodeInfo(node_id=b"\2", node_manager_address="127.0.0.2", state=GcsNodeInfo.DEAD)]
    client = SimpleNamespace(get_all_node_info=lambda: dict(enumerate(nodes)))
    assert alive(client) == {"127.0.0.1": "01"}  # type: ignore[arg-type]


def test_mode_and_token_of_a_cluster_are_taken_from_the_environment() -> None:
    code = (
        "from ray._raylet import AuthenticationMode, AuthenticationTokenLoader, get_authentication_mode\n"
        "assert get_authentication_mode() == AuthenticationMode.TOKEN\n"
        "assert AuthenticationTokenLoader.instance().has_token()\n"
    )
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 32, "RAY_AUTH_TOKEN_AGENT": ""}
    environment.pop("RAY_AUTH_TOKEN_AGENT")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_address_and_usage_variables_have_our_names() -> None:
    from ray._common.usage import usage_constants
    from ray._private import ray_constants

    assert ray_constants.RAY_ADDRESS_ENVIRONMENT_VARIABLE == "RAY_ADDRESS"
    assert usage_constants.USAGE_STATS_ENABLED_ENV_VAR == "RAY_USAGE_STATS_ENABLED"


def test_the_logs_that_are_kept_have_the_names_that_ray_gives() -> None:
    from ray._private import ray_constants

    assert f"{ray_constants.PROCESS_TYPE_RAYLET}.*" in KEPT
    assert f"{ray_constants.PROCESS_TYPE_GCS_SERVER}.*" in KEPT


# The trainer


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (ray.init, {"address", "num_cpus", "include_dashboard", "logging_config"}),
        (ray.LoggingConfig, {"log_level"}),
        (ray.train.RunConfig, {"name", "storage_path", "failure_config", "checkpoint_config"}),
        (ray.train.ScalingConfig, {"num_workers", "placement_strategy"}),
        (ray.train.FailureConfig, {"max_failures"}),
        (ray.train.CheckpointConfig, {"num_to_keep"}),
        (ray.train.DataConfig, {"execution_options", "enable_shard_locality"}),
        (ray.train.torch.TorchConfig, {"timeout_s"}),
        (ray.data.ExecutionOptions, {"preserve_order"}),
        (ray.data.read_parquet, {"override_num_blocks"}),
        (ray.data.Dataset.filter, {"expr"}),
        (ray.data.Dataset.repartition, {"target_num_rows_per_block"}),
        (ray.data.Dataset.streaming_split, {"equal", "locality_hints"}),
        (ray.data.DataIterator.iter_batches, {"batch_size", "prefetch_batches"}),
        (ray.data.DataIterator.iter_torch_batches, {"batch_size", "dtypes"}),
        (ray.train.report, {"metrics", "checkpoint"}),
        (ray.train.get_dataset_shard, {"dataset_name"}),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_a_function_that_the_trainer_calls_has_the_arguments_it_is_given(function: Any, names: set[str]) -> None:
    assert names - set(parameters(function)) == set()


def test_a_torch_trainer_has_the_arguments_it_is_given() -> None:
    names = {"train_loop_config", "torch_config", "scaling_config", "run_config", "datasets", "dataset_config"}
    assert names - set(parameters(ray.train.torch.TorchTrainer.__init__)) == set()
    assert parameters(ray.train.torch.TorchTrainer.__init__)[1] == "train_loop_per_worker"
    assert issubclass(ray.train.torch.TorchTrainer, DataParallelTrainer)


def test_no_failure_is_survived_unless_asked_for() -> None:
    assert ray.train.FailureConfig().max_failures == 0


def test_the_process_group_times_out_after_half_an_hour_unless_told_otherwise() -> None:
    assert ray.train.torch.TorchConfig().timeout_s == 1800


def test_every_failure_of_training_is_caught_as_one_kind() -> None:
    for kind in (exceptions.WorkerGroupError, exceptions.ControllerError, exceptions.PreemptionError):
        assert issubclass(kind, ray.train.TrainingFailedError)


def test_the_controller_keeps_what_it_committed_in_the_file_that_the_trainer_looks_for() -> None:
    from trainer import data

    assert constants.CHECKPOINT_MANAGER_SNAPSHOT_FILENAME == "checkpoint_manager_snapshot.json"
    assert constants.CHECKPOINT_MANAGER_SNAPSHOT_FILENAME in inspect.getsource(data.committed_step)


def test_the_step_of_the_last_commit_can_be_read_from_a_stored_run(tmp_path: Path) -> None:
    from trainer.data import committed_step

    run = tmp_path / "x"
    assert committed_step(str(run)) == 0
    context = run_context(tmp_path)
    manager = CheckpointManager(context.run_config.checkpoint_config, context.run_config.storage_context)
    (run / CHECKPOINT).mkdir(parents=True)
    checkpoint = ray.train.Checkpoint(str(run / CHECKPOINT))
    report = _TrainingReport(checkpoint, {"step": 10, "loss": 1.0}, False)
    asyncio.run(_told_to(manager, report))
    assert committed_step(str(run)) == 10
    assert ray.train.Result.from_path(str(run)).metrics["step"] == 10


def test_a_callable_dataset_is_called_anew_at_every_start_of_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(datasets_module, "RayDatasetShardProvider", lambda **options: given.append(options["datasets"]))
    calls = iter(("first", "second"))
    made = datasets_module.DatasetsCallback(run_context(tmp_path), {"rest": lambda: next(calls)})
    workers = [SimpleNamespace(metadata=SimpleNamespace(node_id="n"))]
    made.before_init_train_context(workers)  # type: ignore[arg-type]
    made.before_init_train_context(workers)  # type: ignore[arg-type]
    assert given == [{"rest": "first"}, {"rest": "second"}]


def test_datasets_are_split_equally_among_the_ranks_blind_to_where_blocks_lie() -> None:
    from trainer.data import ingest

    class Split:
        name = "rest"
        context = SimpleNamespace(execution_options=None)

        def copy(self, other: Any) -> Split:
            return self

        def streaming_split(self, number: int, **options: Any) -> list[Any]:
            asked.append((number, options))
            return [self] * number

    asked: list[Any] = []
    ingest().configure({"rest": Split()}, 2, None, ["a", "b"])  # type: ignore[dict-item]
    assert asked == [(2, {"equal": True, "locality_hints": None})]
    assert Split.context.execution_options.preserve_order is True


def test_the_second_parquet_reader_can_be_turned_off() -> None:
    assert isinstance(ray.data.DataContext().use_datasource_v2, bool)


def test_rows_can_be_filtered_by_an_expression_over_a_column() -> None:
    assert isinstance((col("id") >= 3) & (col("id") < 9), Expr)


def test_a_checkpoint_is_made_from_a_folder_and_read_as_one(tmp_path: Path) -> None:
    checkpoint = ray.train.Checkpoint.from_directory(str(tmp_path))
    with checkpoint.as_directory() as folder:
        assert Path(folder) == Path(checkpoint.path) == tmp_path


def test_the_functions_that_the_training_loop_calls_exist() -> None:
    assert callable(ray.train.get_checkpoint)
    assert callable(ray.train.torch.get_device)
    assert callable(ray.cluster_resources)
