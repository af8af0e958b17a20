"""How Ray Train hands reports on, and what the agent's hooks read in a worker."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray.data
import ray.train
import ray.train.torch
import ray.util
from ray.train.v2._internal.execution import callback as callbacks
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
from ray.train.v2._internal.execution.checkpoint.report_handler import ReportCallbackHandler
from ray.train.v2._internal.execution.context import (
    DistributedContext,
    TrainContext,
    get_train_context,
    set_train_context,
)
from ray.train.v2._internal.execution.training_report import _TrainingReport
from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker
from ray.train.v2._internal.util import invoke_context_managers

from chaos.agent import callback as agent_module
from chaos.agent import session
from chaos.agent.callback import Agent
from chaos.agent.plan import Injection, Plan
from chaos.faults.base import InjectedError
from chaos.triggers import in_phase
from tests.contract.parts import CHECKPOINT, controller, default_callbacks, order, run_context, told, told_to

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


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


def test_every_committed_report_is_counted_once(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    manager = CheckpointManager(context.run_config.checkpoint_config, context.run_config.storage_context)
    asyncio.run(told_to(manager, _TrainingReport(None, {}, False)))
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
        self.storage_context = SimpleNamespace(experiment_fs_path="/storage/x")  # type: ignore[assignment]
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


def test_a_transfer_tells_where_ray_copies_the_files_of_this_rank(
    agent: Agent, in_worker: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent takes the name from a variable of its caller, and the folder from the storage of the context."""
    assert agent.plan is not None
    storage, context = run_context(tmp_path).run_config.storage_context, get_train_context()
    context.storage_context = storage
    execution = SimpleNamespace(train_context_callbacks=[in_worker])
    monkeypatch.setattr(context, "execution_context", execution, raising=False)
    reached: list[tuple[str, str]] = []
    monkeypatch.setattr(session.Session, "reach", lambda me, phase, place="": reached.append((phase, place)))
    local = tmp_path / "local"
    local.mkdir()
    (local / "__0_0.distcp").write_text("shard")
    checkpoint = ray.train.Checkpoint.from_directory(str(local))
    report = context._upload_checkpoint(CHECKPOINT, {}, checkpoint)
    there = Path(storage.experiment_fs_path) / CHECKPOINT
    assert (there / "__0_0.distcp").read_text() == "shard"
    assert report.checkpoint.path == str(there)
    assert reached == [("transfer", str(there))]
    begin = next(event for event in told(in_worker) if event["kind"] == "checkpoint.transfer.begin")
    assert begin["data"] == {"checkpoint": CHECKPOINT}


def test_the_name_of_a_checkpoint_is_a_variable_of_the_function_that_copies_it() -> None:
    assert "checkpoint_dir_name" in inspect.signature(TrainContext._upload_checkpoint).parameters
    assert agent_module._destination.__wrapped__.__code__.co_consts.count("_upload_checkpoint") == 1


def test_a_worker_stores_where_the_controller_says_that_it_does(agent: Agent, tmp_path: Path) -> None:
    context = run_context(tmp_path)
    agent.after_controller_start(context)
    (event,) = told(agent)
    assert event["data"]["experiment"] == context.run_config.storage_context.experiment_fs_path
    assert "storage_context" in TrainContext.__dataclass_fields__


@pytest.mark.parametrize("phase", ["report", "transfer", "commit"])
def test_what_a_hook_around_a_report_raises_comes_out_of_it(
    agent: Agent, in_worker: Agent, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    assert agent.plan is not None
    injection = Injection(id="exception-0", fault="exception", rank=0, trigger=in_phase(phase))
    me = session.Session(Plan(**{**vars(agent.plan), "injections": (injection,)}), in_worker._writer, 0, 1, 10)
    monkeypatch.setattr(session, "_current", me)
    done = []
    with pytest.raises(InjectedError), invoke_context_managers([in_worker.on_report]):
        with invoke_context_managers([in_worker.on_checkpoint_transfer]):
            done.append("files")
        done.append("queue")
    assert done == {"report": [], "transfer": [], "commit": ["files", "queue"]}[phase]


def test_reports_and_transfers_are_spanned_by_plain_context_managers() -> None:
    assert "with invoke_context_managers(" in inspect.getsource(TrainContext.report)
    assert "with invoke_context_managers(" in inspect.getsource(TrainContext._upload_checkpoint)


def test_the_agent_asks_the_context_of_this_process() -> None:
    set_train_context(mine := Context(None, 0))
    try:
        assert agent_module._train_context() is mine
    finally:
        set_train_context(None)


def test_a_context_has_the_attributes_that_the_agent_reads() -> None:
    fields = {"checkpoint", "report_call_index", "current_report_index", "storage_context"}
    assert fields <= set(TrainContext.__dataclass_fields__)
    assert callable(TrainContext.get_world_rank)
    assert callable(TrainContext.get_world_size)
