"""The history: what is written is read, in order, once, and what cannot be read is counted."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.agent.events import EventWriter
from chaos.history import EVENTS, NAME, Event, History, HistoryWriter, Tail


def encoded(*events):
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)


@pytest.fixture
def directory(tmp_path):
    HistoryWriter(tmp_path).close()
    return tmp_path


def fields(event):
    return [getattr(event, name) for name in Event.__struct_fields__]


def test_what_is_written_is_read(tmp_path, event):
    told = []
    writer = HistoryWriter(tmp_path, [told.append])
    first = writer.emit("run.start", data={"schema": 1})
    second = writer.emit(
        "step.end", attempt=0, rank=1, world_size=2, step=3, data={"loss": 0.1, "lr": 1e-3, "samples": [[0, 7]]}
    )
    writer.close()
    assert [fields(e) for e in History.load(tmp_path)] == [fields(first), fields(second)]
    assert told == [first, second]
    assert first.wall == first.wall_ns / 1e9


def test_a_later_observer_is_told_of_later_events(tmp_path):
    told = []
    writer = HistoryWriter(tmp_path)
    writer.emit("a")
    writer.observe(lambda event: told.append(event.kind))
    writer.emit("b")
    writer.close()
    assert told == ["b"]


def test_a_second_writer_goes_on_where_the_first_stopped(tmp_path):
    for kind in "ab":
        writer = HistoryWriter(tmp_path)
        writer.emit(kind)
        writer.close()
    assert [event.kind for event in History.load(tmp_path)] == ["a", "b"]


def test_events_are_in_the_order_of_time(event):
    history = History.of([event("c", wall=3), event("a", wall=1), event("b", wall=2), event("b2", wall=2)])
    assert [e.kind for e in history] == ["a", "b", "b2", "c"]


def test_an_exact_repetition_is_dropped_and_a_similar_event_is_not(event):
    one, other = event("a", data={"x": 1}), event("a", data={"x": 2})
    assert History.of([one, other, event("a", data={"x": 1})]).events == (one, other)


def test_the_stored_history_and_the_event_files_are_united(directory, event):
    early, late, both = event("early", wall=1), event("late", wall=9), event("both", wall=5)
    (directory / NAME).write_bytes(encoded(late, both))
    (directory / EVENTS / "a.jsonl").write_bytes(encoded(early))
    (directory / EVENTS / "b.jsonl").write_bytes(encoded(both))
    assert History.load(directory).events == (early, both, late)


def test_an_event_gathered_from_its_process_is_there_once(directory):
    process = EventWriter(directory / EVENTS, "127.0.0.1")
    process.common = {"attempt": 0, "rank": 1, "world_size": 2}
    process.emit("step.end", step=1, data={"loss": 0.1 + 0.2, "lr": 3e-3, "samples": [[0, 7]]})
    process.emit("report.end", step=1)
    harness = HistoryWriter(directory)
    for gathered in Tail(directory).new():
        harness.append(gathered)
    harness.close()
    whole = History.load(directory)
    assert [(e.kind, e.rank, e.step) for e in whole] == [("step.end", 1, 1), ("report.end", 1, 1)]
    shutil.rmtree(directory / EVENTS)
    assert History.load(directory) == whole


def test_a_step_is_one_event_however_its_process_and_the_harness_spell_its_numbers(directory, event):
    step = event("step.end", rank=0, step=1, data={"loss": None, "lr": 1e-05, "samples": [[0, 7]]})
    (directory / NAME).write_bytes(encoded(step))
    (directory / EVENTS / "1.jsonl").write_bytes(encoded(step).replace(b":1e-5", b": 0.00001"))
    (read,) = History.load(directory)
    assert read.data == step.data
    assert msgspec.structs.replace(read, step=2).data == step.data


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"{}",
        b'{"kind": "cut',
        b'{"kind": "\xff"}',
        b"\x00",
        b'["a list"]',
        b'{"kind":"step.end","wall_ns":1,"mono_ns":1,"node":"n","pid":1,"data":[]}',
        b'{"kind": 5, "wall_ns": 1}',
    ],
)
def test_a_line_that_cannot_be_read_is_counted(directory, event, line):
    (directory / NAME).write_bytes(encoded(event("a")) + line + b"\n" + encoded(event("b")))
    history = History.load(directory)
    assert ([e.kind for e in history], history.unreadable) == (["a", "b"], 1)


def test_a_last_line_without_its_end_is_read_when_it_is_whole_and_counted_when_it_is_cut(directory, event):
    text = encoded(event("a"))[:-1]
    (directory / EVENTS / "whole.jsonl").write_bytes(text)
    (directory / EVENTS / "cut.jsonl").write_bytes(text[:-1])
    history = History.load(directory)
    assert ([e.kind for e in history], history.unreadable) == (["a"], 1)


def test_fields_of_a_later_version_are_passed_over(directory, event):
    line = {**json.loads(encoded(event("a"))), "novelty": 1}
    (directory / NAME).write_text(json.dumps(line) + "\n")
    assert [e.kind for e in History.load(directory)] == ["a"]


def test_a_directory_without_history_is_no_run_directory(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no history\.jsonl"):
        History.load(tmp_path)


def test_select_and_first(event):
    one, two = event("step.end", rank=0, step=1), event("step.end", rank=1, step=1, wall=2)
    history = History.of([one, two, event("other", rank=1, wall=3)])
    assert history.select("step.end") == [one, two]
    assert history.select("step.end", rank=1, step=1) == [two]
    assert history.first("step.end") == one
    assert history.first("step.end", rank=7) is None


def test_a_full_disk_is_an_error(tmp_path, largest_file):
    writer = HistoryWriter(tmp_path)
    with largest_file(10), pytest.raises(OSError):
        writer.emit("run.start")
    writer.close()


def test_the_tail_gives_whole_lines_once(directory, event):
    tail, file = Tail(directory), directory / EVENTS / "a.jsonl"
    assert tail.new() == []
    first, second = event("first"), event("second")
    text = encoded(first, second)
    file.write_bytes(text[:-5])
    assert tail.new() == [first]
    assert tail.new() == []
    file.write_bytes(text)
    assert tail.new() == [second]
    assert tail.new() == []


def test_the_tail_finds_files_that_come_later(directory, event):
    tail = Tail(directory)
    for name in "ab":
        (directory / EVENTS / f"{name}.jsonl").write_bytes(encoded(event(name)))
        assert [e.kind for e in tail.new()] == [name]


def test_the_tail_passes_over_what_it_cannot_read(directory, event):
    (directory / EVENTS / "a.jsonl").write_bytes(b"nonsense\n\n" + encoded(event("a")))
    assert [e.kind for e in Tail(directory).new()] == ["a"]


@settings(max_examples=30, deadline=None)
@given(
    names=st.lists(st.text(max_size=8), max_size=6),
    cuts=st.lists(st.integers(min_value=0, max_value=2000), max_size=6),
)
def test_however_the_bytes_arrive_each_event_is_told_once_in_order(names, cuts):
    with tempfile.TemporaryDirectory() as folder:
        _arrive(Path(folder), names, cuts)


def _arrive(directory, names, cuts):
    (directory / EVENTS).mkdir()
    events = [
        Event(kind=name, wall_ns=i, mono_ns=i, node="n", pid=1, data={"text": name}) for i, name in enumerate(names)
    ]
    text, tail, found, written = encoded(*events), Tail(directory), [], 0
    with (directory / EVENTS / "a.jsonl").open("ab", buffering=0) as file:
        for cut in [*sorted(cuts), len(text)]:
            file.write(text[written:cut])
            written = max(written, min(cut, len(text)))
            found += tail.new()
    assert found == events
