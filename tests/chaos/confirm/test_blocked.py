"""Confirming that a process is blocked: by its stack, while nothing moves."""

from __future__ import annotations

import os
import time

import pytest

from chaos import INSTALLATION, confirm, stacks
from chaos.process import Identity

SECOND = 10**9

STAND = """
import importlib, sys, time
from pathlib import Path
from chaos.agent.session import write_stacks_on_signal

def elsewhere():
    time.sleep(60)

def find(place):
    module, _, names = place.partition(":")
    found = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
        found = found() if isinstance(found, type) else found
    return found

write_stacks_on_signal(Path(sys.argv[1]), int(sys.argv[2]))
stand = find(sys.argv[3]) if len(sys.argv) > 3 else elsewhere
print("there", flush=True)
stand()
"""

HUNG_BEFORE = """
import sys, time
from pathlib import Path
from chaos.agent.session import write_stacks_on_signal
from chaos.faults.hang import Hang

write_stacks_on_signal(Path(sys.argv[1]), 1)
print("there", flush=True)
while not Path(sys.argv[2]).exists():
    Hang(0.1).fire()
print("elsewhere", flush=True)
time.sleep(60)
"""

COLLECTIVES = """
import time

def is_initialized():
    return True

def all_reduce(tensor):
    time.sleep(60)

def all_gather():
    time.sleep(60)
"""
"""What stands in for ``torch.distributed`` where nothing but waiting in it is of interest."""


@pytest.fixture
def stand(plan, event, python, tmp_path):
    """Put a rank of the job at a place, as ``chaos.faults.hang:Hang.fire``, or elsewhere; the event of its start."""
    torch = tmp_path / "site" / "torch"
    (torch / "distributed").mkdir(parents=True)
    (torch / "__init__.py").write_text("zeros = range")
    (torch / "distributed" / "__init__.py").write_text(COLLECTIVES)
    environment = {**os.environ, "PYTHONPATH": f"{INSTALLATION}:{tmp_path / 'site'}"}

    def start(rank, *place):
        child = python(STAND, plan.stacks, rank, *place, env=environment)
        assert child.stdout.readline() == b"there\n"
        began = {"start": Identity.of(child.pid).start}
        return event("worker.start", pid=child.pid, attempt=0, rank=rank, data=began)

    return start


@pytest.fixture
def quick(monkeypatch):
    """Ask sooner than in a real run."""
    monkeypatch.setattr(confirm, "QUIET_S", 0.05)
    monkeypatch.setattr(confirm, "WRITTEN_S", 0.05)


@pytest.fixture
def ticking(told):
    """Tick until something is confirmed, or the time is up; what is confirmed then."""

    def tick(watch, seconds, meanwhile=lambda: None):
        end = time.monotonic() + seconds
        while not told and time.monotonic() < end:
            meanwhile()
            watch.tick()
            time.sleep(0.01)
        return [event.data["evidence"] for event in told]

    return tick


def now():
    return time.monotonic_ns()


def test_a_rank_that_stands_inside_the_fault_while_nothing_moves_is_confirmed(
    observe, fired, stand, ticking, told
) -> None:
    watch = observe(hang={})
    victim = stand(1, "chaos.faults.hang:Hang.fire")
    watch(victim)
    watch(stand(0))
    begin = now()
    watch(fired("hang", pid=victim.pid, wall=begin))
    (evidence,) = ticking(watch, 20)
    assert evidence.startswith("rank 1 stands in fire (hang.py:")
    assert "no step for" in evidence
    assert told[0].data["after_ms"] >= 1000 * confirm.QUIET_S
    assert told[0].mono_ns - begin >= confirm.QUIET_S * SECOND


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("hang-gil", "chaos.faults.hang_gil:HangGil.fire"),
        ("missing-report", "chaos.faults.missing_report:MissingReport.fire"),
    ],
)
def test_every_way_to_block_is_found_by_the_stack(observe, fired, stand, ticking, name, place) -> None:
    watch = observe(**{name: {}})
    victim = stand(1, place)
    watch(victim)
    watch(fired(name, pid=victim.pid, wall=now()))
    (evidence,) = ticking(watch, 20)
    assert evidence.startswith("rank 1 stands in ")


@pytest.mark.usefixtures("quick")
def test_a_rank_that_still_makes_steps_is_not_asked_and_not_confirmed(
    plan, observe, fired, stand, event, ticking
) -> None:
    watch = observe(hang={})
    victim, other = stand(1, "chaos.faults.hang:Hang.fire"), stand(0)
    watch(victim)
    watch(other)
    watch(fired("hang", pid=victim.pid, wall=now()))
    steps = iter(range(4, 10_000))

    def step():
        watch(event("step.end", wall=now(), pid=other.pid, attempt=0, rank=0, step=next(steps)))

    assert ticking(watch, 0.3, meanwhile=step) == []
    assert [file.read_text() for file in plan.stacks.iterdir()] == ["", ""]
    assert ticking(watch, 10) != []


@pytest.mark.usefixtures("quick")
def test_a_rank_that_stands_elsewhere_is_not_confirmed(observe, fired, stand, ticking) -> None:
    watch = observe(hang={})
    victim = stand(1)
    watch(victim)
    watch(stand(0, "chaos.faults.hang:Hang.fire"))
    watch(fired("hang", pid=victim.pid, wall=now()))
    assert ticking(watch, 0.3) == []


def _seen_in_the_hang(folder, identity):
    """Asked each time anew, as between two of its hangs it may stand elsewhere."""
    stacks.ask(folder, {1: identity})
    return stacks.inside(stacks.read(folder, 1, identity.pid), "/hang.py")


@pytest.mark.usefixtures("quick")
def test_where_a_rank_stood_before_is_no_evidence(
    observe, fired, python, plan, event, eventually, ticking, tmp_path
) -> None:
    """It hung for a while at another injection, wrote its stacks then, and has left the fault since."""
    child = python(HUNG_BEFORE, plan.stacks, tmp_path / "leave")
    identity = Identity.of(child.pid)
    assert child.stdout.readline() == b"there\n"
    assert eventually(lambda: _seen_in_the_hang(plan.stacks, identity))
    (tmp_path / "leave").touch()
    assert child.stdout.readline() == b"elsewhere\n"
    watch = observe(hang={})
    watch(event("worker.start", pid=child.pid, attempt=0, rank=1, data={"start": identity.start}))
    watch(fired("hang", pid=child.pid, wall=now()))
    assert ticking(watch, 0.3) == []


@pytest.mark.usefixtures("quick")
def test_a_victim_that_is_gone_is_not_confirmed(observe, fired, stand, gone, ticking) -> None:
    watch = observe(hang={})
    victim = stand(1, "chaos.faults.hang:Hang.fire")
    watch(victim)
    watch(fired("hang", pid=victim.pid, wall=now()))
    watch(gone(pid=victim.pid))
    assert ticking(watch, 0.3) == []


@pytest.mark.usefixtures("quick")
def test_with_peers_it_is_the_others_that_stand_inside_the_fault(observe, fired, stand, ticking) -> None:
    watch = observe(skip_collective={})
    victim = stand(1, "torch.distributed:all_gather")
    watch(victim)
    for rank in (0, 2):
        watch(stand(rank, "chaos.faults.skip_collective:SkipCollective.accompany"))
    watch(fired("skip-collective", pid=victim.pid, wall=now()))
    (evidence,) = ticking(watch, 20)
    first, second, third, _ = evidence.split("; ")
    assert first.startswith("rank 0 stands in accompany (skip_collective.py:")
    assert second.startswith("rank 2 stands in accompany (skip_collective.py:")
    assert third.startswith("rank 1 in all_gather (__init__.py:")


@pytest.mark.usefixtures("quick")
def test_with_peers_one_that_stands_elsewhere_is_too_many(observe, fired, stand, ticking) -> None:
    watch = observe(skip_collective={})
    victim = stand(1, "torch.distributed:all_gather")
    watch(victim)
    watch(stand(0, "chaos.faults.skip_collective:SkipCollective.accompany"))
    watch(stand(2))
    watch(fired("skip-collective", pid=victim.pid, wall=now()))
    assert ticking(watch, 0.3) == []


@pytest.mark.usefixtures("quick")
def test_with_peers_a_rank_alone_proves_nothing(observe, fired, stand, ticking) -> None:
    watch = observe(skip_collective={})
    victim = stand(1, "chaos.faults.skip_collective:SkipCollective.accompany")
    watch(victim)
    watch(fired("skip-collective", pid=victim.pid, wall=now()))
    assert ticking(watch, 0.3) == []


@pytest.mark.parametrize("fault", ["kill", "exception", "hang", "delay"])
def test_what_proves_another_kind_of_fault_proves_nothing(observe, fired, gone, event, told, fault) -> None:
    """Each effect there is, and one fault at a time: only its own counts."""
    proofs = {
        "kill": gone(cause="SIGKILL"),
        "exception": event("worker.error", attempt=0, rank=1, data={"error": "InjectedError"}),
        "delay": event("fault.ended", attempt=0, rank=1, data={"injection": f"{fault}-0", "seconds": 9.0}),
    }
    watch = observe(**{fault: {}})
    watch(fired(fault))
    for other, proof in proofs.items():
        if other != fault:
            watch(proof)
    assert told == []
