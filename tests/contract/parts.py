"""What the contract tests share: contexts as Ray makes them, and ways to look into its sources."""

from __future__ import annotations

import asyncio
import inspect
import json
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
from ray.train.v2._internal.execution.context import (
    TrainRunContext,
)
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.training_report import _TrainingReport
from ray.train.v2._internal.execution.worker_group import (
    WorkerGroupContext,
)
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from chaos.agent.callback import Agent
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


async def told_to(manager: CheckpointManager, report: _TrainingReport) -> None:
    """Give a report to the checkpoint manager, which notifies its waiters in the running event loop."""
    manager.after_report(training_report=report, metrics=[report.metrics])
    await asyncio.sleep(0)
