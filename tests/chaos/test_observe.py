"""What a training program volunteers: nothing happens outside a run, and everything is exact in one."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from chaos import observe
from chaos.agent import session
from chaos.agent.events import EventWriter
from chaos.digest import tree_digests
from chaos.history import Tail
from chaos.workload import INSTALLATION

CALL_NS = 5_000
"""More than a call outside a run may take, in nanoseconds, on a busy machine."""


@pytest.fixture
def watched(plan):
    """A session of this process; the events so far of some kinds when called."""
    me = session.Session(plan, EventWriter(plan.events, "n"), rank=0, attempt=0, steps_done=0)
    me.start(None)
    session.begin(me)
    yield lambda *kinds: [event for event in Tail(Path(plan.directory)).new() if event.kind in kinds]
    session.begin(None)
    me.stop()


def one_step():
    weight = torch.zeros(1, requires_grad=True)
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight], lr=0.5).step()


CALLS = [(observe.samples, ([1, 2],)), (observe.loss, (0.5,)), (observe.state, ("saved", {"step": 1}))]


@pytest.mark.parametrize(("call", "arguments"), CALLS, ids=["samples", "loss", "state"])
def test_outside_a_run_a_call_does_nothing_quickly(call, arguments) -> None:
    assert session.session() is None
    times = []
    for _ in range(2000):
        begin = time.perf_counter_ns()
        assert call(*arguments) is None
        times.append(time.perf_counter_ns() - begin)
    assert statistics.median(times) < CALL_NS


def test_outside_a_run_arguments_are_not_even_looked_at() -> None:
    observe.samples(None)
    observe.loss("no number")
    observe.state("saved", object())


def test_in_a_run_a_step_is_told_exactly(watched) -> None:
    observe.samples(torch.arange(8, 16))
    observe.samples([16])
    observe.loss(torch.tensor(0.75))
    one_step()
    (event,) = watched("step.end")
    assert event.data.pop("data_ns") <= event.wall_ns
    assert (event.step, event.data) == (1, {"loss": 0.75, "lr": 0.5, "samples": [[8, 16]]})


def test_in_a_run_state_is_told_as_digests(watched) -> None:
    tree = {"w": torch.arange(4.0), "step": 3}
    observe.state("saved", tree)
    assert watched("state")[0].data["parts"] == tree_digests(tree)


def test_in_a_run_wrong_arguments_are_told_and_harm_nothing(watched) -> None:
    observe.samples(None)
    observe.samples(["x"])
    observe.loss("no number")
    observe.state("saved", None)
    told = [event.data["error"].split(":")[0] for event in watched("agent.error")]
    assert told == ["samples", "samples", "loss", "state"]
    assert watched("state", "step.end") == []


def test_what_rides_in_training_processes_brings_nothing_heavy() -> None:
    code = "import sys, chaos.observe, chaos.faults.base as b; b.all_faults(); print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(INSTALLATION)}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in told.stdout.split()}
    assert loaded.isdisjoint({"torch", "ray", "blake3", "numpy", "msgspec", "pydantic", "tenacity", "metrics"})
