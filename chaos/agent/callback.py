"""The callback that Ray Train carries to the controller and to every worker of an unmodified script."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import ray
import ray.util
from ray.train.v2._internal.execution.callback import (
    ControllerCallback,
    ReportCallback,
    TrainContextCallback,
    WorkerCallback,
    WorkerGroupCallback,
)

from chaos.agent import flight, session
from chaos.agent.events import EventWriter, harmless
from chaos.agent.plan import Plan
from chaos.agent.watchdog import Watchdog
from chaos.process import current
from chaos.storage import MARKER, listed


class Agent(ControllerCallback, WorkerGroupCallback, ReportCallback, WorkerCallback, TrainContextCallback):
    """Made in the driver, pickled to the controller, and pickled anew to the workers of every group.

    So what the controller's copy has learnt (the number of the attempt, the step of each committed checkpoint)
    reaches the workers of the next group.
    """

    def __init__(self) -> None:
        self.plan = _plan()
        self.attempt = 0
        self.reports = 0
        self._reports_before = 0
        self.steps_of: dict[str, int] = dict(self.plan.steps_of) if self.plan else {}
        self._told_errors: set[tuple[int, int]] = set()
        self._watchdog: Watchdog | None = None
        self._writer: EventWriter | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer": None}

    def _emit(self, kind: str, **fields: Any) -> None:
        if self.plan is None:
            return
        if self._writer is None:
            self._writer = EventWriter(self.plan.events, ray.util.get_node_ip_address())
        self._writer.emit(kind, **fields)

    # In the controller

    @harmless
    def after_controller_start(self, train_run_context: Any) -> None:
        """Record the budgets, what the job claims, and where checkpoints go."""
        run, scaling = train_run_context.run_config, train_run_context.scaling_config
        failures, storage = run.failure_config, run.storage_context
        self._emit(
            "controller.start",
            data={
                "experiment": storage.experiment_fs_path,
                "filesystem": storage.storage_filesystem.type_name,
                "found": _found(storage.experiment_fs_path),
                "workers": scaling.num_workers,
                "claim": {k: v for k, v in scaling._resources_per_worker_not_none.items() if v},
                "timeout_s": getattr(train_run_context.backend_config, "timeout_s", None),
                "max_failures": failures.max_failures,
                "max_preemption_failures": getattr(failures, "max_preemption_failures", None),
                "controller_failure_limit": failures.controller_failure_limit,
                "keep": run.checkpoint_config.num_to_keep,
                "score": run.checkpoint_config.checkpoint_score_attribute,
                "start": current().start,
            },
        )

    @harmless
    def after_controller_state_update(self, previous_state: Any, current_state: Any) -> None:
        """Record a change of state, with the error that caused it where there is one; each poll updates it anew."""
        if previous_state._state_type is current_state._state_type:
            return
        error = getattr(current_state, "training_failed_error", None)
        data = {
            "from": previous_state._state_type.state_name,
            "to": current_state._state_type.state_name,
            **({"error": type(error).__name__, "message": str(error)[:2000]} if error is not None else {}),
            **({"preempted": True} if _preempted(error) else {}),
        }
        self._emit("controller.state", attempt=max(0, self.attempt - 1), data=data)

    @contextmanager
    def on_worker_group_start(self) -> Iterator[None]:
        """Everything up to the process group being set up."""
        yield
        self._group_ready()

    @harmless
    def _group_ready(self) -> None:
        self._emit("pg.init.end", attempt=self.attempt - 1)

    @harmless
    def before_worker_group_start(self, worker_group_context: Any) -> None:
        """The placement group is asked for."""
        self._emit("schedule.begin", attempt=self.attempt, data={"workers": worker_group_context.num_workers})

    @harmless
    def after_worker_group_start(self, worker_group: Any) -> None:
        """The group's actors are ready: a new attempt begins, and its process group is set up next."""
        attempt, self.attempt, self.reports = self.attempt, self.attempt + 1, 0
        workers = [
            {"rank": w.distributed_context.world_rank, "pid": w.metadata.pid, "node": w.metadata.node_ip}
            for w in worker_group.get_workers()
        ]
        handle = worker_group._worker_group_state.placement_group_handle
        stats = ray.util.placement_group_table(handle.placement_group).get("stats", {})
        self._emit(
            "attempt.start",
            attempt=attempt,
            world_size=len(workers),
            data={"workers": workers, "placement_ms": stats.get("end_to_end_creation_latency_ms")},
        )
        if self.plan is not None and self.plan.watchdog_s:
            self._watchdog = Watchdog(self.plan.board, attempt, len(workers), self.plan.watchdog_s)

    @harmless
    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        """The group is about to be torn down."""
        self._emit("attempt.shutdown", attempt=self.attempt - 1)

    @harmless
    def after_worker_group_shutdown(self, worker_group_context: Any) -> None:
        """The group is gone."""
        self._emit("attempt.end", attempt=self.attempt - 1)

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        """Record errors; let the watchdog look, where there is one and no rank has ended.

        Raises WorkerGroupError when it finds no progress: this restarts the group.
        """
        self._tell_errors(worker_group_status)
        if (error := self._stuck(worker_group_status)) is not None:
            raise error

    @harmless
    def _stuck(self, worker_group_status: Any) -> Exception | None:
        """What the watchdog has to say; None while all is well."""
        watchdog, status = self._watchdog, worker_group_status
        if watchdog is None or status.errors or not all(rank.running for rank in status.worker_statuses.values()):
            return None
        steps = watchdog.look()
        if steps is None:
            return None
        self._watchdog = None
        self._emit("watchdog.fired", attempt=self.attempt - 1, data={"steps": steps})
        return watchdog.error(steps)

    @harmless
    def _tell_errors(self, worker_group_status: Any) -> None:
        """Record the first error of each rank in an attempt, as its type and message."""
        for rank, error in worker_group_status.errors.items():
            if (self.attempt, rank) not in self._told_errors:
                self._told_errors.add((self.attempt, rank))
                data = {"error": _name_of(error), "message": str(error)[:2000]}
                self._emit("worker.error", attempt=self.attempt - 1, rank=rank, data=data)

    @harmless
    def before_controller_execute_failure_decision(self, failure_decision: Any) -> None:
        """Retry or raise."""
        self._emit("controller.decision", attempt=self.attempt - 1, data={"decision": failure_decision.value})

    @harmless
    def after_report(self, training_report: Any, metrics: Any) -> None:
        """Every rank has reported: a checkpoint in the report is committed now."""
        self.reports += 1
        if training_report.checkpoint is None or self.plan is None:
            return
        name = os.path.basename(training_report.checkpoint.path.rstrip("/"))
        mark = self.plan.board / f"report-{self.attempt - 1}-{self.reports}"
        step = int(mark.read_text()) if mark.exists() else None
        if step is not None:
            self.steps_of[name] = step
        self._emit("checkpoint.commit", attempt=self.attempt - 1, step=step, data={"checkpoint": name})

    # In the workers

    @harmless
    def after_init_train_context(self) -> None:
        """Come on board: count steps from those of the checkpoint that this worker is given."""
        if self.plan is None:
            return
        context = _train_context()
        writer = EventWriter(self.plan.events, ray.util.get_node_ip_address())
        rank = context.get_world_rank()
        writer.common = {"attempt": self.attempt, "rank": rank, "world_size": context.get_world_size()}
        path = context.checkpoint.path if context.checkpoint is not None else None
        name = os.path.basename(path.rstrip("/")) if path else None
        steps = self.steps_of.get(name) if name else 0
        self._reports_before = context.report_call_index
        me = session.Session(self.plan, writer, rank, self.attempt, steps or 0)
        session.write_stacks_on_signal(self.plan.stacks, rank)
        if flight.is_wanted(self.plan):
            flight.record(self.plan.stacks, rank)
        data = {"checkpoint": name, "steps": steps, "start": current().start}
        writer.emit("worker.start", data=data)
        me.start(path)
        session.begin(me)
        self._writer = writer

    @contextmanager
    def on_report(self) -> Iterator[None]:
        """One report of this rank, checkpoint copied and handed to the controller's queue."""
        self._report_begins()
        self._reach("report", _experiment() or "")
        yield
        self._emit_in_worker("report.end")
        self._reach("commit")

    @harmless
    def _report_begins(self) -> None:
        me = session.session()
        if me is None or self.plan is None:
            return
        context = _train_context()
        if context.get_world_rank() == 0:
            mark = self.plan.board / f"report-{self.attempt}-{context.report_call_index - self._reports_before + 1}"
            mark.write_text(str(me.step))
        self._emit("report.begin", step=me.step)

    @contextmanager
    def on_checkpoint_transfer(self) -> Iterator[None]:
        """This rank's files are copied to the storage."""
        destination = _destination() or ""
        self._emit_in_worker("checkpoint.transfer.begin", checkpoint=os.path.basename(destination))
        self._reach("transfer", destination)
        yield
        self._emit_in_worker("checkpoint.transfer.end")

    @harmless
    def _emit_in_worker(self, kind: str, **data: Any) -> None:
        me = session.session()
        if me is not None:
            self._emit(kind, step=me.step, data=data)

    @staticmethod
    def _reach(phase: str, place: str = "") -> None:
        me = session.session()
        if me is not None:
            me.reach(phase, place)


def _name_of(error: BaseException) -> str:
    """The type of an error; of one that Ray wraps around another, the type of the innermost."""
    for wrapped in ("health_check_failure", "cause"):
        if isinstance(inner := getattr(error, wrapped, None), BaseException):
            return _name_of(inner)
    return type(error).__name__


def _preempted(error: BaseException | None) -> bool:
    """Whether a worker died because its node was taken away: Ray then charges the budget of preemptions."""
    failures = getattr(error, "worker_failures", {}).values()
    return any(getattr(getattr(f, "health_check_failure", f), "preempted", False) for f in failures)


@harmless
def _plan() -> Plan | None:
    """The orders that the environment names; without readable ones the agent does nothing."""
    return Plan.from_environment()


def _found(folder: str) -> list[str] | None:
    """What lies in the experiment directory already, but for Ray's own trial of the storage; None where unknown."""
    try:
        return [name for name in listed(Path(folder)) if name != MARKER]
    except OSError:
        return None


@harmless
def _experiment() -> str:
    """Where this job's checkpoints lie; empty outside a session."""
    return str(_train_context().storage_context.experiment_fs_path) if session.session() else ""


@harmless
def _destination() -> str:
    """Where this thread is about to copy a checkpoint: Ray hands the callback no name, its caller knows it.

    Empty where it cannot be found.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_upload_checkpoint":
        frame = frame.f_back
    name = frame.f_locals.get("checkpoint_dir_name") if frame is not None else None
    return os.path.join(_experiment(), name) if name else ""


def _train_context() -> Any:
    from ray.train.v2._internal.execution.context import get_train_context

    return get_train_context()
