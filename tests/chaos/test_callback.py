"""The callback that Ray Train carries: silent outside a run, and harmless in one."""

from __future__ import annotations

import dataclasses
import faulthandler
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.train.v2.api.exceptions import WorkerGroupError

from chaos.agent import callback, session, watchdog
from chaos.agent.callback import Agent
from chaos.agent.events import EventWriter
from chaos.agent.plan import NODE, VARIABLE, Injection, Plan
from chaos.agent.watchdog import Progress
from chaos.faults.base import InjectedError
from chaos.history import Tail
from chaos.process import current
from chaos.triggers import in_phase, on_attempt
from chaos.workload import AGENT


@pytest.fixture
def agent(plan, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(plan.write()))
    monkeypatch.setattr(callback.ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    return Agent()


@pytest.fixture
def seen(plan):
    """The events recorded so far, as kind, attempt, rank, step and data; those of one kind if it is given."""

    def look(*kinds):
        events = [e for e in Tail(Path(plan.directory)).new() if not kinds or e.kind in kinds]
        return [(e.kind, e.attempt, e.rank, e.step, e.data) for e in events]

    return look


def reported(checkpoint):
    return SimpleNamespace(checkpoint=SimpleNamespace(path=checkpoint) if checkpoint else None)


def test_the_launcher_names_the_callback_by_its_own_path() -> None:
    assert f"{Agent.__module__}.{Agent.__qualname__}" == AGENT


def test_outside_a_run_it_does_nothing_and_never_raises(monkeypatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    silent = Agent()
    silent.after_controller_start(None)
    silent.after_controller_state_update(None, None)
    silent.before_worker_group_start(None)
    silent.after_worker_group_start(None)
    silent.after_worker_group_poll_status(None)
    silent.before_controller_execute_failure_decision(None)
    silent.after_report(None, None)
    silent.after_init_train_context()
    with silent.on_worker_group_start(), silent.on_report(), silent.on_checkpoint_transfer():
        pass


@pytest.mark.parametrize("text", ["no JSON", '{"run_id": "x"}', "[]"])
def test_orders_that_cannot_be_read_leave_it_silent(tmp_path, monkeypatch, text) -> None:
    (tmp_path / "plan.json").write_text(text)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "plan.json"))
    assert Agent().plan is None


def test_a_copy_carries_what_was_learnt_and_opens_a_file_of_its_own(agent, plan) -> None:
    agent.before_worker_group_shutdown(None)
    agent.attempt, agent.steps_of = 2, {"checkpoint_1": 10}
    copy = pickle.loads(pickle.dumps(agent))
    assert (copy.attempt, copy.steps_of, copy.plan, copy._writer) == (2, {"checkpoint_1": 10}, plan, None)


# In the controller


def test_a_commit_gets_the_step_that_its_reporting_rank_had_noted(agent, plan, seen) -> None:
    agent.attempt = 1
    (plan.board / "report-0-2").write_text("20")
    agent.after_report(reported(None), {})
    agent.after_report(reported("/storage/run/checkpoint_2/"), {})
    agent.after_report(reported("/storage/run/checkpoint_3"), {})
    assert seen() == [
        ("checkpoint.commit", 0, None, 20, {"checkpoint": "checkpoint_2"}),
        ("checkpoint.commit", 0, None, None, {"checkpoint": "checkpoint_3"}),
    ]
    assert agent.steps_of == {"checkpoint_2": 20}


def state(name):
    return SimpleNamespace(_state_type=SimpleNamespace(state_name=name))


def test_a_state_that_does_not_change_is_not_told_again(agent, seen) -> None:
    running, restarting = state("RUNNING"), state("RESTARTING")
    restarting.training_failed_error = ValueError("a worker died")
    agent.after_controller_state_update(running, running)
    agent.after_controller_state_update(running, restarting)
    expected = {"from": "RUNNING", "to": "RESTARTING", "error": "ValueError", "message": "a worker died"}
    assert seen() == [("controller.state", 0, None, None, expected)]


@pytest.mark.parametrize(("preempted", "told"), [(True, {"preempted": True}), (False, {})])
def test_a_worker_that_died_with_a_node_that_was_taken_away_is_told(agent, seen, preempted, told) -> None:
    restarting = state("RESTARTING")
    died = SimpleNamespace(health_check_failure=SimpleNamespace(preempted=preempted))
    restarting.training_failed_error = type("Failed", (Exception,), {"worker_failures": {1: died}})("x")
    agent.after_controller_state_update(state("RUNNING"), restarting)
    expected = {"from": "RUNNING", "to": "RESTARTING", "error": "Failed", "message": "x", **told}
    assert seen() == [("controller.state", 0, None, None, expected)]


def polled(**errors):
    return SimpleNamespace(errors={int(rank[1:]): error for rank, error in errors.items()})


def test_the_first_error_of_each_rank_in_an_attempt_is_told(agent, seen) -> None:
    agent.attempt = 1
    agent.after_worker_group_poll_status(polled())
    agent.after_worker_group_poll_status(polled(r1=InjectedError("mine")))
    agent.after_worker_group_poll_status(polled(r0=RuntimeError("peer gone"), r1=ValueError("later")))
    agent.attempt = 2
    agent.after_worker_group_poll_status(polled(r1=ValueError("again")))
    assert seen() == [
        ("worker.error", 0, 1, None, {"error": "InjectedError", "message": "mine"}),
        ("worker.error", 0, 0, None, {"error": "RuntimeError", "message": "peer gone"}),
        ("worker.error", 1, 1, None, {"error": "ValueError", "message": "again"}),
    ]


@pytest.mark.parametrize("layers", [("cause",), ("health_check_failure",), ("health_check_failure", "cause")])
def test_an_error_that_ray_wraps_goes_by_the_name_of_the_innermost(agent, seen, layers) -> None:
    error = InjectedError("mine")
    for layer in layers:
        inner, error = error, RuntimeError("wrapped")
        setattr(error, layer, inner)
    agent.after_worker_group_poll_status(polled(r0=error))
    assert seen()[0][4] == {"error": "InjectedError", "message": "wrapped"}


def test_an_error_may_have_a_cause_of_its_own_that_is_none(agent, seen) -> None:
    error = ValueError("bad config")
    error.cause = "a missing key"
    agent.after_worker_group_poll_status(polled(r0=error))
    assert seen()[0][4]["error"] == "ValueError"


def test_a_long_message_is_cut(agent, seen) -> None:
    agent.after_worker_group_poll_status(polled(r0=ValueError("x" * 5000)))
    assert seen()[0][4]["message"] == "x" * 2000


def test_a_status_that_reads_otherwise_is_told_and_harms_nothing(agent, seen) -> None:
    agent.after_worker_group_poll_status(polled(r0=ValueError("five")))
    agent.after_worker_group_poll_status(SimpleNamespace())
    (_, (kind, _, _, _, data)) = seen()
    assert kind == "agent.error"
    assert data["error"].startswith("Agent._tell_errors: AttributeError(")


# The watchdog, in the controller


class Group:
    """A worker group as a start tells of it: two workers and their placement group."""

    def __init__(self) -> None:
        self._worker_group_state = SimpleNamespace(placement_group_handle=SimpleNamespace(placement_group=None))

    def get_workers(self):
        where = SimpleNamespace(pid=1, node_ip="127.0.0.1")
        return [SimpleNamespace(distributed_context=SimpleNamespace(world_rank=r), metadata=where) for r in range(2)]


@pytest.fixture
def watched(agent, plan, monkeypatch):
    """An agent whose group has just started, under a watchdog whose patience is over at once."""
    monkeypatch.setattr(callback.ray.util, "placement_group_table", lambda group: {})
    monkeypatch.setattr(watchdog, "STARTING_S", 0.0)

    def start(seconds=1e-9, attempt=0):
        agent.plan = dataclasses.replace(plan, watchdog_s=seconds)
        agent.attempt = attempt
        agent.after_worker_group_start(Group())
        return agent

    return start


def running(*flags, **errors):
    """The status of a group: which ranks run, and their errors."""
    ranks = {rank: SimpleNamespace(running=flag) for rank, flag in enumerate(flags)}
    return SimpleNamespace(errors=polled(**errors).errors, worker_statuses=ranks)


def test_no_progress_is_told_and_raised_as_an_error_that_ray_retries(watched, plan, seen) -> None:
    agent = watched(attempt=1)
    Progress(plan.board, 1, 0).tell(6)
    with pytest.raises(WorkerGroupError, match="rank 0 at step 6, rank 1 at step none") as raised:
        agent.after_worker_group_poll_status(running(True, True))
    assert set(raised.value.worker_failures) == {1}
    assert seen("watchdog.fired") == [("watchdog.fired", 1, None, None, {"steps": {"0": 6, "1": None}})]
    assert seen("agent.error") == []


def test_a_watchdog_barks_once_in_an_attempt_and_again_in_the_next(watched, seen) -> None:
    for attempt in range(2):
        agent = watched(attempt=attempt)
        with pytest.raises(WorkerGroupError):
            agent.after_worker_group_poll_status(running(True, True))
        agent.after_worker_group_poll_status(running(True, True))
    assert [attempt for _, attempt, *_ in seen("watchdog.fired")] == [0, 1]


@pytest.mark.parametrize(
    "status",
    [running(True, False), running(False, False), running(True, True, r1=ValueError("mine"))],
    ids=["one has finished", "all have finished", "one has failed"],
)
def test_a_watchdog_is_silent_when_a_rank_has_ended(watched, seen, status) -> None:
    agent = watched()
    for _ in range(3):
        agent.after_worker_group_poll_status(status)
    assert seen("watchdog.fired", "agent.error") == []


def test_patience_that_is_not_over_is_silence(watched, seen) -> None:
    agent = watched(seconds=60.0)
    for _ in range(3):
        agent.after_worker_group_poll_status(running(True, True))
    assert seen("watchdog.fired", "agent.error") == []


def test_without_orders_there_is_no_watchdog(watched, seen) -> None:
    agent = watched(seconds=0.0)
    for _ in range(3):
        agent.after_worker_group_poll_status(running(True, True))
    assert seen("watchdog.fired", "agent.error") == []


def test_a_watchdog_that_cannot_look_is_told_and_harms_nothing(watched, seen, monkeypatch) -> None:
    agent = watched()
    monkeypatch.setattr(watchdog, "_read", lambda file: 1 / 0)
    agent.after_worker_group_poll_status(running(True, True))
    ((_, _, _, _, data),) = seen("agent.error")
    assert data["error"].startswith("Agent._stuck: ZeroDivisionError(")


# In the workers


class Context:
    """A worker's context without the cluster around it."""

    report_call_index = 3
    storage_context = SimpleNamespace(experiment_fs_path="/storage/run")

    def __init__(self, rank=0, checkpoint=None) -> None:
        self.rank = rank
        self.checkpoint = SimpleNamespace(path=checkpoint) if checkpoint else None

    def get_world_rank(self):
        return self.rank

    def get_world_size(self):
        return 2


@pytest.fixture
def aboard(agent, monkeypatch):
    """Let the agent come on board of a worker; all is undone after the test."""

    def come(context, *injections):
        monkeypatch.setattr(callback, "_train_context", lambda: context)
        agent.plan = Plan(run_id="run1", directory=agent.plan.directory, injections=injections)
        agent.after_init_train_context()
        return agent

    yield come
    if (me := session.session()) is not None:
        me.stop()
    session.begin(None)
    faulthandler.unregister(session.STACKS)


def test_a_worker_comes_on_board_with_the_steps_of_its_checkpoint(agent, aboard, seen) -> None:
    agent.attempt, agent.steps_of = 2, {"checkpoint_7": 70}
    aboard(Context(rank=1, checkpoint="/storage/run/checkpoint_7/"))
    data = {"checkpoint": "checkpoint_7", "steps": 70, "start": current().start}
    assert seen() == [("worker.start", 2, 1, None, data)]
    assert session.session().step == 70


def test_a_worker_without_a_checkpoint_starts_from_no_step(aboard, seen) -> None:
    aboard(Context())
    assert seen()[0][4] == {"checkpoint": None, "steps": 0, "start": current().start}


def test_a_worker_can_be_asked_for_its_stacks(aboard, plan) -> None:
    aboard(Context(rank=1))
    os.kill(os.getpid(), session.STACKS)
    written = (plan.stacks / f"rank1-{os.getpid()}.txt").read_text()
    assert "test_a_worker_can_be_asked_for_its_stacks" in written


def test_a_report_and_its_transfer_are_told_with_the_step(agent, aboard, seen, plan) -> None:
    agent.steps_of = {"c": 9}
    aboard(Context(checkpoint="/storage/c"))
    with agent.on_report(), agent.on_checkpoint_transfer():
        pass
    kinds = ["report.begin", "checkpoint.transfer.begin", "checkpoint.transfer.end", "report.end"]
    assert [(kind, step) for kind, _, _, step, _ in seen()[1:]] == [(kind, 9) for kind in kinds]
    assert (plan.board / "report-0-1").read_text() == "9"


def _upload_checkpoint(agent, checkpoint_dir_name):
    """Called as Ray calls it, and its locals are named as Ray's."""
    with agent.on_checkpoint_transfer():
        pass


def test_a_transfer_tells_the_checkpoint_whose_files_it_copies(agent, aboard, seen) -> None:
    aboard(Context())
    _upload_checkpoint(agent, "checkpoint_7")
    with agent.on_checkpoint_transfer():
        pass
    assert [data for *_, data in seen("checkpoint.transfer.begin")] == [
        {"checkpoint": "checkpoint_7"},
        {"checkpoint": ""},
    ]
    assert seen("agent.error") == []


@pytest.mark.parametrize(
    ("phase", "place"),
    [("report", "/storage/run"), ("transfer", "/storage/run/checkpoint_7"), ("commit", None)],
)
def test_a_fault_around_a_report_tells_the_folder_that_its_point_is_about(agent, aboard, seen, phase, place) -> None:
    aboard(Context(), raised(phase))
    with pytest.raises(InjectedError), agent.on_report():
        _upload_checkpoint(agent, "checkpoint_7")
    assert seen("fault.fired")[0][4].get("place") == place


def test_a_worker_knows_the_steps_of_a_checkpoint_that_an_earlier_life_of_the_job_has_stored(
    plan, monkeypatch, aboard, seen
) -> None:
    """Its controller is a new one, which has committed nothing yet."""
    told = dataclasses.replace(plan, steps_of={"checkpoint_7": 70})
    monkeypatch.setenv(VARIABLE, str(told.write()))
    assert Agent().steps_of == {"checkpoint_7": 70}


def raised(phase, **where):
    return Injection(id="exception-0", fault="exception", rank=0, trigger=in_phase(phase), **where)


@pytest.mark.parametrize(
    ("phase", "told"),
    [
        ("report", ["report.begin", "fault.fired"]),
        ("transfer", ["report.begin", "checkpoint.transfer.begin", "fault.fired"]),
        (
            "commit",
            ["report.begin", "checkpoint.transfer.begin", "checkpoint.transfer.end", "report.end", "fault.fired"],
        ),
    ],
)
def test_a_fault_around_a_report_reaches_the_program(agent, aboard, seen, phase, told) -> None:
    aboard(Context(), raised(phase))
    with pytest.raises(InjectedError, match="on purpose"), agent.on_report(), agent.on_checkpoint_transfer():
        pass
    assert [kind for kind, *_ in seen()[1:]] == told
    assert seen("fault.fired")[0][4]["phase"] == phase
    with agent.on_report(), agent.on_checkpoint_transfer():
        pass
    assert len(seen("fault.fired")) == 1


def test_a_fault_finds_a_worker_by_the_node_that_its_environment_names(agent, aboard, seen, monkeypatch) -> None:
    monkeypatch.setenv(NODE, "w1")
    injection = Injection(id="exception-0", fault="exception", rank=None, node="w1", trigger=in_phase("report"))
    aboard(Context(), injection)
    with pytest.raises(InjectedError), agent.on_report():
        pass
    assert seen("fault.fired")[0][4]["node"] == "w1"


def test_a_fault_of_another_attempt_does_not_fire(agent, aboard, seen) -> None:
    agent.attempt = 1
    aboard(Context(), Injection(id="e", fault="exception", rank=0, trigger=in_phase("report") & on_attempt(0)))
    with agent.on_report():
        pass
    assert seen("fault.fired", "agent.error") == []


def test_a_report_outside_a_session_is_none_of_ours(agent, seen) -> None:
    session.begin(None)
    agent._writer = EventWriter(agent.plan.events, "n")
    with agent.on_report(), agent.on_checkpoint_transfer():
        pass
    assert seen() == []
