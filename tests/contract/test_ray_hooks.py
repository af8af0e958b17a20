"""How the agent gets on board of Ray Train, and what its hooks read in the controller."""

from __future__ import annotations

import ast
import inspect
import pickle
import textwrap
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import ray
import ray.data
import ray.train
import ray.train.torch
import ray.util
from ray.exceptions import ActorDiedError
from ray.train.v2._internal import constants
from ray.train.v2._internal.callbacks.backend_setup import BackendSetupCallback
from ray.train.v2._internal.callbacks.env_callback import _initialize_env_callbacks
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2._internal.execution import callback as callbacks
from ray.train.v2._internal.execution.callback_manager import CallbackManager
from ray.train.v2._internal.execution.context import (
    DistributedContext,
)
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.controller import state as states
from ray.train.v2._internal.execution.failure_handling import FailureDecision
from ray.train.v2._internal.execution.worker_group import (
    ActorMetadata,
    Worker,
    WorkerGroup,
    WorkerGroupState,
)
from ray.train.v2._internal.execution.worker_group.placement_group_handle import DefaultPlacementGroupHandle
from ray.train.v2._internal.execution.worker_group.poll import WorkerGroupPollStatus, WorkerStatus
from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker
from ray.train.v2._internal.util import construct_user_exception_with_traceback

from chaos.agent.callback import Agent
from chaos.faults.base import InjectedError
from chaos.process import current
from chaos.workload import AGENT, CALLBACKS
from tests.contract.parts import (
    BASES,
    CHECKPOINT,
    HOOKS,
    controller,
    default_callbacks,
    group_context,
    order,
    parameters,
    run_context,
    told,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


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
        "filesystem": "local",
        "found": [],
        "workers": 2,
        "claim": {"CPU": 1},
        "timeout_s": 1800,
        "max_failures": 3,
        "max_preemption_failures": -1,
        "controller_failure_limit": -1,
        "keep": 2,
        "score": None,
        "start": current().start,
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


def _polled(*errors: Exception | None) -> WorkerGroupPollStatus:
    return WorkerGroupPollStatus({rank: WorkerStatus(running=True, error=e) for rank, e in enumerate(errors)})


def test_every_poll_of_a_group_tells_the_agent_its_errors() -> None:
    told_of = inspect.getsource(WorkerGroup.poll_status)
    assert "for callback in self._callbacks:" in told_of
    assert "callback.after_worker_group_poll_status(worker_group_poll_status)" in told_of


def test_an_error_of_the_program_is_told_as_itself(agent: Agent) -> None:
    agent.attempt = 1
    agent.after_worker_group_poll_status(_polled(None, construct_user_exception_with_traceback(InjectedError("mine"))))
    (event,) = told(agent)
    assert (event["kind"], event["attempt"], event["rank"]) == ("worker.error", 0, 1)
    assert event["data"] == {"error": "InjectedError", "message": "mine"}


def test_the_death_of_a_worker_is_told_by_what_failed_its_health_check(agent: Agent) -> None:
    agent.after_worker_group_poll_status(_polled(WorkerHealthCheckFailedError("no answer", ActorDiedError())))
    (event,) = told(agent)
    assert event["data"]["error"] == "ActorDiedError"
    assert event["data"]["message"].startswith("no answer")


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
