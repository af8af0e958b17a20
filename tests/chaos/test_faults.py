"""The register of faults, and what each of them really does to a process made for it."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chaos import INSTALLATION
from chaos.faults.async_exception import AsyncException
from chaos.faults.base import Attack, Fault, InjectedError, Proof, all_faults, find_fault, settings
from chaos.faults.delay import Delay
from chaos.faults.exception import Raise
from chaos.faults.freeze import Freeze
from chaos.faults.gil_call import GilCall
from chaos.faults.hang import Hang
from chaos.faults.hang_gil import HangGil, hold_lock
from chaos.faults.memory_limit import MemoryLimit
from chaos.faults.missing_report import MissingReport
from chaos.faults.straggler import Straggler
from chaos.process import Identity, exit_cause
from chaos.timeouts import TIMEOUTS, floor_s
from chaos.triggers import PHASES
from tests.chaos.machines import Stage

NAMES = list(all_faults())
ATTACKS = [name for name, fault in all_faults().items() if issubclass(fault, Attack) and not fault.on_node]
"""Attacks on single processes; those on nodes have tests of their own."""

ODD: dict[str, Any] = {"int": 7, "float": 0.25, "float | None": 0.25, "str": "odd"}
"""A value of each type of setting that is nobody's default."""


def odd(name: str) -> Fault:
    """A fault whose settings all differ from their defaults."""
    return find_fault(name, {f.name: ODD[f.type] for f in dataclasses.fields(all_faults()[name])})


# The register


def test_the_register_holds_every_fault_by_its_name() -> None:
    known = all_faults()
    files = [path for path in (INSTALLATION / "chaos" / "faults").glob("*.py") if path.stem not in ("__init__", "base")]
    assert list(known) == sorted(known)
    assert all(fault.name == name for name, fault in known.items())
    assert {Path(inspect.getfile(fault)) for fault in known.values()} == set(files)


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_says_what_it_does_and_what_it_proves(name: str) -> None:
    fault = all_faults()[name]
    for text in (fault.effect, fault.certifies, fault.not_certified, fault.__doc__ or ""):
        assert len(text.split()) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_a_faults_description_is_its_own(name: str) -> None:
    """A fault that is a variant of another one proves something else."""
    fault = all_faults()[name]
    for other in all_faults().values():
        if other is not fault:
            assert (fault.certifies, fault.not_certified) != (other.certifies, other.not_certified)


@pytest.mark.parametrize("name", NAMES)
def test_settings_survive_storage(name: str) -> None:
    for fault in (find_fault(name), odd(name)):
        values = json.loads(json.dumps(dataclasses.asdict(fault)))
        assert find_fault(name, values) == fault
        assert type(find_fault(name, values)) is all_faults()[name]


@pytest.mark.parametrize("name", [name for name in NAMES if settings(all_faults()[name])])
def test_settings_cannot_be_changed_later(name: str) -> None:
    fault = find_fault(name)
    for setting in settings(type(fault)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(fault, setting, 1)


def test_the_settings_of_a_fault_are_listed_with_their_defaults() -> None:
    assert settings(Straggler) == {"seconds": 8.0, "stopped_s": 0.2, "running_s": 0.2}
    assert settings(all_faults()["kill"]) == {}


@pytest.mark.parametrize("values", [{"code": 1, "speed": 2}, {"speed": 2}])
def test_an_unknown_setting_is_an_error(values: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="speed"):
        find_fault("exit", values)


def test_an_unknown_fault_is_an_error() -> None:
    with pytest.raises(KeyError):
        find_fault("nosuch")


# What the harness reads


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_names_points_and_time_outs_that_exist(name: str) -> None:
    fault = all_faults()[name]
    assert set(fault.points) <= set(PHASES)
    assert set(fault.noticed_by) <= set(TIMEOUTS)
    assert fault.within_s > 0


@pytest.mark.parametrize("name", NAMES)
def test_what_a_fault_tells_of_itself_fits_its_proof(name: str) -> None:
    fault = find_fault(name)
    assert (fault.proof is Proof.EXIT) is bool(fault.cause)
    assert (fault.proof is Proof.ERROR) is bool(fault.error)
    assert (fault.proof is Proof.TOLD) is isinstance(fault, Attack)
    assert fault.proof is not Proof.ENDED or "seconds" in settings(type(fault))


@pytest.mark.parametrize("name", NAMES)
def test_what_raises_or_blocks_does_so_where_training_runs(name: str) -> None:
    fault = all_faults()[name]
    assert fault.in_training_thread or fault.proof in (Proof.EXIT, Proof.TOLD)


@pytest.mark.parametrize("name", [name for name in NAMES if not all_faults()[name].breaks])
def test_what_does_not_break_the_job_is_noticed_by_nothing(name: str) -> None:
    assert all_faults()[name].noticed_by == ()


def test_the_defaults_leave_a_fault_unnoticed_for_their_shortest_time_out() -> None:
    assert floor_s(("process_group",)) == 1800
    assert floor_s(("process_group", "worker_health")) == 600
    assert floor_s(("report",)) is None
    assert floor_s(()) is None


# Faults that end their process


FIRE = """
import resource
from chaos.faults.base import find_fault
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
find_fault({name!r}, {values}).fire()
print("still here")
"""


def ends(name: str, **values: Any) -> tuple[int, str, bytes]:
    """Let a process fire a fault: how it ended for its parent and for the kernel, and what it printed."""
    code, environment = FIRE.format(name=name, values=values), {**os.environ, "PYTHONPATH": str(INSTALLATION)}
    child = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    handle = os.pidfd_open(child.pid)
    assert select.select([handle], [], [], 50)[0]
    cause = exit_cause(handle)
    os.close(handle)
    output, _ = child.communicate()
    return child.returncode, cause, output


ENDS = [
    ("kill", {}, -signal.SIGKILL),
    ("segfault", {}, -signal.SIGSEGV),
    ("abort", {}, -signal.SIGABRT),
    ("exit", {"code": 0}, 0),
    ("exit", {"code": 3}, 3),
]


@pytest.mark.parametrize(("name", "values", "code"), ENDS, ids=lambda value: str(value))
def test_a_process_ends_at_once_by_the_cause_that_its_fault_names(name: str, values: dict[str, int], code: int) -> None:
    returned, cause, output = ends(name, **values)
    assert (returned, output) == (code, b"")
    assert cause in ("", find_fault(name, values).cause), "the kernel tells it, or does not tell at all"


# Faults that raise


def test_the_exception_is_raised_out_of_the_call() -> None:
    with pytest.raises(InjectedError, match="on purpose by aftershock"):
        Raise().fire()


def test_the_asynchronous_exception_reaches_the_thread_that_fires_and_no_other() -> None:
    heard: list[BaseException] = []

    def train() -> None:
        try:
            AsyncException().fire()
            while True:
                pass
        except InjectedError as error:
            heard.append(error)

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    thread.join(10)
    assert [type(error) for error in heard] == [InjectedError]


MEMORY = """
import resource
from chaos.faults.memory_limit import MemoryLimit
before = resource.getrlimit(resource.RLIMIT_AS)
try:
    MemoryLimit(room_mib=32).fire()
except MemoryError:
    print(resource.getrlimit(resource.RLIMIT_AS) == before, len(bytearray(256 << 20)) >> 20)
"""


def python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(INSTALLATION)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_bound_refuses_an_allocation_and_is_lifted_again() -> None:
    assert python(MEMORY) == "True 256"


def test_the_bound_is_told_by_its_error() -> None:
    assert MemoryLimit.error == MemoryError.__name__
    assert Raise.error == AsyncException.error == InjectedError.__name__


EATEN = """
import os
from pathlib import Path
from chaos.faults import oom

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

def told(seconds):
    if seconds == oom.PATIENCE_S:
        print(resident() - before >= 120)

oom.time.sleep, before = told, resident()
oom.OutOfMemory(most_mib=128).fire()
print(resident() - before < 32)
"""


def test_memory_is_really_taken_and_let_go_when_nobody_ends_the_process() -> None:
    assert python(EATEN).split("\n") == ["True", "True"]


# Faults that take their time


@pytest.fixture
def ticks() -> Iterator[list[float]]:
    """When another thread of this process came to its turn, which it wants every millisecond."""
    times, stop = [time.monotonic()], threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            times.append(time.monotonic())

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    yield times
    stop.set()
    thread.join()


@pytest.mark.parametrize("fault", [Hang(0.3), Delay(0.3), MissingReport(0.3)], ids=lambda fault: fault.name)
def test_a_fault_blocks_for_its_time_and_leaves_the_lock_to_others(fault: Fault, ticks: list[float]) -> None:
    begin = time.monotonic()
    fault.fire()
    end = time.monotonic()
    assert end - begin >= 0.3
    assert any(begin + 0.05 < tick < end - 0.05 for tick in ticks)


@pytest.mark.parametrize("fault", [HangGil(0.3), GilCall(0.3)], ids=lambda fault: fault.name)
def test_a_fault_blocks_for_its_time_and_no_other_thread_runs(fault: Fault, ticks: list[float]) -> None:
    begin = time.monotonic()
    fault.fire()
    assert time.monotonic() - begin >= 0.3
    time.sleep(0.01)
    assert max(later - earlier for earlier, later in pairwise(ticks)) >= 0.25


def test_a_signal_does_not_cut_a_held_lock_short() -> None:
    """Stacks are asked for by a signal while the lock is held."""
    heard: list[float] = []
    previous = signal.signal(signal.SIGALRM, lambda *_: heard.append(time.monotonic()))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    begin = time.monotonic()
    hold_lock(0.25)
    end = time.monotonic()
    signal.signal(signal.SIGALRM, previous)
    assert len(heard) == 1
    assert end - begin >= 0.25


# Attacks


@pytest.fixture
def victim(spawn: Callable[..., subprocess.Popen[bytes]]) -> Identity:
    found = Identity.of(spawn().pid)
    assert found is not None
    return found


def carried_out(steps: Iterator[float], until_s: float = 60.0) -> float:
    """Take the steps of an attack up to a pause that long; returns it, or 0 when the attack has come to its end."""
    for pause in steps:
        if pause >= until_s:
            return pause
        time.sleep(pause)
    return 0.0


def test_freeze_stops_confirms_and_lets_the_victim_go_on_at_the_end(victim: Identity) -> None:
    stage = Stage()
    steps = Freeze(seconds=0.1).attack(victim, stage)
    assert carried_out(steps, until_s=0.1) == 0.1
    assert victim.stopped()
    assert stage.done == ["released", f"process {victim.pid} is stopped (state T)"]
    assert next(steps, None) is None
    assert victim.alive()
    assert not victim.stopped()


@pytest.mark.parametrize("name", ATTACKS)
def test_closing_an_attack_at_any_time_lets_the_victim_go_on(name: str, victim: Identity, tmp_path: Path) -> None:
    fault = find_fault(name)
    assert isinstance(fault, Attack)
    for taken in range(4):
        steps = fault.attack(victim, Stage(folder=tmp_path, controller=victim))
        for _ in range(taken):
            next(steps, None)
        steps.close()
        assert not victim.stopped()
    assert victim.alive()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_on_a_process_that_is_gone_confirms_nothing(
    name: str, spawn: Callable[..., subprocess.Popen[bytes]]
) -> None:
    child, stage = spawn(), Stage()
    gone = Identity.of(child.pid)
    assert gone is not None
    child.kill()
    child.wait()
    fault = find_fault(name)
    assert isinstance(fault, Attack)
    stage.controller = gone
    with contextlib.suppress(TimeoutError):
        carried_out(fault.attack(gone, stage))
    assert [line for line in stage.done if line != "released"] == []


def test_a_straggler_is_stopped_cycle_after_cycle_and_goes_on_at_the_end(victim: Identity) -> None:
    stage, fault = Stage(), Straggler(seconds=0.3, stopped_s=0.04, running_s=0.04)
    seen = []
    for pause in fault.attack(victim, stage):
        seen.append(victim.stopped())
        time.sleep(pause)
    assert victim.alive()
    assert not victim.stopped()
    *released, evidence = stage.done
    cycles = len(released)
    assert 1 <= cycles <= 4
    assert seen.count(True) >= cycles
    assert re.fullmatch(rf"process {victim.pid} was stopped {cycles} times, \d+\.\d of 0\.3 s in all", evidence)


def test_a_straggler_that_is_cut_short_is_not_confirmed(victim: Identity) -> None:
    stage = Stage()
    steps = Straggler(seconds=60).attack(victim, stage)
    for _ in range(3):
        next(steps)
    steps.close()
    assert set(stage.done) <= {"released"}
