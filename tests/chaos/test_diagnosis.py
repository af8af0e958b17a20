"""Asking a standing job who stands where: by the stacks of real processes, and by stacks of real runs."""

from __future__ import annotations

import os
import signal
import time

import pytest

from chaos import diagnosis, stacks
from chaos.diagnosis import Diagnosis, standing
from chaos.process import Identity
from chaos.stacks import Frame

SITE = "/venv/lib/python3.11/site-packages"
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
ROOT = [
    Frame(f"{SITE}/ray/train/v2/_internal/util.py", 89, "train_fn"),
    Frame(f"{SITE}/ray/train/v2/_internal/execution/worker_group/worker.py", 152, "train_fn_with_final_flush"),
    Frame(f"{SITE}/ray/train/v2/_internal/execution/worker_group/thread_runner.py", 37, "_run_target"),
    Frame("/usr/lib/python3.11/threading.py", 982, "run"),
]
PROGRAM = [Frame("/job/loop.py", 153, "log"), Frame("/job/loop.py", 51, "train")]
IN_COLLECTIVE = [
    Frame(C10D, 3252, "all_reduce"),
    Frame(f"{SITE}/torch/distributed/c10d_logger.py", 83, "wrapper"),
    *PROGRAM, *ROOT,
]  # fmt: skip
IN_WAIT = [
    Frame(f"{SITE}/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 300, "foreach_all_gather_copy_out"),
    Frame(f"{SITE}/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py", 330, "wait_for_unshard"),
    Frame(f"{SITE}/torch/nn/modules/module.py", 1800, "inner"),
    Frame("/job/model.py", 40, "next_token_loss"), *PROGRAM, *ROOT,
]  # fmt: skip
IN_REPORT = [
    Frame("/usr/lib/python3.11/threading.py", 331, "wait"),
    Frame(f"{SITE}/ray/_private/worker.py", 2900, "get"),
    Frame(f"{SITE}/ray/train/v2/_internal/execution/context.py", 200, "report"),
    Frame(f"{SITE}/ray/train/v2/api/train_fn_utils.py", 60, "report"),
    *PROGRAM, *ROOT,
]  # fmt: skip
IN_FAULT = [Frame(f"{SITE}/chaos/faults/hang.py", 31, "fire"), *IN_COLLECTIVE]
IN_DATA = [
    Frame("/usr/lib/python3.11/threading.py", 331, "wait"),
    Frame(f"{SITE}/ray/data/_internal/iterator.py", 10, "next"), *PROGRAM, *ROOT,
]  # fmt: skip


@pytest.mark.parametrize(
    ("frames", "kind", "frame", "site"),
    [
        (IN_COLLECTIVE, "collective", "all_reduce (distributed_c10d.py:3252)", "log (loop.py:153)"),
        (IN_WAIT, "collective", "wait_for_unshard (_fsdp_param_group.py:330)", "next_token_loss (model.py:40)"),
        (IN_REPORT, "report", "report (train_fn_utils.py:60)", "log (loop.py:153)"),
        (IN_FAULT, "elsewhere", "fire (hang.py:31)", "fire (hang.py:31)"),
        (IN_DATA, "elsewhere", "wait (threading.py:331)", "log (loop.py:153)"),
        ([*PROGRAM, *ROOT], "elsewhere", "log (loop.py:153)", "log (loop.py:153)"),
        (ROOT, "elsewhere", "", ""),
    ],
)
def test_a_stack_tells_what_its_thread_waits_in_and_where_the_program_is(frames, kind, frame, site) -> None:
    assert standing(frames) == {"standing": kind, "frame": frame, "site": site}


# Real processes


STAND = """
import sys, time
from pathlib import Path
from chaos.agent.session import write_stacks_on_signal

def stand():
    print("there", flush=True)
    time.sleep(60)

def _run_target():
    stand()

write_stacks_on_signal(Path(sys.argv[1]), int(sys.argv[2]))
_run_target() if sys.argv[3] == "trains" else stand()
"""


@pytest.fixture
def observe(plan, writer):
    made = Diagnosis(plan, writer)
    writer.observe(made)
    return made


@pytest.fixture
def ranks(plan, python, writer, event, monkeypatch):
    """Start two training processes that stand, in a running group that has made a step; what each of them does."""
    monkeypatch.setattr(diagnosis, "STILL_S", 0.3)

    def start(*does, steps=True, state="RUNNING"):
        plan.stacks.mkdir(parents=True, exist_ok=True)
        writer.append(event("controller.state", data={"from": "SCHEDULING", "to": state}))
        children = [python(STAND, plan.stacks, rank, what) for rank, what in enumerate(does or ("trains", "trains"))]
        for rank, child in enumerate(children):
            assert child.stdout.readline() == b"there\n"
            start = Identity.of(child.pid).start
            writer.append(event("worker.start", pid=child.pid, attempt=0, rank=rank, data={"start": start}))
        for rank in range(len(children) if steps else 0):
            writer.append(event("step.end", mono_ns=time.monotonic_ns(), attempt=0, rank=rank, step=1))
        return children

    return start


@pytest.fixture
def looked(observe, told, eventually):
    """What was told of all looks, once there are so many."""

    def look(wanted=1):
        def there():
            observe.tick()
            return len(found()) >= wanted

        assert eventually(there)
        return found()

    def found():
        return [event.data for event in told if event.kind == "probe.hang"]

    return look


@pytest.fixture
def quiet(observe, told):
    """That nobody is asked any more: for a good while of ticks there is no further look."""

    def look(seconds=1.0):
        before, end = len(told), time.monotonic() + seconds
        while time.monotonic() < end:
            observe.tick()
            time.sleep(0.02)
        return len(told) == before

    return look


THERE = {"standing": "elsewhere", "frame": "stand (<string>:8)", "site": "stand (<string>:8)"}


def test_a_group_that_stands_still_is_asked_once(ranks, looked, quiet) -> None:
    begin = time.monotonic()
    ranks()
    (found,) = looked()
    assert found["ranks"] == {"0": THERE, "1": THERE}
    assert 0.3 <= found["still_s"] <= time.monotonic() - begin
    assert quiet()


def test_a_stopped_process_and_one_without_a_training_thread_are_told(ranks, looked) -> None:
    children = ranks("trains", "trains", "other")
    os.kill(children[1].pid, signal.SIGSTOP)
    (found,) = looked()
    stands = {rank: stand["standing"] for rank, stand in found["ranks"].items()}
    assert stands == {"0": "elsewhere", "1": "stopped", "2": "silent"}


def test_a_process_that_is_gone_is_left_out(ranks, looked, writer, event) -> None:
    children = ranks()
    children[1].kill()
    children[1].wait()
    writer.append(event("process.exit", mono_ns=time.monotonic_ns(), attempt=0, rank=1, data={"pid": children[1].pid}))
    (found,) = looked()
    assert found["ranks"] == {"0": THERE}


@pytest.mark.parametrize("shape", [{"steps": False}, {"state": "RESTARTING"}])
def test_a_group_that_has_made_no_step_or_does_not_run_is_not_asked(observe, ranks, quiet, shape) -> None:
    ranks(**shape)
    assert quiet()


def test_every_event_of_a_rank_puts_off_the_question_and_a_new_standstill_asks_again(
    observe, ranks, looked, told, writer, event
) -> None:
    ranks()
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        writer.append(event("report.end", mono_ns=time.monotonic_ns(), attempt=0, rank=0, step=1))
        observe.tick()
        time.sleep(0.05)
    assert "probe.hang" not in [one.kind for one in told]
    looked(1)
    writer.append(event("step.end", mono_ns=time.monotonic_ns(), attempt=0, rank=1, step=2))
    observe.tick()
    looked(2)


def test_a_fault_is_no_sign_of_life(ranks, looked, writer, event) -> None:
    ranks()
    writer.append(event("fault.fired", mono_ns=time.monotonic_ns() + 10**12, attempt=0, rank=1, step=1))
    looked(1)


def test_a_process_that_goes_late_does_not_take_its_rank_along(ranks, looked, writer, event) -> None:
    children = ranks()
    writer.append(event("process.exit", mono_ns=1, attempt=0, rank=1, data={"pid": children[1].pid + 1_000_000}))
    writer.append(event("step.end", mono_ns=time.monotonic_ns(), attempt=0, rank=1, step=2))
    (found,) = looked()
    assert found["ranks"].keys() == {"0", "1"}


def test_an_answer_that_takes_its_time_is_awaited(ranks, looked, monkeypatch) -> None:
    answers = iter([[], [], [[Frame("/job/loop.py", 8, "train"), *ROOT]]])
    read = stacks.read
    late = lambda folder, rank, *place: next(answers) if rank == 1 else read(folder, rank, *place)  # noqa: E731
    monkeypatch.setattr(stacks, "read", late)
    ranks()
    (found,) = looked()
    assert {stand["standing"] for stand in found["ranks"].values()} == {"elsewhere"}
