"""The session in a training process, with torch's own optimizers: steps, samples, state, faults after a step."""

from __future__ import annotations

import multiprocessing
import statistics
import time

import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from chaos.agent.events import EventWriter
from chaos.agent.plan import Injection
from chaos.agent.session import Session
from chaos.digest import tree_digests
from chaos.triggers import at_step
from tests.chaos.session.optimizers import armed, note, optimizer, step, steps


def test_steps_are_counted_from_those_done(listen, seen) -> None:
    me = listen(steps_done=7)
    step(optimizer(), times=3)
    assert steps(seen("step.end")) == [8, 9, 10]
    assert me.step == 10


def test_several_optimizers_fold_into_one_step(listen, seen) -> None:
    listen()
    step(optimizer(), optimizer(torch.optim.AdamW), optimizer(), times=3)
    assert steps(seen("step.end")) == [1, 2, 3]


def test_an_optimizer_that_steps_less_often_adds_no_step(listen, seen) -> None:
    listen()
    often, seldom = optimizer(), optimizer()
    for i in range(4):
        step(often)
        if i % 2:
            step(seldom)
    assert steps(seen("step.end")) == [1, 2, 3, 4]


def test_a_step_that_the_gradient_scaler_skips_is_none(listen, seen) -> None:
    listen()
    weight = torch.ones(1, requires_grad=True)
    trained, scaler = torch.optim.SGD([weight]), torch.amp.GradScaler("cpu", init_scale=2.0)
    for factor in (1.0, float("inf"), 1.0):
        trained.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(trained)
        scaler.update()
    assert steps(seen("step.end")) == [1, 2]


def made_state(options):
    """A model and an optimizer without state, for which torch makes empty state by a step with zero gradients."""
    model = torch.nn.Linear(2, 2)
    trained = options.pop("kind")(model.parameters(), lr=0.1, **options)
    get_optimizer_state_dict(model, trained)
    return model, trained


@pytest.mark.parametrize("options", [{"kind": torch.optim.AdamW}, {"kind": torch.optim.SGD, "momentum": 0.9}])
def test_the_step_by_which_torch_makes_empty_state_is_not_counted(listen, seen, options) -> None:
    listen(steps_done=4)
    model, trained = made_state(dict(options))
    assert seen("step.end") == []
    for expected in (5, 6):
        model(torch.ones(1, 2)).sum().backward()
        trained.step()
        trained.zero_grad()
        get_optimizer_state_dict(model, trained)
        assert steps(seen("step.end"))[-1] == expected


@pytest.mark.parametrize("scheduled", [False, True])
def test_saving_a_stateless_optimizer_adds_no_step(listen, seen, scheduled) -> None:
    """SGD without momentum never has state, so torch steps it at every save and at every load."""
    listen()
    model, trained = made_state({"kind": torch.optim.SGD})
    if scheduled:
        torch.optim.lr_scheduler.LambdaLR(trained, lambda step: 1.0)
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
        trained.step()
        trained.zero_grad()
        get_optimizer_state_dict(model, trained)
    assert steps(seen("step.end")) == [1, 2]


@pytest.mark.parametrize(
    ("ids", "ranges"),
    [
        ([[0, 1, 2, 3]], [[0, 3]]),
        ([[0, 1], [2, 3]], [[0, 3]]),
        ([[0, 1], [8, 9]], [[0, 1], [8, 9]]),
        ([[5]], [[5, 5]]),
        ([[3, 2]], [[3, 3], [2, 2]]),
        ([[4, 4]], [[4, 4], [4, 4]]),
        ([[], iter([1, 2])], [[1, 2]]),
    ],
)
def test_samples_are_recorded_as_ranges(listen, seen, ids, ranges) -> None:
    me = listen()
    for some in ids:
        me.samples(some)
    step(optimizer())
    assert seen("step.end")[0].data["samples"] == ranges


def test_the_data_begin_with_the_first_samples(listen, seen) -> None:
    me = listen()
    for ids in ([0], [1], [2]):
        me.samples(ids)
        step(optimizer())
    assert [event.kind for event in seen()][:2] == ["data.begin", "step.end"]
    assert len(seen("data.begin")) == 1


def test_samples_and_loss_belong_to_the_step_under_way(listen, seen) -> None:
    me, trained, before = listen(), optimizer(lr=0.5), time.time_ns()
    me.samples([1, 2])
    me.samples([])
    me.loss(0.25)
    step(trained)
    trained.param_groups[0]["lr"] = torch.tensor(0.125)
    step(trained)
    ends = seen("step.end")
    assert before <= ends[0].data.pop("data_ns") <= ends[0].wall_ns
    assert [event.data for event in ends] == [
        {"loss": 0.25, "lr": 0.5, "samples": [[1, 2]]},
        {"loss": None, "lr": 0.125, "samples": []},
    ]


def test_after_stop_nothing_is_counted(listen, seen) -> None:
    me, trained = listen(), optimizer()
    step(trained)
    me.stop()
    step(trained)
    assert steps(seen("step.end")) == [1]


def test_state_is_told_as_digests_at_the_step(listen, seen) -> None:
    tree = {"model": {"w": torch.arange(3.0)}, "step": 2}
    listen(steps_done=2).state("saved", tree)
    (event,) = seen("state")
    assert (event.step, event.data["name"], event.data["parts"]) == (2, "saved", tree_digests(tree))
    assert event.data["cost_ns"] > 0


def test_a_fault_fires_right_after_its_step(plan, listen, seen, firings) -> None:
    listen(armed(plan, note(step=3)))
    trained = optimizer()
    step(trained, times=2)
    assert firings.read_text() == ""
    step(trained)
    assert firings.read_text() == "fired\n"
    assert [(e.kind, e.step) for e in seen()][-2:] == [("step.end", 3), ("fault.fired", 3)]
    expected = {"injection": "note-0", "fault": "note", "phase": "step", "node": ""}
    assert seen("fault.fired")[0].data == expected


def test_the_time_of_a_fault_is_known_to_a_millisecond(plan, listen, seen, firings) -> None:
    listen(armed(plan, *(Injection(id=f"note-{i}", fault="note", rank=0, trigger=at_step(i)) for i in range(1, 10))))
    step(optimizer(), times=9)
    fired = [event.wall_ns for event in seen("fault.fired")]
    times = [int(line) for line in firings.with_suffix(".times").read_text().split()]
    assert all(there - told >= 0 for told, there in zip(fired, times, strict=True))
    assert statistics.median(there - told for told, there in zip(fired, times, strict=True)) < 1_000_000


def test_a_fault_fires_once_across_restarts(plan, listen, seen, firings) -> None:
    orders = armed(plan, note(step=3))
    for _ in range(2):
        life = listen(orders)
        step(optimizer(), times=5)
        life.stop()
    assert steps(seen("step.end")) == [1, 2, 3, 4, 5] * 2
    assert steps(seen("fault.fired")) == [3]
    assert firings.read_text() == "fired\n"


def test_another_rank_is_spared(plan, listen, seen, firings) -> None:
    listen(armed(plan, note(step=1, rank=1)), rank=0)
    step(optimizer(), times=2)
    assert firings.read_text() == ""


def train_to_death(plan):
    Session(plan, EventWriter(plan.events, "n"), rank=1, attempt=0, steps_done=0).start(None)
    step(optimizer(), times=9)


def test_a_killed_process_has_told_everything_that_happened(plan, seen) -> None:
    orders = armed(plan, Injection(id="kill-0", fault="kill", rank=1, trigger=at_step(3)))
    process = multiprocessing.get_context("fork").Process(target=train_to_death, args=(orders,))
    process.start()
    process.join(20)
    assert process.exitcode == -9
    assert [(e.kind, e.step, e.pid) for e in seen()] == [
        *(("step.end", i, process.pid) for i in (1, 2, 3)),
        ("fault.fired", 3, process.pid),
    ]
    assert [path.name for path in plan.board.iterdir()] == ["fired-kill-0"]
