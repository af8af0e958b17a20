"""Stored runs, judged and published: order and repetition change nothing, damage is unknown and never a traceback."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.exits import ExitCode
from chaos.history import NAME
from metrics.expectations import UNDISTURBED, fails, loses, parse, recovers, restarts
from metrics.publish import ALWAYS, judge_run, publish, record_judged
from metrics.summary import Summary
from metrics.verdict import Case, Verdict
from tests.histories import Run, faulty, healthy
from tests.stories import Hit

HEALTHY = healthy()
NAMES = [name for name, _ in HEALTHY.checks]
LINES = HEALTHY.lines()
CONFIRMED = [i for i, event in enumerate(HEALTHY.events) if event.kind == "fault.confirmed"]
FILES = ("verdict.json", "junit.xml", "metrics.prom", "report.html")

fuzzed = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return HEALTHY.write(tmp_path / "run")


def judged_with(directory: Path, text: bytes) -> tuple[ExitCode, dict[str, str]]:
    """Exit code, and what each check saw, of the stored run with another history."""
    (directory / NAME).write_bytes(text)
    _, judgement = judge_run(directory)
    return judgement.exit_code, {f.check: f"{f.verdict}: {f.seen}" for f in judgement.findings}


def test_a_healthy_stored_run_passes_every_check(stored: Path) -> None:
    _, judgement = judge_run(stored)
    assert [(f.check, f.verdict) for f in judgement.findings] == [(name, Verdict.PASS) for name in NAMES]
    assert judgement.exit_code is ExitCode.PASS


@pytest.mark.parametrize(
    "run",
    [
        healthy(kills=((1, 6), (0, 10))),
        faulty((Hit(1, 6), Hit(0, phase="teardown"))),
        faulty((Hit(1, 6),), (Hit(0, phase="restore"),)),
        faulty((Hit(1, 6),), (Hit(0, phase="rendezvous"),)),
        faulty((Hit(1, 6),), (Hit(0, phase="first-step"),)),
        faulty((Hit(1, 6, fault="delay"),), expects=UNDISTURBED),
    ],
)
def test_every_other_healthy_run_passes_every_check_too(run: Run, tmp_path: Path) -> None:
    _, judgement = judge_run(run.write(tmp_path / "run"))
    assert {f.check: f.seen for f in judgement.findings if f.verdict is not Verdict.PASS} == {}


def test_the_checks_of_every_run_are_asked_whatever_is_expected(tmp_path: Path) -> None:
    _, judgement = judge_run(healthy(expects=restarts()).write(tmp_path / "run"))
    assert [finding.check for finding in judgement.findings] == [*(name for name, _ in ALWAYS), "restarts"]


def test_an_expectation_given_later_takes_the_place_of_the_stored_one(stored: Path) -> None:
    case, judgement = judge_run(stored, loses(steps=1) & recovers(within=9))
    assert [finding.check for finding in judgement.findings] == NAMES
    found = {finding.check: finding for finding in judgement.findings}
    assert (found["lost-steps"].verdict, found["lost-steps"].expected) == (Verdict.FAIL, "at most 1 steps")
    assert (found["recovered"].verdict, "within 9 s" in found["recovered"].expected) == (Verdict.PASS, True)
    assert judgement.exit_code is ExitCode.FAIL
    assert parse(case.record.expect).checks[2][0] == "lost-steps"
    assert "recovers(within=9)" in publish(case, judgement).expect


def test_what_is_asked_beyond_the_stored_expectation_is_judged_beside_it(stored: Path) -> None:
    _, judgement = judge_run(stored, fails(error="WorkerGroupError"))
    assert [finding.check for finding in judgement.findings] == [*NAMES, "failed"]
    assert judgement.reason == "fail: failed"


def test_judging_by_another_expectation_leaves_the_stored_one_alone(stored: Path) -> None:
    judge_run(stored, loses(steps=1))
    assert Case.load(stored).record == HEALTHY.case().record
    assert judge_run(stored)[1].exit_code is ExitCode.PASS


@pytest.mark.parametrize("text", ["", "recovers", "recovers(within=60", "__import__('os')", "quake()"])
def test_a_stored_expectation_that_cannot_be_read_is_refused_by_name_of_the_run(text: str, tmp_path: Path) -> None:
    directory = HEALTHY.asked(expect=text).write(tmp_path / "run", store=False)
    with pytest.raises(ValueError, match=r"run: its expectation cannot be read"):
        judge_run(directory)


def test_no_two_checks_share_a_name_and_each_answers_by_its_own(stored: Path) -> None:
    _, judgement = judge_run(stored)
    assert len(set(NAMES)) == len(NAMES)
    assert [finding.check for finding in judgement.findings] == NAMES


def test_repeated_lines_change_nothing(stored: Path) -> None:
    assert judged_with(stored, b"".join(LINES)) == judged_with(stored, b"".join(LINES + LINES))


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_lines_changes_nothing(seed: int, stored: Path) -> None:
    wanted = judged_with(stored, b"".join(LINES))
    assert judged_with(stored, b"".join(random.Random(seed).sample(LINES, len(LINES)))) == wanted


def test_lines_that_the_harness_had_not_gathered_yet_count(stored: Path) -> None:
    wanted = judged_with(stored, b"".join(LINES))
    (stored / "events").mkdir()
    (stored / "events" / "rank.jsonl").write_bytes(b"".join(LINES[40:60]))
    assert judged_with(stored, b"".join(LINES[:50] + LINES[60:])) == wanted


@pytest.mark.parametrize("kept", [0, 1, 20, -2, -1])
def test_a_cut_last_line_is_unknown(kept: int, stored: Path) -> None:
    text = b"".join(LINES[:-1]) + LINES[-1].rstrip()[:kept]
    code, seen = judged_with(stored, text)
    assert code is ExitCode.UNKNOWN
    assert seen["history"].startswith("unknown")
    assert {check for check, words in seen.items() if not words.startswith("pass")} == {"history"}


def test_an_unreadable_line_is_unknown_although_all_else_passes(stored: Path) -> None:
    code, seen = judged_with(stored, b"".join([*LINES[:30], b'{"kind": "step.e\xff\n', *LINES[30:]]))
    assert (code, seen["history"]) == (
        ExitCode.UNKNOWN,
        "unknown: 1 unreadable lines: the history was cut or damaged",
    )


def test_an_empty_history_is_neither_pass_nor_fail(stored: Path) -> None:
    code, seen = judged_with(stored, b"")
    assert code is ExitCode.NOT_STEADY
    assert not [check for check, words in seen.items() if not words.startswith("unknown")]


@fuzzed
@given(garbage=st.binary(max_size=200), at=st.integers(0, len(LINES)))
def test_garbage_in_the_history_is_never_a_pass_and_never_a_traceback(stored: Path, garbage: bytes, at: int) -> None:
    code, _ = judged_with(stored, b"".join([*LINES[:at], garbage, b"\n", *LINES[at:]]))
    assert (code is ExitCode.PASS) == (garbage.strip(b"\n") == b"")


@fuzzed
@given(gone=st.sets(st.integers(0, len(LINES) - 1)))
def test_a_history_with_holes_never_stops_the_judge(stored: Path, gone: set[int]) -> None:
    code, seen = judged_with(stored, b"".join(line for i, line in enumerate(LINES) if i not in gone))
    assert code in (0, 1, 2, 3, 4)
    assert list(seen) == NAMES


@fuzzed
@given(gone=st.sets(st.integers(0, len(LINES) - 1), max_size=12))
def test_a_run_whose_fault_was_never_confirmed_is_never_a_pass(stored: Path, gone: set[int]) -> None:
    left = (line for i, line in enumerate(LINES) if i not in gone.union(CONFIRMED))
    code, _ = judged_with(stored, b"".join(left))
    assert code is not ExitCode.PASS


SPOILT = [
    HEALTHY.change("step.end", {"rank": 0, "step": 9}, loss=0.0),
    HEALTHY.drop("step.end", attempt=1, step=9),
    HEALTHY.change("worker.start", {"attempt": 1, "rank": 1}, checkpoint="checkpoint_000000"),
    HEALTHY.change("controller.decision", decision="RAISE"),
    HEALTHY.change("fault.fired", step=7),
    HEALTHY.change("residue.checked", actors=["RayTrainWorker"]),
    healthy(kills=((1, 6), (0, 10))).change("fault.fired", {"injection": "kill-1"}, fault="delay"),
]


@fuzzed
@given(which=st.sampled_from(SPOILT), seed=st.integers(0, 1000), share=st.floats(0, 0.3))
def test_losing_lines_never_turns_a_spoilt_run_into_a_pass(stored: Path, which: Run, seed: int, share: float) -> None:
    chance = random.Random(seed)
    code, _ = judged_with(stored, b"".join(line for line in which.lines() if chance.random() >= share))
    assert code is not ExitCode.PASS


@fuzzed
@given(text=st.binary(max_size=300))
def test_any_bytes_as_a_record_are_refused_or_judged(stored: Path, text: bytes) -> None:
    (stored / "scenario.json").write_bytes(text)
    with contextlib.suppress(FileNotFoundError, ValueError):
        judge_run(stored)


def test_a_deeply_nested_line_is_an_unreadable_line(stored: Path) -> None:
    code, _ = judged_with(stored, b"".join(LINES) + b'{"x":' + b"[" * 100_000 + b"\n")
    assert code is ExitCode.UNKNOWN


@pytest.mark.parametrize("kind", ["run.healed", "run.bug", "run.aborted", "fault.armed", "fault.confirmed"])
def test_an_event_that_lacks_its_data_never_stops_the_judge(kind: str, stored: Path) -> None:
    line = b'{"kind":"%s","wall_ns":1,"mono_ns":1,"node":"n","pid":1}\n' % kind.encode()
    code, _ = judged_with(stored, b"".join(LINES) + line)
    assert code is not ExitCode.PASS


@pytest.mark.parametrize(
    ("code", "run"),
    [
        (0, HEALTHY),
        (0, healthy(kills=((1, 2),))),
        (1, HEALTHY.change("workload.exit", code=1)),
        (2, HEALTHY.drop("state", attempt=1, name="restored")),
        (3, HEALTHY.until("run.start")),
        (4, HEALTHY.until("fault.fired")),
        (5, HEALTHY.change("run.healed", errors=["pid 7 lives"])),
    ],
)
def test_publishing_writes_all_four_files_and_the_verdict_reads_back(code: int, run: Run, tmp_path: Path) -> None:
    directory = run.write(tmp_path / "run")
    case, judgement = judge_run(directory)
    summary = publish(case, judgement)
    assert [file for file in FILES if not (directory / file).stat().st_size] == []
    stored_summary = msgspec.json.decode((directory / "verdict.json").read_bytes(), type=Summary)
    assert stored_summary == summary
    assert (summary.verdict, summary.exit_code) == (judgement.verdict, code)


def test_publishing_twice_writes_the_same_bytes(stored: Path) -> None:
    def texts() -> list[bytes]:
        publish(*judge_run(stored))
        return [(stored / file).read_bytes() for file in FILES]

    assert texts() == texts()


def test_a_report_that_cannot_be_written_changes_no_verdict(stored: Path) -> None:
    (stored / "junit.xml").mkdir()
    assert publish(*judge_run(stored)).exit_code == 0
    assert msgspec.json.decode((stored / "verdict.json").read_bytes())["verdict"] == "pass"


def test_one_file_that_cannot_be_written_keeps_no_other_from_being_written(stored: Path) -> None:
    (stored / "junit.xml").mkdir()
    publish(*judge_run(stored))
    assert [file for file in ("metrics.prom", "report.html") if not (stored / file).exists()] == []


def test_a_fault_that_this_version_does_not_know_is_published(tmp_path: Path) -> None:
    directory = HEALTHY.change("fault.fired", fault="quake").write(tmp_path / "run")
    assert publish(*judge_run(directory)).recoveries[0].fault == "quake"


def test_a_fault_in_an_attempt_that_was_not_seen_is_published(tmp_path: Path) -> None:
    directory = HEALTHY.drop("worker.start", attempt=0).write(tmp_path / "run")
    assert publish(*judge_run(directory)).verdict != "pass"


def test_a_fresh_run_remembers_when_it_was_judged(stored: Path) -> None:
    case, judgement = judge_run(stored)
    after = record_judged(case, judgement)
    assert [event.kind for event in after.history][-1] == "run.judged"
    again, repeated = judge_run(stored)
    assert again.history == after.history
    assert repeated.exit_code is judgement.exit_code
