"""Histories damaged at random: every one is judged, none by a traceback, and what cannot be read never passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from chaos.exits import ExitCode
from chaos.history import NAME
from metrics.publish import judge_run
from metrics.summary import Summary, summarize
from tests.histories import healthy
from tests.stories import FIELDS

LINES = [line.rstrip(b"\n") for line in healthy().lines()]
KEYS = sorted({key for line in LINES for key in json.loads(line).get("data", {})})
SPARE = {"wall_ns", "mono_ns"}
"""Fields whose shift is a damage of its own: see the clocks."""

POSITIONS = st.integers(0, len(LINES) - 1)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=4,
)
FUZZ = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    return healthy().write(tmp_path_factory.mktemp("fuzz") / "run")


@pytest.fixture(scope="module")
def judged(stored):
    """Judges the stored run with other lines for its history."""

    def judge(lines: list[bytes]) -> Summary:
        (stored / NAME).write_bytes(b"".join(line + b"\n" for line in lines))
        summary = summarize(*judge_run(stored))
        assert summary.exit_code not in (ExitCode.BUG, ExitCode.USAGE)
        assert msgspec.json.decode(msgspec.json.encode(summary), type=Summary) == summary
        return summary

    return judge


def changed(line: bytes, key: str, value: Any) -> bytes:
    """The line with another value: of a field, else in its data."""
    event = json.loads(line)
    (event if key in FIELDS else event.setdefault("data", {}))[key] = value
    return json.dumps(event).encode()


def test_the_run_that_is_damaged_below_passes(judged):
    assert judged(LINES).exit_code == ExitCode.PASS


@FUZZ
@given(order=st.permutations(range(len(LINES))), doubled=st.lists(POSITIONS, max_size=5))
def test_the_order_of_lines_and_exact_repetitions_change_nothing(judged, order, doubled):
    assert judged([LINES[i] for i in (*order, *doubled)]).exit_code == ExitCode.PASS


@FUZZ
@given(at=POSITIONS, junk=st.binary(min_size=1, max_size=40).filter(lambda text: b"\n" not in text and text.strip()))
def test_what_cannot_be_read_never_passes(judged, at, junk):
    assert judged([*LINES[:at], junk, *LINES[at:]]).exit_code != ExitCode.PASS


@FUZZ
@given(cut=st.integers(0, sum(len(line) + 1 for line in LINES) - 2))
def test_a_history_that_was_cut_never_passes(judged, cut):
    text = b"\n".join(LINES)[:cut]
    assert judged(text.split(b"\n")).exit_code != ExitCode.PASS


@FUZZ
@given(data=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4), at=POSITIONS)
def test_an_event_of_a_kind_from_a_later_version_changes_nothing(judged, data, at):
    novelty = changed(changed(LINES[at], "kind", "novelty.seen"), "data", data)
    assert judged([*LINES, novelty]).exit_code == ExitCode.PASS


@FUZZ
@given(gone=st.lists(POSITIONS, min_size=1, max_size=8, unique=True))
def test_lines_that_are_gone_are_no_traceback(judged, gone):
    judged([line for i, line in enumerate(LINES) if i not in gone])


@settings(FUZZ, max_examples=80)
@given(at=POSITIONS, key=st.sampled_from(sorted(set(FIELDS) - SPARE) + KEYS), value=VALUES)
def test_a_value_of_another_kind_is_no_traceback(judged, at, key, value):
    judged([*LINES[:at], changed(LINES[at], key, value), *LINES[at + 1 :]])


@FUZZ
@given(at=POSITIONS, by=st.integers(-(10**13), 10**13), clock=st.sampled_from(sorted(SPARE)))
@example(at=len(LINES) // 2, by=3 * 10**9, clock="wall_ns")
def test_a_clock_that_jumps_is_no_traceback(judged, at, by, clock):
    late = [changed(line, clock, json.loads(line)[clock] + by) for line in LINES[at:]]
    judged([*LINES[:at], *late])


@pytest.mark.parametrize("seconds", [-3, 3])
def test_a_wall_clock_that_jumps_for_good_never_passes(judged, seconds):
    half = len(LINES) // 2
    late = [changed(line, "wall_ns", json.loads(line)["wall_ns"] + seconds * 10**9) for line in LINES[half:]]
    assert judged([*LINES[:half], *late]).exit_code != ExitCode.PASS
