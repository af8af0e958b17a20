"""The session in a training process, with torch's own optimizers: steps, samples, faults, the restore."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import shutil
import statistics
import time
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from chaos.agent.events import EventWriter
from chaos.agent.plan import Injection
from chaos.agent.session import Session
from chaos.digest import tree_digests
from chaos.faults import base
from chaos.history import Tail


@pytest.fixture
def listen(plan):
    """Begin sessions; all stop listening after the test."""
    sessions = []

    def start(orders=plan, *, rank=0, steps_done=0, checkpoint=None):
        made = Session(orders, EventWriter(plan.events, "n"), rank, steps_done)
        made.start(checkpoint)
        sessions.append(made)
        return made

    yield start
    for made in sessions:
        made.stop()


@pytest.fixture
def seen(plan):
    """The events recorded so far, those of one kind if it is given."""
    return lambda *kinds: [e for e in Tail(Path(plan.directory)).new() if not kinds or e.kind in kinds]


@pytest.fixture
def firings(tmp_path, monkeypatch):
    """A fault ``note`` that only notes that it fired, and in a second file when; the file it notes it in."""
    file = tmp_path / "firings"
    file.touch()

    class Note(base.Fault):
        name, effect, certifies, not_certified = "note", "a line", "nothing", "anything"

        def fire(self):
            now = time.time_ns()
            with file.open("a") as stream, file.with_suffix(".times").open("a") as times:
                stream.write("fired\n")
                times.write(f"{now}\n")

    monkeypatch.setitem(base._REGISTER, "note", Note)
    return file


def optimizer(kind=torch.optim.SGD, parameters=1, **options):
    return kind([torch.zeros(2, requires_grad=True) for _ in range(parameters)], **options)


def step(*optimizers, times=1):
    for _ in range(times):
        for one in optimizers:
            for parameter in one.param_groups[0]["params"]:
                parameter.grad = torch.ones_like(parameter)
            one.step()


def steps(events):
    return [event.step for event in events]


def armed(plan, *injections):
    return dataclasses.replace(plan, injections=injections)


def note(step, rank=0):
    return Injection(id="note-0", fault="note", rank=rank, step=step)


def test_steps_are_counted_from_those_done(listen, seen):
    me = listen(steps_done=7)
    step(optimizer(), times=3)
    assert steps(seen("step.end")) == [8, 9, 10]
    assert me.step == 10


def test_several_optimizers_fold_into_one_step(listen, seen):
    listen()
    step(optimizer(), optimizer(torch.optim.AdamW), optimizer(), times=3)
    assert steps(seen("step.end")) == [1, 2, 3]


def test_an_optimizer_that_steps_less_often_adds_no_step(listen, seen):
    listen()
    often, seldom = optimizer(), optimizer()
    for i in range(4):
        step(often)
        if i % 2:
            step(seldom)
    assert steps(seen("step.end")) == [1, 2, 3, 4]


def test_a_step_that_the_gradient_scaler_skips_is_none(listen, seen):
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
def test_the_step_by_which_torch_makes_empty_state_is_not_counted(listen, seen, options):
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
def test_saving_a_stateless_optimizer_adds_no_step(listen, seen, scheduled):
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
def test_samples_are_recorded_as_ranges(listen, seen, ids, ranges):
    me = listen()
    for some in ids:
        me.samples(some)
    step(optimizer())
    assert seen("step.end")[0].data["samples"] == ranges


def test_the_data_begin_with_the_first_samples(listen, seen):
    me = listen()
    for ids in ([0], [1], [2]):
        me.samples(ids)
        step(optimizer())
    assert [event.kind for event in seen()][:2] == ["data.begin", "step.end"]
    assert len(seen("data.begin")) == 1


def test_samples_and_loss_belong_to_the_step_under_way(listen, seen):
    me, trained = listen(), optimizer(lr=0.5)
    me.samples([1, 2])
    me.loss(0.25)
    step(trained)
    trained.param_groups[0]["lr"] = torch.tensor(0.125)
    step(trained)
    assert [event.data for event in seen("step.end")] == [
        {"loss": 0.25, "lr": 0.5, "samples": [[1, 2]]},
        {"loss": None, "lr": 0.125, "samples": []},
    ]


def test_after_stop_nothing_is_counted(listen, seen):
    me, trained = listen(), optimizer()
    step(trained)
    me.stop()
    step(trained)
    assert steps(seen("step.end")) == [1]


def test_state_is_told_as_digests_at_the_step(listen, seen):
    tree = {"model": {"w": torch.arange(3.0)}, "step": 2}
    listen(steps_done=2).state("saved", tree)
    (event,) = seen("state")
    assert (event.step, event.data["name"], event.data["parts"]) == (2, "saved", tree_digests(tree))
    assert event.data["cost_ns"] > 0


def test_a_fault_fires_right_after_its_step(plan, listen, seen, firings):
    listen(armed(plan, note(step=3)))
    trained = optimizer()
    step(trained, times=2)
    assert firings.read_text() == ""
    step(trained)
    assert firings.read_text() == "fired\n"
    assert [(e.kind, e.step) for e in seen()][-2:] == [("step.end", 3), ("fault.fired", 3)]
    assert seen("fault.fired")[0].data == {"injection": "note-0", "fault": "note"}


def test_the_time_of_a_fault_is_known_to_a_millisecond(plan, listen, seen, firings):
    listen(armed(plan, *(Injection(id=f"note-{i}", fault="note", rank=0, step=i) for i in range(1, 10))))
    step(optimizer(), times=9)
    fired = [event.wall_ns for event in seen("fault.fired")]
    times = [int(line) for line in firings.with_suffix(".times").read_text().split()]
    assert all(there - told >= 0 for told, there in zip(fired, times, strict=True))
    assert statistics.median(there - told for told, there in zip(fired, times, strict=True)) < 1_000_000


def test_a_fault_fires_once_across_restarts(plan, listen, seen, firings):
    orders = armed(plan, note(step=3))
    for _ in range(2):
        life = listen(orders)
        step(optimizer(), times=5)
        life.stop()
    assert steps(seen("step.end")) == [1, 2, 3, 4, 5] * 2
    assert steps(seen("fault.fired")) == [3]
    assert firings.read_text() == "fired\n"


def test_another_rank_is_spared(plan, listen, seen, firings):
    listen(armed(plan, note(step=1, rank=1)), rank=0)
    step(optimizer(), times=2)
    assert firings.read_text() == ""


def train_to_death(plan):
    Session(plan, EventWriter(plan.events, "n"), rank=1, steps_done=0).start(None)
    step(optimizer(), times=9)


def test_a_killed_process_has_told_everything_that_happened(plan, seen):
    orders = armed(plan, Injection(id="kill-0", fault="kill", rank=1, step=3))
    process = multiprocessing.get_context("fork").Process(target=train_to_death, args=(orders,))
    process.start()
    process.join(20)
    assert process.exitcode == -9
    assert [(e.kind, e.step, e.pid) for e in seen()] == [
        *(("step.end", i, process.pid) for i in (1, 2, 3)),
        ("fault.fired", 3, process.pid),
    ]
    assert [path.name for path in plan.board.iterdir()] == ["fired-kill-0"]


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint_7"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / name).write_text(name)
    return folder


def test_a_restore_begins_with_the_first_file_and_ends_when_the_workload_says_so(listen, seen, checkpoint):
    me = listen(checkpoint=f"{checkpoint}/")
    assert seen("restore.begin") == []
    for name in ("one", "two"):
        (checkpoint / name).read_text()
    me.state("restored", {"step": 7})
    (checkpoint / "one").read_text()
    begin, end = seen("restore.begin", "restore.end")
    assert begin.data == {"checkpoint": "checkpoint_7"}
    assert end.data == {"exact": True}
    assert begin.mono_ns <= end.mono_ns


def test_a_restore_that_nobody_tells_of_ends_with_the_last_file(listen, seen, checkpoint):
    listen(checkpoint=str(checkpoint))
    (checkpoint / "one").read_text()
    with os.fdopen(os.open(os.fsencode(checkpoint / "two"), os.O_RDONLY)) as file:
        file.read()
    step(optimizer(), times=2)
    begin, end, first, _ = sorted(seen(), key=lambda event: event.mono_ns)
    assert [begin.kind, end.kind, first.kind] == ["restore.begin", "restore.end", "step.end"]
    assert end.data == {"exact": False}


def test_files_elsewhere_are_no_restore(listen, seen, checkpoint):
    listen(checkpoint=str(checkpoint))
    other = checkpoint.with_name("checkpoint_77")
    other.write_text("a name with the same beginning")
    other.read_text()
    step(optimizer())
    assert seen("restore.begin", "restore.end") == []


@pytest.fixture
def full_disk(plan):
    """A session whose event file takes nothing any more."""
    writer = EventWriter(plan.events, "n")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._handle)
    os.close(full)
    made = Session(plan, writer, 0, 0)
    made.start(None)
    yield made
    made.stop()


def test_an_event_file_that_takes_nothing_does_not_reach_the_training(full_disk, capsys):
    trained = optimizer(lr=1.0)
    step(trained, times=2)
    assert trained.param_groups[0]["params"][0].tolist() == [-2.0, -2.0]
    assert "No space left" in capsys.readouterr().err


@pytest.mark.parametrize("trouble", ["unknown fault", "board gone"])
def test_trouble_with_a_fault_does_not_reach_the_training(plan, listen, seen, firings, trouble):
    injection = dataclasses.replace(note(step=1), fault="nosuch" if trouble == "unknown fault" else "note")
    listen(armed(plan, injection))
    if trouble == "board gone":
        shutil.rmtree(plan.board)
    step(optimizer(), times=2)
    assert firings.read_text() == ""
    assert steps(seen("step.end")) == [1, 2]
    assert len(seen("agent.error")) == 1
