"""The event file of one process, and the guard that keeps the agent's mistakes from the workload."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from chaos.agent.events import EventWriter, harmless
from chaos.faults.base import InjectedError
from chaos.history import Tail
from chaos.process import current


@pytest.fixture
def writer(plan):
    return EventWriter(plan.events, "127.0.0.9")


def lines(plan):
    (file,) = plan.events.iterdir()
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_file_is_named_after_one_life_of_one_process(plan, writer) -> None:
    me = current()
    assert [file.name for file in plan.events.iterdir()] == [f"127.0.0.9-{me.pid}-{me.start}.jsonl"]


def test_an_event_is_one_whole_line_at_once(plan, writer) -> None:
    writer.emit("a", step=3, data={"text": "two\nlines, ünïcode"})
    (line,) = lines(plan)
    assert (line["kind"], line["step"], line["data"]) == ("a", 3, {"text": "two\nlines, ünïcode"})
    assert (line["node"], line["pid"]) == ("127.0.0.9", current().pid)


def test_common_fields_are_added_and_given_ones_win(plan, writer) -> None:
    writer.common = {"attempt": 1, "rank": 2}
    writer.emit("a", rank=5)
    assert (lines(plan)[0]["attempt"], lines(plan)[0]["rank"]) == (1, 5)


def test_an_event_is_now_or_when_it_is_said_to_have_been(plan, writer) -> None:
    writer.emit("then", wall_ns=11, mono_ns=22)
    writer.emit("now")
    writer.emit("later")
    then, now, later = lines(plan)
    assert (then["wall_ns"], then["mono_ns"]) == (11, 22)
    assert 22 < now["mono_ns"] <= later["mono_ns"]
    assert 11 < now["wall_ns"] <= later["wall_ns"]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_the_step_of_a_diverged_loss_can_be_read(plan, writer, loss) -> None:
    writer.emit("step.end", step=1, data={"loss": loss})
    assert [event.step for event in Tail(Path(plan.directory)).new()] == [1]


@harmless
def careless(text):
    return int(text)


def test_a_mistake_of_the_agent_is_told_and_goes_no_further(plan, writer) -> None:
    assert careless("5") == 5
    assert careless("five") is None
    (line,) = lines(plan)
    assert line["kind"] == "agent.error"
    assert line["data"]["error"].startswith("careless: ValueError(")


def test_a_mistake_that_cannot_be_recorded_is_told_on_standard_error(writer, capsys) -> None:
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), writer._handle)
    assert careless("five") is None
    error = capsys.readouterr().err
    assert error.startswith("aftershock: careless: ValueError(")
    assert error.count("\n") == 1


@pytest.mark.parametrize("error", [InjectedError, MemoryError, KeyboardInterrupt, SystemExit])
def test_what_is_raised_on_purpose_and_an_interrupt_are_no_mistakes(plan, writer, error) -> None:
    @harmless
    def interrupted():
        raise error("on purpose")

    with pytest.raises(error, match="on purpose"):
        interrupted()
    assert lines(plan) == []


def test_a_guarded_method_keeps_its_name_and_its_answer() -> None:
    assert careless.__name__ == "careless"
    assert careless("5") == 5
