"""What a run takes of the machine: measured on its own processes, once for each attempt."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from chaos.resources import Resources


@pytest.fixture
def observe(writer, ledger, event):
    """Tell the observer of an event."""
    resources = Resources(writer, ledger)
    writer.observe(resources)
    return lambda kind, **fields: resources(event(kind, **fields))


@pytest.fixture
def samples(told):
    return lambda: [(e.attempt, e.data) for e in told if e.kind == "probe.resources"]


RESTS = "import time; print(flush=True); time.sleep(60)"


def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_processes_of_the_run_are_measured_and_no_others(observe, samples, python, marked) -> None:
    one, two, foreign = python(RESTS, env=marked), python(RESTS, env=marked, stdin=subprocess.PIPE), python(RESTS)
    for child in (one, two, foreign):
        child.stdout.readline()
    observe("attempt.start", attempt=0, world_size=1)
    observe("step.end", attempt=0, rank=0, step=1)
    ((attempt, measured),) = samples()
    assert attempt == 0
    assert measured == {
        "processes": 2,
        "files": sum(len(os.listdir(f"/proc/{child.pid}/fd")) for child in (one, two)),
        "rss_mib": sum(resident(child.pid) for child in (one, two)) >> 20,
    }


def test_a_sample_waits_until_every_rank_has_completed_a_step(observe, samples) -> None:
    observe("attempt.start", attempt=0, world_size=2)
    observe("step.end", attempt=0, rank=0, step=1)
    observe("step.end", attempt=0, rank=0, step=2)
    assert samples() == []
    observe("step.end", attempt=0, rank=1, step=1)
    assert len(samples()) == 1


def test_one_attempt_is_sampled_once(observe, samples) -> None:
    for attempt in (0, 1):
        observe("attempt.start", attempt=attempt, world_size=1)
        for step in range(1, 6):
            observe("step.end", attempt=attempt, rank=0, step=step)
    assert [attempt for attempt, _ in samples()] == [0, 1]


def test_an_attempt_of_unknown_size_is_not_sampled(observe, samples) -> None:
    observe("step.end", attempt=0, rank=0, step=1)
    assert samples() == []
    observe("attempt.start", attempt=0, world_size=1)
    observe("step.end", attempt=0, rank=0, step=2)
    assert [attempt for attempt, _ in samples()] == [0]


def test_a_failed_attempt_lends_no_ranks_to_the_next(observe, samples) -> None:
    observe("attempt.start", attempt=0, world_size=2)
    observe("step.end", attempt=0, rank=0, step=1)
    observe("attempt.start", attempt=1, world_size=2)
    observe("step.end", attempt=1, rank=1, step=1)
    assert samples() == []


def test_events_without_an_attempt_or_a_rank_are_passed_over(observe, samples) -> None:
    observe("attempt.start", attempt=0, world_size=1)
    observe("step.end", rank=0, step=1)
    observe("step.end", attempt=0, step=1)
    observe("run.phase")
    assert samples() == []


def test_a_run_whose_processes_are_all_gone_takes_nothing(observe, samples, spawn, marked) -> None:
    child = spawn(env=marked)
    child.kill()
    child.wait()
    observe("attempt.start", attempt=0, world_size=1)
    observe("step.end", attempt=0, rank=0, step=1)
    assert samples() == [(0, {"processes": 0, "files": 0, "rss_mib": 0})]
