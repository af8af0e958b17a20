"""Confirming: the very effect that a fault promises, on the very process, in time; nothing else counts."""

from __future__ import annotations

import dataclasses
import os
import time

import pytest

from chaos import INSTALLATION, confirm, stacks
from chaos.agent.plan import Injection
from chaos.confirm import Confirm
from chaos.faults.base import find_fault
from chaos.process import Identity
from chaos.triggers import at_step

SECOND = 10**9
START = 1000 * SECOND

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
def observe(plan, writer):
    """Arm faults by name and settings, each an injection ``NAME-0``; returns the observer."""

    def arm(**faults):
        injections = tuple(
            Injection(id=f"{name}-0", fault=name, rank=1, trigger=at_step(3), values=values)
            for name, values in ((name.replace("_", "-"), values) for name, values in faults.items())
        )
        return Confirm(dataclasses.replace(plan, injections=injections), writer)

    return arm


@pytest.fixture
def fired(event):
    """A fault that its victim, rank 1 in attempt 0, has fired after step 3."""

    def make(name, *, wall=START, pid=7, **fields):
        data = {"injection": f"{name}-0", "fault": name, "phase": "step", "node": "w0"}
        return event("fault.fired", wall=wall, pid=pid, **{"attempt": 0, "rank": 1, "step": 3, **fields}, data=data)

    return make


@pytest.fixture
def gone(event):
    """The exit of a process, some seconds after the fault."""

    def make(*, pid=7, after=0.01, seen="at once", cause=""):
        wall = START + round(after * SECOND)
        return event("process.exit", wall=wall, attempt=0, rank=1, data={"pid": pid, "seen": seen, "cause": cause})

    return make


def test_what_is_confirmed_is_told_where_and_after_what_time(observe, fired, gone, told) -> None:
    watch = observe(kill={})
    watch(fired("kill"))
    assert told == []
    watch(gone(after=0.25, cause="SIGKILL"))
    (confirmed,) = told
    assert (confirmed.kind, confirmed.attempt, confirmed.rank, confirmed.step) == ("fault.confirmed", 0, 1, 3)
    assert confirmed.data == {
        "injection": "kill-0",
        "evidence": "process 7 left the process table, ended by SIGKILL",
        "after_ms": 250.0,
        "seen": "at once",
    }


@pytest.mark.parametrize(
    ("fault", "values", "cause", "evidence"),
    [
        ("kill", {}, "SIGKILL", "process 7 left the process table, ended by SIGKILL"),
        ("abort", {}, "SIGABRT", "process 7 left the process table, ended by SIGABRT"),
        ("segfault", {}, "SIGSEGV", "process 7 left the process table, ended by SIGSEGV"),
        ("exit", {"code": 0}, "exit code 0", "process 7 left the process table, exit code 0"),
        ("exit", {"code": 3}, "exit code 3", "process 7 left the process table, exit code 3"),
        ("kill", {}, "", "process 7 left the process table"),
    ],
)
def test_an_exit_with_the_cause_that_the_fault_names_confirms_it(
    observe, fired, gone, told, fault, values, cause, evidence
) -> None:
    watch = observe(**{fault: values})
    watch(fired(fault))
    watch(gone(cause=cause))
    assert [event.data["evidence"] for event in told] == [evidence]


@pytest.mark.parametrize(
    ("fault", "values", "cause"),
    [
        ("kill", {}, "SIGTERM"),
        ("kill", {}, "exit code 9"),
        ("segfault", {}, "SIGKILL"),
        ("abort", {}, "exit code 134"),
        ("exit", {"code": 3}, "exit code 1"),
        ("exit", {"code": 9}, "SIGKILL"),
    ],
)
def test_an_exit_with_another_cause_confirms_nothing(observe, fired, gone, told, fault, values, cause) -> None:
    watch = observe(**{fault: values})
    watch(fired(fault))
    watch(gone(cause=cause))
    assert told == []


@pytest.mark.parametrize(
    ("after", "seen", "confirmed"),
    [(10.0, "at once", 1), (10.001, "at once", 0), (30.0, "late", 1)],
    ids=["at the bound", "beyond the bound", "found gone later"],
)
def test_a_process_that_outlives_its_fault_did_not_die_of_it(
    observe, fired, gone, told, after, seen, confirmed
) -> None:
    watch = observe(kill={})
    watch(fired("kill"))
    watch(gone(after=after, seen=seen))
    assert len(told) == confirmed


def test_a_fault_that_takes_its_time_has_more_of_it(observe, fired, gone, told) -> None:
    watch = observe(oom={})
    watch(fired("oom"))
    watch(gone(after=find_fault("oom").within_s, cause="SIGKILL"))
    assert len(told) == 1


def test_the_exit_of_another_process_confirms_nothing(observe, fired, gone, told) -> None:
    watch = observe(kill={})
    watch(fired("kill", pid=7))
    watch(gone(pid=8))
    assert told == []


def test_what_has_not_fired_is_not_confirmed(observe, gone, told) -> None:
    observe(kill={})(gone())
    assert told == []


def test_a_fault_that_is_not_of_the_plan_is_passed_over(observe, fired, gone, told) -> None:
    watch = observe(kill={})
    watch(fired("abort"))
    watch(gone())
    assert told == []


def test_one_exit_confirms_one_fault_once(observe, fired, gone, told) -> None:
    watch = observe(kill={}, abort={})
    watch(fired("kill", pid=7))
    watch(fired("abort", pid=8))
    for pid in (7, 7, 8):
        watch(gone(pid=pid))
    assert [event.data["injection"] for event in told] == ["kill-0", "abort-0"]


@pytest.mark.parametrize(("fault", "error"), [("exception", "InjectedError"), ("memory-limit", "MemoryError")])
def test_the_error_of_the_rank_that_was_hit_confirms_it(observe, fired, event, told, fault, error) -> None:
    watch = observe(**{fault: {}})
    watch(fired(fault))
    watch(event("worker.error", wall=START + SECOND, attempt=0, rank=1, data={"error": error}))
    (confirmed,) = told
    assert confirmed.data["evidence"] == f"the controller received {error} from rank 1"
    assert confirmed.data["after_ms"] == 1000.0


@pytest.mark.parametrize(
    ("attempt", "rank", "error"),
    [(0, 0, "InjectedError"), (1, 1, "InjectedError"), (0, 1, "ValueError"), (0, 1, "InjectedErrors")],
    ids=["another rank", "another attempt", "another type", "a longer name"],
)
def test_another_error_confirms_nothing(observe, fired, event, told, attempt, rank, error) -> None:
    watch = observe(exception={})
    watch(fired("exception"))
    watch(event("worker.error", wall=START + SECOND, attempt=attempt, rank=rank, data={"error": error}))
    assert told == []


@pytest.mark.parametrize(("seconds", "confirmed"), [(5.0, 1), (5.2, 1), (4.999, 0)])
@pytest.mark.parametrize("fault", ["delay", "gil-call"])
def test_a_disturbance_that_lasted_its_full_time_is_confirmed(
    observe, fired, event, told, fault, seconds, confirmed
) -> None:
    watch = observe(**{fault: {"seconds": 5.0}})
    watch(fired(fault))
    watch(event("fault.ended", attempt=0, rank=1, data={"injection": f"{fault}-0", "seconds": seconds}))
    assert [event.data["evidence"] for event in told] == [
        f"rank 1 stood there for {seconds:.2f} s, and went on"
    ] * confirmed


def test_the_end_of_another_disturbance_confirms_nothing(observe, fired, event, told) -> None:
    watch = observe(delay={"seconds": 5.0})
    watch(fired("delay"))
    watch(event("fault.ended", attempt=0, rank=1, data={"injection": "delay-1", "seconds": 9.0}))
    assert told == []


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
