"""The flight recorder: when it is on, what a process answers, and how that is read."""

from __future__ import annotations

import json
import os

import pytest

from chaos import flight
from chaos.agent import flight as agent
from chaos.agent.plan import Injection, Plan
from chaos.process import Identity
from chaos.triggers import at_step

ASKED = """
import os, sys, time
from pathlib import Path
from unittest import mock
import types
fake = types.ModuleType("torch._C._distributed_c10d")
fake._dump_fr_trace_json = lambda: b'{"entries": []}'
for name in ("torch", "torch._C"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch._C._distributed_c10d"] = fake
from chaos.agent import flight
flight.record(Path(sys.argv[1]), 1)
print(os.environ["TORCH_FR_BUFFER_SIZE"], flush=True)
time.sleep(60)
"""


def plan_of(tmp_path, *faults):
    injections = tuple(Injection(id=name, fault=name, rank=0, trigger=at_step(3)) for name in faults)
    return Plan(run_id="r", directory=str(tmp_path), injections=injections)


@pytest.mark.parametrize(
    ("faults", "wanted"),
    [((), False), (("kill",), False), (("hang",), True), (("kill", "freeze"), True), (("skip-collective",), True)],
)
def test_it_records_only_where_a_fault_may_leave_ranks_waiting(tmp_path, faults, wanted):
    assert agent.is_wanted(plan_of(tmp_path, *faults)) is wanted


def test_a_process_answers_as_often_as_it_is_asked(tmp_path, python, eventually):
    child = python(ASKED, tmp_path)
    assert child.stdout.readline() == b"2000\n"
    who = {1: Identity.of(child.pid)}
    for _ in range(3):
        assert eventually(lambda: flight.ask(tmp_path, who) == {1})
        assert eventually(agent.answer(tmp_path, 1, child.pid).exists)
    assert flight.read(tmp_path, 1, child.pid, []) == {"now": [], "step before": []}


def test_who_does_not_record_or_is_gone_is_not_waited_for(tmp_path):
    me = Identity.of(os.getpid())
    assert flight.ask(tmp_path, {0: me}) == set()
    os.mkfifo(agent.question(tmp_path, 0, me.pid))
    assert flight.ask(tmp_path, {0: me}) == set(), "nobody reads the pipe"
    assert flight.read(tmp_path, 0, me.pid, [1, 2]) is None


def entry(ns, name, *sizes):
    return {
        "profiling_name": name,
        "time_created_ns": ns,
        "collective_seq_id": ns,
        "input_sizes": [list(s) for s in sizes],
    }


def test_collectives_are_told_by_the_steps_they_belong_to(tmp_path):
    entries = [
        entry(5, "gloo:broadcast", (9,)),
        entry(11, "gloo:all_gather", (24, 64)),
        entry(12, "gloo:all_reduce"),
        entry(21, "gloo:all_gather", (24, 64)),
    ]
    agent.answer(tmp_path, 0, 7).write_text(json.dumps({"entries": entries, "pg_config": {}}))
    found = flight.read(tmp_path, 0, 7, [10, 20])
    assert found == {"now": ["gloo:all_gather 24x64"], "step before": ["gloo:all_gather 24x64", "gloo:all_reduce"]}
    assert flight.read(tmp_path, 0, 7, [20])["step before"] == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"entries": [{"profiling_name": 3}]}'])
def test_an_answer_that_cannot_be_read_is_none(tmp_path, text):
    agent.answer(tmp_path, 0, 7).write_text(text)
    assert flight.read(tmp_path, 0, 7, [1, 2]) is None


def test_no_pipe_is_left(tmp_path):
    os.mkfifo(agent.question(tmp_path, 0, 7))
    agent.answer(tmp_path, 0, 7).write_text("{}")
    flight.close(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["rank0-7.collectives.json"]
