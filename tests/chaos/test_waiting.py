"""How a job waits: what its controller burns meanwhile, by the kernel's count, and whether SIGINT ends it."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from pathlib import Path

import pytest

from chaos import waiting as waiting_module
from chaos.waiting import Waiting, interrupt
from chaos.watch import Watch

TICK_S = 1 / os.sysconf("SC_CLK_TCK")

BUSY = "while True: pass"
STUBBORN = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
SLOW = """
import time
try:
    print(1, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.3)
"""
AT_ONCE = "import time; print(1, flush=True); time.sleep(60)"


@pytest.fixture
def waiting(writer):
    """What looks on while the job waits; no controller yet."""
    made = Waiting(writer)
    writer.observe(made)
    return made


@pytest.fixture
def watch(tmp_path, writer, spawn):
    """Eyes on a run whose driver sleeps."""
    made = Watch(tmp_path, writer, spawn(), time.monotonic() + 20)
    yield made
    made.close()


@pytest.fixture
def begun(writer, event):
    """Announce the controller's process."""
    return lambda child: writer.append(event("controller.start", pid=child.pid))


def probe(told):
    (found,) = [event.data for event in told if event.kind == "probe.waiting"]
    return found


def spent_s(pid):
    """CPU seconds of a process, read from the kernel by ourselves."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


# The controller


def test_a_busy_controller_is_told_with_its_share_of_a_core(waiting, watch, begun, python, told) -> None:
    child = python(BUSY)
    begun(child)
    before, begin = spent_s(child.pid), time.monotonic()
    waiting.measure(watch, 0.6)
    after, end = spent_s(child.pid), time.monotonic()
    found = probe(told)
    assert 0.6 <= found["seconds"] <= end - begin
    assert 0.05 < found["cpu_share"] * found["seconds"] <= after - before + 2 * TICK_S


def test_an_idle_controller_takes_nothing(waiting, watch, begun, spawn, told) -> None:
    begun(spawn())
    waiting.measure(watch, 0.3)
    assert probe(told)["cpu_share"] * 0.3 <= 2 * TICK_S


def test_the_changes_of_state_are_those_of_the_time_of_the_look(
    waiting, watch, begun, spawn, writer, event, told
) -> None:
    begun(spawn())
    for _ in range(3):
        writer.append(event("controller.state", data={"to": "SCHEDULING"}))
    changes = iter(range(2))

    def tick():
        if next(changes, None) is not None:
            writer.append(event("controller.state", data={"to": "RESCHEDULING"}))
            writer.append(event("step.end"))

    watch.ticks = (tick,)
    waiting.measure(watch, 0.2)
    assert probe(told)["states"] == 2


def test_the_look_begins_when_the_controller_has_noticed(waiting, watch, begun, spawn, writer, event, told) -> None:
    begun(spawn())
    writer.append(event("controller.state", data={"from": "SCHEDULING", "to": "RUNNING"}))
    notice = event("controller.state", data={"from": "RUNNING", "to": "RESTARTING"})
    looks = itertools.count()
    watch.ticks = (lambda: writer.append(notice) if next(looks) == 5 else None,)
    waiting.measure(watch, 0.1)
    kinds = [one.data.get("to", one.kind) for one in told]
    assert kinds.index("RESTARTING") < kinds.index("probe.waiting")
    assert probe(told)["states"] == 0


def test_a_controller_that_never_notices_is_looked_at_all_the_same(
    waiting, watch, begun, spawn, writer, event, told, monkeypatch
) -> None:
    monkeypatch.setattr(waiting_module, "NOTICES_S", 0.1)
    begun(spawn())
    writer.append(event("controller.state", data={"from": "SCHEDULING", "to": "RUNNING"}))
    waiting.measure(watch, 0.1)
    assert probe(told)["states"] == 0


def test_a_controller_that_is_gone_has_no_share(waiting, watch, begun, spawn, told) -> None:
    child = spawn()
    begun(child)
    child.kill()
    child.wait()
    waiting.measure(watch, 0.05)
    assert probe(told)["cpu_share"] is None


def test_a_controller_that_goes_meanwhile_has_no_share(waiting, watch, begun, spawn, told) -> None:
    child = spawn()
    begun(child)

    def end():
        child.kill()
        child.wait()

    watch.ticks = (end,)
    waiting.measure(watch, 0.1)
    assert probe(told)["cpu_share"] is None


def test_a_controller_that_was_never_seen_has_no_share(waiting, watch, told) -> None:
    waiting.measure(watch, 0.05)
    assert probe(told)["cpu_share"] is None


@pytest.mark.parametrize("cut", ["the driver ended", "the deadline passed"])
def test_a_look_cut_short_tells_no_share(waiting, watch, begun, spawn, told, cut) -> None:
    begun(spawn())
    if cut == "the driver ended":
        watch.driver.kill()
    else:
        watch.deadline = time.monotonic()
    waiting.measure(watch, 30.0)
    found = probe(told)
    assert (found["cpu_share"], found["seconds"] < 10) == (None, True)


# Ctrl-C


@pytest.fixture
def interrupted(tmp_path, writer, python, told, monkeypatch):
    """Interrupt a training script that runs that code; the data of the event, and the script."""
    monkeypatch.setattr(waiting_module, "ENDS_S", 5.0)

    def run(code):
        driver = python(code, stderr=subprocess.DEVNULL)
        driver.stdout.readline()
        watch = Watch(tmp_path, writer, driver, time.monotonic() + 20)
        interrupt(driver, watch, writer)
        watch.close()
        (found,) = [event.data for event in told if event.kind == "workload.interrupted"]
        return found, driver

    return run


def test_a_script_that_heeds_the_signal_is_told_with_its_time(interrupted) -> None:
    found, driver = interrupted(AT_ONCE)
    assert found["signal"] == "SIGINT"
    assert 0 < found["seconds"] < 5
    assert driver.returncode not in (0, -9, None)


def test_a_script_that_takes_its_time_to_end_is_told_with_it(interrupted) -> None:
    found, driver = interrupted(SLOW)
    assert 0.3 <= found["seconds"] < 5
    assert driver.returncode == 0


def test_a_script_that_does_not_heed_the_signal_has_no_time_and_is_killed(interrupted, monkeypatch) -> None:
    monkeypatch.setattr(waiting_module, "ENDS_S", 0.2)
    found, driver = interrupted(STUBBORN)
    assert found == {"signal": "SIGINT", "seconds": None, "waited_s": 0.2}
    assert driver.wait(5) == -9


def test_a_script_that_is_over_already_was_not_interrupted(watch, writer, told) -> None:
    watch.driver.kill()
    watch.driver.wait()
    interrupt(watch.driver, watch, writer)
    assert [event for event in told if event.kind == "workload.interrupted"] == []
