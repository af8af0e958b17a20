"""Firing: at the point and at most once per run, however often a rank comes back."""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.agent import firing
from chaos.agent.events import EventWriter
from chaos.agent.firing import Firing
from chaos.agent.plan import NODE, Board, Injection, Plan
from chaos.faults import base
from chaos.faults.base import Fault, InjectedError, Proof, register
from chaos.history import Event, Tail
from chaos.schedule import Arming
from chaos.schedule import plan as scheduled
from chaos.targets import Inventory, Node, Rank
from chaos.triggers import PHASES, Trigger, after_seconds, at_step, in_phase, on_attempt

few = settings(max_examples=10, deadline=None)


@dataclasses.dataclass(frozen=True)
class Note(Fault):
    """Only notes that it fired, and in which thread. ``raises``: what it raises then, empty for nothing."""

    name = "note"
    effect, certifies, not_certified = "a note", "nothing at all", "anything else"
    proof = Proof.TOLD

    raises: str = ""

    def fire(self) -> None:
        NOTED.append(threading.current_thread().name)
        if self.raises:
            raise {"injected": InjectedError, "memory": MemoryError, "value": ValueError}[self.raises]("told")


class NoteHere(Note):
    """Fires in the training thread only."""

    name = "note-here"
    in_training_thread = True


class NoteTogether(Note):
    """Its peers note that they took part."""

    name = "note-together"
    with_peers = True

    def accompany(self) -> None:
        NOTED.append("peer")


NOTED: list[str] = []


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The faults above are known in this module only; what they have noted in one test."""
    monkeypatch.setattr(base, "_REGISTER", base.all_faults())
    for fault in (Note, NoteHere, NoteTogether):
        register(fault)
    monkeypatch.delenv(NODE, raising=False)
    NOTED.clear()
    yield NOTED


class World:
    """A run whose ranks are brought to points one by one; restarted as often as wanted."""

    def __init__(self, directory: Path, *injections: Injection) -> None:
        directory.mkdir(exist_ok=True)
        self.plan = Plan(run_id="r", directory=str(directory), injections=injections)
        self.plan.write()
        self.writer = EventWriter(self.plan.events, "n")
        self.step = 0
        self.lives: dict[int, Firing] = {}
        self.attempt = 0

    def restart(self) -> None:
        """Every process is gone; the next one that is asked for is a new one."""
        self.lives, self.attempt = {}, self.attempt + 1

    def rank(self, rank: int) -> Firing:
        """The process of a rank."""
        if rank not in self.lives:
            self.lives[rank] = Firing(self.plan, self.writer, rank, self.attempt, lambda: self.step)
        return self.lives[rank]

    def reach(self, phase: str, step: int = 0, rank: int = 0) -> int:
        """Bring a rank to a point; how often something has been noted so far."""
        self.step = step
        self.rank(rank).reach(phase)
        return len(NOTED)

    def seen(self, *kinds: str) -> list[Event]:
        """The events so far, those of some kinds if they are given."""
        return [e for e in Tail(Path(self.plan.directory)).new() if not kinds or e.kind in kinds]

    def told(self, *kinds: str) -> list[tuple[str, str]]:
        """Kind and injection of the events so far."""
        return [(e.kind, e.data["injection"]) for e in self.seen(*kinds)]


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    """Make a run of some injections, or of armings."""
    return functools.partial(World, tmp_path / "run")


def note(trigger: Trigger, rank: int | None = 0, fault: str = "note", **fields: Any) -> Injection:
    return Injection(id=fields.pop("id", "note-0"), fault=fault, rank=rank, trigger=trigger, **fields)


def repeated(trigger: Trigger, times: int, victim: Rank | Node | None = None) -> tuple[Injection, ...]:
    return scheduled([Arming(Note(), trigger.repeat(times), victim or Rank(0))], Inventory(2), 0)


# At the point


def test_a_fault_fires_when_its_moment_comes(world: Callable[..., World]) -> None:
    run = world(note(at_step(3)))
    assert [run.reach("step", step) for step in (1, 2, 3, 4)] == [0, 0, 1, 1]
    (event,) = run.seen()
    assert (event.kind, event.step) == ("fault.fired", 3)
    assert event.data == {"injection": "note-0", "fault": "note", "phase": "step", "node": ""}


def test_the_event_is_written_before_the_fault_is_done(world: Callable[..., World]) -> None:
    run = world(note(at_step(1), values={"raises": "injected"}))
    with pytest.raises(InjectedError):
        run.reach("step", 1)
    assert run.told() == [("fault.fired", "note-0")]


def test_other_ranks_are_spared(world: Callable[..., World]) -> None:
    run = world(note(at_step(1), rank=1))
    assert run.reach("step", 1, rank=0) == 0
    assert run.reach("step", 1, rank=1) == 1


def test_all_that_is_due_at_once_fires_in_the_order_armed(world: Callable[..., World]) -> None:
    run = world(note(at_step(1), id="b"), note(at_step(2), id="c"), note(at_step(1), id="a"))
    run.reach("step", 1)
    assert run.told() == [("fault.fired", "b"), ("fault.fired", "a")]


@pytest.mark.parametrize("phase", PHASES)
def test_a_fault_fires_in_its_phase_only(world: Callable[..., World], phase: str) -> None:
    run = world(note(in_phase(phase)))
    for other in PHASES:
        assert run.reach(other) == int(list(PHASES).index(other) >= list(PHASES).index(phase))
    assert run.seen()[0].data["phase"] == phase


def test_a_rank_listens_to_what_it_or_its_peers_need(world: Callable[..., World]) -> None:
    run = world(
        note(at_step(3) >> in_phase("save")),
        note(after_seconds(1), id="later"),
        note(in_phase("forward"), rank=1, id="other"),
        note(in_phase("report"), rank=1, id="together", fault="note-together"),
    )
    assert run.rank(0).phases == {"step", "save", "time", "report"}
    assert run.rank(1).phases == {"forward", "report"}
    assert run.rank(2).phases == {"report"}


# At most once


def test_a_restarted_rank_does_not_fire_again(world: Callable[..., World]) -> None:
    run = world(note(at_step(3)))
    for _ in range(3):
        run.reach("step", 3)
        run.restart()
    assert len(NOTED) == 1
    assert [event.kind for event in run.seen()] == ["fault.fired"]


def test_of_many_threads_at_the_point_one_fires(world: Callable[..., World]) -> None:
    run = world(note(at_step(1)))
    run.step = 1
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: run.rank(0).reach("step"), range(32)))
    assert len(NOTED) == len(run.seen("fault.fired")) == 1


@few
@given(st.integers(1, 4), st.lists(st.booleans(), min_size=10, max_size=10))
def test_a_repetition_fires_exactly_so_often(times: int, restarts: list[bool]) -> None:
    NOTED.clear()
    with tempfile.TemporaryDirectory() as folder:
        run = World(Path(folder), *repeated(at_step(5), times))
        counts = []
        for restart in restarts:
            counts.append(run.reach("step", 5))
            if restart:
                run.restart()
        assert counts == [min(i, times) for i in range(1, 11)]
        assert run.told() == [("fault.fired", f"note-{i}") for i in range(times)]


def test_what_follows_waits_for_what_comes_before(world: Callable[..., World]) -> None:
    run = world(note(at_step(5), id="first"), note(at_step(2), id="second", follows="first"))
    assert [run.reach("step", step) for step in (2, 5, 2, 2)] == [0, 1, 2, 2]
    assert run.told() == [("fault.fired", "first"), ("fault.fired", "second")]


# One after the other


@few
@given(st.lists(st.tuples(st.sampled_from(["step", "save"]), st.integers(1, 3), st.booleans()), max_size=12))
def test_a_chain_fires_after_all_its_parts_have_passed_in_order(moments: list[tuple[str, int, bool]]) -> None:
    NOTED.clear()
    parts = [("step", 1), ("save", 2), ("step", 3)]
    trigger = at_step(1) >> (in_phase("save") & at_step(2)) >> at_step(3)
    with tempfile.TemporaryDirectory() as folder:
        run, passed = World(Path(folder), note(trigger)), 0
        for phase, step, restart in moments:
            passed += passed < 3 and parts[passed] == (phase, step)
            assert run.reach(phase, step) == int(passed == 3)
            if restart:
                run.restart()


def test_one_moment_does_not_pass_two_parts(world: Callable[..., World]) -> None:
    run = world(note(at_step(1) >> at_step(1)))
    assert [run.reach("step", 1) for _ in range(3)] == [0, 1, 1]


def test_each_rank_passes_for_itself(world: Callable[..., World]) -> None:
    run = world(
        *(note(at_step(1) >> in_phase("save"), rank=rank, id=f"note-{rank}") for rank in range(2)),
    )
    run.reach("step", 1, rank=0)
    assert run.reach("save", 1, rank=1) == 0
    assert run.reach("save", 1, rank=0) == 1


def test_a_repeated_chain_fires_at_each_of_the_first_moments_after_its_beginning(world: Callable[..., World]) -> None:
    """As ten slow steps in a row from a step on."""
    run = world(*repeated(at_step(3) >> in_phase("step"), 3))
    assert [run.reach("step", step) for step in range(1, 9)] == [0, 0, 0, 1, 2, 3, 3, 3]


def test_a_repeated_chain_fires_once_in_each_attempt_where_its_end_comes_once(world: Callable[..., World]) -> None:
    """As a crash loop: in the first forward pass of every attempt after the first."""
    run, counts = world(*repeated(at_step(5) >> in_phase("first-step"), 2)), []
    for _ in range(4):
        run.reach("first-step")
        counts.append(run.reach("step", 5))
        run.restart()
    assert counts == [0, 1, 2, 2]


# Nodes


def test_whichever_worker_of_a_node_comes_first_is_hit(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world(note(at_step(1), rank=None, node="w1"))
    for node, rank, expected in (("w0", 0, 0), ("w1", 3, 1), ("w1", 2, 1), ("", 1, 1)):
        monkeypatch.setenv(NODE, node)
        assert run.reach("step", 1, rank=rank) == expected
    assert run.seen("fault.fired")[0].data["node"] == "w1"


def test_a_node_is_hit_again_by_a_repetition_whatever_rank_it_has_then(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NODE, "w1")
    run = world(*repeated(at_step(1), 2, Node("w1")))
    assert [run.reach("step", 1, rank=rank) for rank in (1, 0, 1)] == [1, 2, 2]


def test_a_chain_on_a_node_goes_on_whatever_rank_it_has_then(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which node holds which rank differs from attempt to attempt."""
    monkeypatch.setenv(NODE, "w1")
    run = world(note(at_step(1) >> in_phase("first-step"), rank=None, node="w1"))
    run.reach("step", 1, rank=1)
    run.restart()
    assert run.reach("first-step", rank=0) == 1


# What a fault raises


@pytest.mark.parametrize(("raises", "error"), [("injected", InjectedError), ("memory", MemoryError)])
def test_what_is_raised_on_purpose_goes_through(
    world: Callable[..., World], raises: str, error: type[Exception]
) -> None:
    run = world(note(at_step(1), values={"raises": raises}))
    with pytest.raises(error, match="told"):
        run.reach("step", 1)
    assert run.told() == [("fault.fired", "note-0")]


def test_a_fault_that_fails_is_told_and_the_program_goes_on(world: Callable[..., World]) -> None:
    run = world(note(at_step(1), values={"raises": "value"}))
    run.reach("step", 1)
    (event,) = run.seen("fault.failed")
    assert (event.step, event.data["injection"], event.data["error"]) == (1, "note-0", "ValueError('told')")


# What a fault that comes back tells


def test_a_disturbance_tells_how_long_it_took(world: Callable[..., World]) -> None:
    run = world(note(at_step(1), fault="delay", id="delay-0", values={"seconds": 0.05}))
    begin = time.monotonic()
    run.reach("step", 1)
    taken = time.monotonic() - begin
    (event,) = run.seen("fault.ended")
    assert event.data["injection"] == "delay-0"
    assert 0.05 <= event.data["seconds"] <= taken


@pytest.mark.parametrize(
    ("proof", "told"),
    [(Proof.ENDED, 1), (Proof.BLOCKED, 1), (Proof.EXIT, 1), (Proof.ERROR, 0), (Proof.TOLD, 0)],
)
def test_the_end_of_what_stands_at_a_point_is_told(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, proof: Proof, told: int
) -> None:
    monkeypatch.setattr(Note, "proof", proof)
    run = world(note(at_step(1)))
    run.reach("step", 1)
    assert len(run.seen("fault.ended")) == told


# Attacks


def frozen(trigger: Trigger) -> Injection:
    return note(trigger, fault="freeze", id="freeze-0")


def test_an_attack_is_due_and_the_process_stands_still_until_it_may_go(
    world: Callable[..., World], eventually: Callable[..., Any]
) -> None:
    run = world(frozen(at_step(2)))
    run.step = 2
    thread = threading.Thread(target=run.rank(0).reach, args=("step",))
    thread.start()
    assert eventually(lambda: run.seen("fault.due"))
    thread.join(0.05)
    assert thread.is_alive()
    Board(run.plan.board).claim("go-freeze-0")
    thread.join(10)
    assert not thread.is_alive()
    (event,) = run.seen()
    assert (event.kind, event.step, event.data["injection"]) == ("fault.due", 2, "freeze-0")


def test_a_process_waits_for_an_attacker_so_long_and_no_longer(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "HOLD_S", 0.1)
    run = world(frozen(at_step(1)))
    begin = time.monotonic()
    run.reach("step", 1)
    assert 0.1 <= time.monotonic() - begin < 10


def test_an_attack_is_due_once_across_restarts(world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "HOLD_S", 0.0)
    run = world(frozen(at_step(1)))
    for _ in range(3):
        run.reach("step", 1)
        run.restart()
    assert run.told() == [("fault.due", "freeze-0")]


# Faults with peers


def together(trigger: Trigger, rank: int = 1, **fields: Any) -> Injection:
    return note(trigger, rank=rank, fault="note-together", **fields)


def test_the_peers_take_part_where_the_target_fires(world: Callable[..., World]) -> None:
    run = world(together(at_step(2)))
    for step in (1, 2, 3):
        for rank in range(3):
            run.reach("step", step, rank=rank)
    assert NOTED == ["peer", "MainThread", "peer"]
    assert run.told() == [("fault.fired", "note-0")]


def test_a_peer_takes_part_once_across_restarts(world: Callable[..., World]) -> None:
    run = world(together(at_step(2)))
    for _ in range(3):
        for rank in range(2):
            run.reach("step", 2, rank=rank)
        run.restart()
    assert NOTED == ["peer", "MainThread"]


def test_a_peer_takes_part_after_the_same_chain(world: Callable[..., World]) -> None:
    run = world(together(at_step(1) >> in_phase("save")))
    assert run.reach("save", 1, rank=0) == 0
    run.reach("step", 1, rank=0)
    assert run.reach("save", 1, rank=0) == 1


def test_the_peers_of_a_fault_without_peers_do_nothing(world: Callable[..., World]) -> None:
    run = world(note(at_step(1), rank=1))
    assert run.rank(0).phases == set()
    assert run.reach("step", 1, rank=0) == 0


def take_part(directory: str, rank: int, results: Any) -> None:
    """One rank of two: stand at the point, then add its number to the sum of the other's next collective."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    plan = Plan.read(f"{directory}/plan.json")
    Firing(plan, EventWriter(plan.events, f"n{rank}"), rank, 0, lambda: 1).reach("step")
    mine = torch.ones(1)
    if rank == 1:
        dist.all_reduce(mine)
    results.put((rank, mine.item()))


def test_every_rank_but_the_target_takes_part_in_one_collective(world: Callable[..., World]) -> None:
    """The next collective of the target meets the one of its peer, which adds zero."""
    run = world(together(at_step(1), id="skip-collective-0"))
    skipped = note(at_step(1), rank=1, fault="skip-collective", id="skip-collective-0")
    dataclasses.replace(run.plan, injections=(skipped,)).write()
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    ranks = [context.Process(target=take_part, args=(run.plan.directory, rank, results)) for rank in range(2)]
    for process in ranks:
        process.start()
    assert sorted(results.get(timeout=30) for _ in ranks) == [(0, 1.0), (1, 1.0)]
    for process in ranks:
        process.join(10)
        process.kill()
    assert run.told("fault.fired") == [("fault.fired", "skip-collective-0")]


def test_without_a_process_group_there_is_no_collective_to_take_part_in() -> None:
    base.find_fault("skip-collective").accompany()


# Times


def test_a_time_comes_without_a_point(world: Callable[..., World], eventually: Callable[..., Any]) -> None:
    run = world(note(after_seconds(0.1)))
    begin = time.time()
    run.rank(0).begin_clock()
    assert NOTED == []
    assert eventually(lambda: NOTED)
    assert run.seen("fault.fired")[0].wall - begin >= 0.1
    assert run.seen("fault.fired")[0].data["phase"] == "time"


def test_before_its_time_nothing_fires_at_any_point(world: Callable[..., World]) -> None:
    run = world(note(after_seconds(3600)), note(after_seconds(3600) & in_phase("save"), id="note-1"))
    run.rank(0).begin_clock()
    assert [run.reach(phase) for phase in PHASES] == [0] * len(PHASES)


def test_a_fault_of_the_training_thread_waits_for_the_next_point_after_its_time(world: Callable[..., World]) -> None:
    run = world(note(after_seconds(0.1), fault="note-here"))
    run.rank(0).begin_clock()
    time.sleep(0.15)
    assert NOTED == []
    run.reach("forward")
    assert [threading.current_thread().name] == NOTED
    assert run.seen("fault.fired")[0].data["phase"] == "forward"


@pytest.mark.parametrize(
    "seconds",
    [
        0.0,
        0.01,
    ],
)
def test_no_time_runs_before_the_first_step_of_the_run(
    world: Callable[..., World], eventually: Callable[..., Any], seconds: float
) -> None:
    run = world(note(after_seconds(seconds)))
    run.rank(0).resume_clock()
    time.sleep(0.02)
    assert run.reach("rendezvous") == 0
    run.rank(0).begin_clock()
    assert eventually(lambda: NOTED)


def begin_and_end(directory: str) -> None:
    """A process whose first step has ended, and which is gone then."""
    plan = Plan.read(f"{directory}/plan.json")
    Firing(plan, EventWriter(plan.events, "n"), 0, 0, lambda: 1).begin_clock()
    os._exit(0)


def test_time_goes_on_while_a_rank_is_down(world: Callable[..., World], eventually: Callable[..., Any]) -> None:
    run = world(note(after_seconds(0.5)))
    begin = time.time()
    process = multiprocessing.get_context("fork").Process(target=begin_and_end, args=(run.plan.directory,))
    process.start()
    process.join(10)
    time.sleep(max(0.0, begin + 0.55 - time.time()))
    assert run.seen() == []
    run.restart()
    resumed = time.time()
    run.rank(0).resume_clock()
    assert eventually(lambda: NOTED)
    fired = run.seen("fault.fired")[0].wall
    assert fired - begin >= 0.5
    assert fired - resumed < 0.5


def test_a_time_in_a_phase_is_the_first_such_phase_after_it(world: Callable[..., World]) -> None:
    run = world(note(after_seconds(0.1) & in_phase("save") & on_attempt(0)))
    run.rank(0).begin_clock()
    time.sleep(0.15)
    assert run.reach("step") == 0
    assert run.reach("save") == 1
