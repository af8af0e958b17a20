"""Faults at the points of a training process, the restore, trouble that must not reach the training, stacks."""

from __future__ import annotations

import dataclasses
import faulthandler
import os
import shutil
import subprocess

import pytest
import torch

from chaos.agent.events import EventWriter
from chaos.agent.plan import Injection
from chaos.agent.session import STACKS, Session, write_stacks_on_signal
from chaos.faults import base
from chaos.faults.hang_gil import hold_lock
from chaos.triggers import at_step, before_step, in_phase, on_attempt
from tests.chaos.session.optimizers import armed, note, optimizer, step, steps

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


def test_a_fault_tells_the_folder_that_is_saved_to_or_restored_from(plan, listen, seen, checkpoint, tmp_path) -> None:
    listen(armed(plan, raised(in_phase("save"))))
    with pytest.raises(base.InjectedError):
        (tmp_path / "__0_0.distcp").write_bytes(b"shard")
    again = Injection(id="exception-1", fault="exception", rank=0, trigger=in_phase("restore"))
    listen(armed(plan, again), checkpoint=f"{checkpoint}/")
    with pytest.raises(base.InjectedError):
        (checkpoint / "one").read_text()
    assert [event.data["place"] for event in seen("fault.fired")] == [str(tmp_path), str(checkpoint)]


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
