"""The callback that Ray Train carries: silent outside a run, and harmless in one."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos.agent import callback
from chaos.agent.callback import Agent
from chaos.agent.plan import VARIABLE
from chaos.history import Tail
from chaos.workload import AGENT


@pytest.fixture
def agent(plan, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(plan.write()))
    monkeypatch.setattr(callback.ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    return Agent()


def reported(checkpoint):
    return SimpleNamespace(checkpoint=SimpleNamespace(path=checkpoint) if checkpoint else None)


def test_the_launcher_names_the_callback_by_its_own_path():
    assert f"{Agent.__module__}.{Agent.__qualname__}" == AGENT


def test_outside_a_run_it_does_nothing_and_never_raises(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    silent = Agent()
    silent.after_controller_start(None)
    silent.after_controller_state_update(None, None)
    silent.before_worker_group_start(None)
    silent.after_worker_group_start(None)
    silent.after_report(None, None)
    silent.after_init_train_context()
    with silent.on_worker_group_start(), silent.on_report(), silent.on_checkpoint_transfer():
        pass


def test_a_copy_carries_what_was_learnt_and_opens_a_file_of_its_own(agent, plan):
    agent.before_worker_group_shutdown(None)
    agent.attempt, agent.steps_of = 2, {"checkpoint_1": 10}
    copy = pickle.loads(pickle.dumps(agent))
    assert (copy.attempt, copy.steps_of, copy.plan, copy._writer) == (2, {"checkpoint_1": 10}, plan, None)


def test_a_commit_gets_the_step_that_its_reporting_rank_had_noted(agent, plan):
    agent.attempt = 1
    (plan.board / "report-0-2").write_text("20")
    agent.after_report(reported(None), {})
    agent.after_report(reported("/storage/run/checkpoint_2/"), {})
    agent.after_report(reported("/storage/run/checkpoint_3"), {})
    events = Tail(Path(plan.directory)).new()
    assert [(e.kind, e.attempt, e.step, e.data) for e in events] == [
        ("checkpoint.commit", 0, 20, {"checkpoint": "checkpoint_2"}),
        ("checkpoint.commit", 0, None, {"checkpoint": "checkpoint_3"}),
    ]
    assert agent.steps_of == {"checkpoint_2": 20}


def test_a_state_that_does_not_change_is_not_told_again(agent, plan):
    def state(name):
        return SimpleNamespace(_state_type=SimpleNamespace(state_name=name))

    running, restarting = state("RUNNING"), state("RESTARTING")
    restarting.training_failed_error = ValueError("a worker died")
    agent.after_controller_state_update(running, running)
    agent.after_controller_state_update(running, restarting)
    (event,) = Tail(Path(plan.directory)).new()
    expected = {"from": "RUNNING", "to": "RESTARTING", "error": "ValueError", "message": "a worker died"}
    assert (event.kind, event.data) == ("controller.state", expected)
