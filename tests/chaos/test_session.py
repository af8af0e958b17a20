"""The session in a training process, with torch's own optimizers: steps, samples, faults, the restore, stacks."""

from __future__ import annotations

import dataclasses
import faulthandler
import multiprocessing
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from chaos.agent.events import EventWriter
from chaos.agent.plan import Injection
from chaos.agent.session import STACKS, Session, write_stacks_on_signal
from chaos.digest import tree_digests
from chaos.faults import base
from chaos.faults.hang_gil import hold_lock
from chaos.history import Tail
from chaos.triggers import at_step, before_step, in_phase, on_attempt


@pytest.fixture
def listen(plan):
    """Begin sessions; all stop listening after the test."""
    sessions = []

    def start(orders=plan, *, rank=0, attempt=0, steps_done=0, checkpoint=None):
        made = Session(orders, EventWriter(plan.events, "n"), rank, attempt, steps_done)
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
        name, effect, certifies, not_certified, proof = "note", "a line", "nothing", "anything", base.Proof.TOLD

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
    return Injection(id="note-0", fault="note", rank=rank, trigger=at_step(step))


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


# Faults at the points of a training process


def raised(trigger, rank=0):
    return Injection(id="exception-0", fault="exception", rank=rank, trigger=trigger)


def test_an_exception_after_a_step_comes_out_of_the_optimizers_step(plan, listen, seen) -> None:
    listen(armed(plan, raised(at_step(2))))
    trained = optimizer(lr=1.0)
    with pytest.raises(base.InjectedError):
        step(trained, times=3)
    assert steps(seen("step.end")) == [1, 2]
    assert trained.param_groups[0]["params"][0].tolist() == [-2.0, -2.0]
    assert seen("agent.error") == []


def test_an_exception_before_a_step_leaves_the_weights_as_they_were(plan, listen, seen) -> None:
    listen(armed(plan, raised(before_step(2))))
    trained = optimizer(lr=1.0)
    with pytest.raises(base.InjectedError):
        step(trained, times=3)
    assert steps(seen("step.end", "fault.fired")) == [1, 1]
    assert trained.param_groups[0]["params"][0].tolist() == [-1.0, -1.0]
    assert seen("fault.fired")[0].data["phase"] == "optimizer"


def test_before_a_step_means_before_its_first_optimizer(plan, listen) -> None:
    listen(armed(plan, raised(before_step(2))))
    first, second = optimizer(lr=1.0), optimizer(lr=1.0)
    with pytest.raises(base.InjectedError):
        step(first, second, times=2)
    weights = [trained.param_groups[0]["params"][0].tolist() for trained in (first, second)]
    assert weights == [[-1.0, -1.0], [-1.0, -1.0]]


def test_a_collective_that_times_out_in_a_peer_comes_out_of_its_training(plan, listen, seen, monkeypatch) -> None:
    def time_out(self):
        raise RuntimeError("Timed out waiting 10000ms for recv operation to complete")

    monkeypatch.setattr(base.all_faults()["skip-collective"], "accompany", time_out)
    listen(armed(plan, Injection(id="skip-0", fault="skip-collective", rank=1, trigger=at_step(1))), rank=0)
    with pytest.raises(base.InjectedError, match=r"fault skip-collective on another rank: Timed out waiting"):
        step(optimizer())
    assert [event.kind for event in seen()] == ["step.end"]


@pytest.mark.parametrize(("phase", "evaluating"), [("first-step", False), ("forward", False), ("evaluation", True)])
def test_an_exception_in_a_forward_pass_comes_out_of_the_model(plan, listen, seen, phase, evaluating) -> None:
    listen(armed(plan, raised(in_phase(phase) & at_step(0))))
    model = torch.nn.Sequential(torch.nn.Linear(2, 2)).train(not evaluating)
    with pytest.raises(base.InjectedError):
        model(torch.ones(1, 2))
    assert model(torch.ones(1, 2)).shape == (1, 2)
    assert [event.data["phase"] for event in seen("fault.fired")] == [phase]


def test_an_exception_in_a_save_comes_out_of_the_opened_file(plan, listen, tmp_path) -> None:
    listen(armed(plan, raised(in_phase("save") & at_step(0))))
    with pytest.raises(base.InjectedError):
        (tmp_path / "__0_0.distcp").write_bytes(b"shard")
    assert not (tmp_path / "__0_0.distcp").exists()
    (tmp_path / "__0_0.distcp").write_bytes(b"shard")


def test_a_fault_knows_its_attempt(plan, listen, seen, firings) -> None:
    orders = armed(plan, dataclasses.replace(note(step=1), trigger=at_step(1) & on_attempt(1)))
    for attempt in range(3):
        life = listen(orders, attempt=attempt)
        step(optimizer())
        life.stop()
        assert len(seen("fault.fired")) == min(attempt, 1)


def test_a_point_is_listened_to_only_while_something_armed_needs_it(plan, listen) -> None:
    def hooks():
        from torch.nn.modules.module import _global_forward_pre_hooks
        from torch.optim.optimizer import _global_optimizer_pre_hooks

        return len(_global_forward_pre_hooks), len(_global_optimizer_pre_hooks)

    none = hooks()
    listen(armed(plan, raised(at_step(1)), raised(in_phase("forward"), rank=1)))
    assert hooks() == none
    life = listen(armed(plan, raised(in_phase("forward")), raised(before_step(3))))
    assert hooks() == (none[0] + 1, none[1] + 1)
    life.stop()
    assert hooks() == none


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint_7"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / name).write_text(name)
    return folder


def test_a_restore_begins_with_the_first_file_and_ends_when_the_workload_says_so(listen, seen, checkpoint) -> None:
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


def test_a_restore_that_nobody_tells_of_ends_with_the_last_file(listen, seen, checkpoint) -> None:
    listen(checkpoint=str(checkpoint))
    (checkpoint / "one").read_text()
    with os.fdopen(os.open(os.fsencode(checkpoint / "two"), os.O_RDONLY)) as file:
        file.read()
    step(optimizer(), times=2)
    begin, end, first, _ = sorted(seen(), key=lambda event: event.mono_ns)
    assert [begin.kind, end.kind, first.kind] == ["restore.begin", "restore.end", "step.end"]
    assert end.data == {"exact": False}


def test_files_elsewhere_are_no_restore(listen, seen, checkpoint) -> None:
    listen(checkpoint=str(checkpoint))
    other = checkpoint.with_name("checkpoint_77")
    other.write_text("a name with the same beginning")
    other.read_text()
    step(optimizer())
    assert seen("restore.begin", "restore.end") == []


def test_an_exception_in_a_restore_comes_out_of_its_first_file(plan, listen, seen, checkpoint) -> None:
    listen(armed(plan, raised(in_phase("restore"))), checkpoint=str(checkpoint), steps_done=7)
    with pytest.raises(base.InjectedError):
        (checkpoint / "one").read_text()
    (checkpoint / "two").read_text()
    assert [(e.kind, e.step) for e in seen()] == [("restore.begin", None), ("fault.fired", 7)]


@pytest.fixture
def full_disk(plan):
    """A session whose event file takes nothing any more."""
    writer = EventWriter(plan.events, "n")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._handle)
    os.close(full)
    made = Session(plan, writer, 0, 0, 0)
    made.start(None)
    yield made
    made.stop()


def test_a_fault_that_fails_does_not_reach_the_training(plan, listen, seen, monkeypatch) -> None:
    monkeypatch.setattr(base.find_fault("exception").__class__, "fire", lambda self: 1 / 0)
    listen(armed(plan, raised(at_step(1))))
    step(optimizer(), times=2)
    assert steps(seen("step.end")) == [1, 2]
    assert [event.data["error"] for event in seen("fault.failed")] == ["ZeroDivisionError('division by zero')"]
    assert seen("agent.error") == []


def test_an_event_file_that_takes_nothing_does_not_reach_the_training(full_disk, capsys) -> None:
    trained = optimizer(lr=1.0)
    step(trained, times=2)
    assert trained.param_groups[0]["params"][0].tolist() == [-2.0, -2.0]
    assert "No space left" in capsys.readouterr().err


@pytest.mark.parametrize("trouble", ["unknown fault", "board gone"])
def test_trouble_with_a_fault_does_not_reach_the_training(plan, listen, seen, firings, trouble) -> None:
    injection = dataclasses.replace(note(step=1), fault="nosuch" if trouble == "unknown fault" else "note")
    listen(armed(plan, injection))
    if trouble == "board gone":
        shutil.rmtree(plan.board)
    step(optimizer(), times=2)
    assert firings.read_text() == ""
    assert steps(seen("step.end")) == [1, 2]
    assert len(seen("agent.error")) == 1


# Stacks


@pytest.fixture
def stacks(plan):
    """Where this process writes its stacks when asked."""
    write_stacks_on_signal(plan.stacks, rank=3)
    yield plan.stacks / f"rank3-{os.getpid()}.txt"
    faulthandler.unregister(STACKS)


def test_stacks_are_written_each_time_they_are_asked_for(stacks) -> None:
    for _ in range(2):
        os.kill(os.getpid(), STACKS)
    assert stacks.read_text().count("in test_stacks_are_written_each_time_they_are_asked_for") == 2


def test_stacks_are_written_even_while_the_interpreter_lock_is_held(stacks) -> None:
    asking = subprocess.Popen(["sh", "-c", f"sleep 0.1; kill -{int(STACKS)} {os.getpid()}"])
    hold_lock(0.5)
    asking.wait(10)
    assert "in hold_lock" in stacks.read_text()
