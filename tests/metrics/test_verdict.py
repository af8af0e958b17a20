"""Judging: precedence of exit codes, checks that crash, and runs in which nothing was tried."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from chaos.exits import PRECEDENCE, ExitCode, worst
from chaos.history import Event
from metrics.verdict import RECORD, Case, Finding, Judgement, Verdict, exit_code, judge
from tests.histories import BEGIN_NS, Run, healthy


def finding(verdict: Verdict, name: str = "some") -> Finding:
    return Finding(name, verdict, "this", "that")


def note(kind: str, **data: object) -> Event:
    return Event(kind=kind, wall_ns=BEGIN_NS, mono_ns=1, node="harness", pid=1, data=data)


def always(verdict: Verdict):
    return (f"always {verdict}", lambda case: finding(verdict, f"always {verdict}"))


def test_precedence_is_5_70_6_4_3_1_2_0():
    assert [int(code) for code in PRECEDENCE] == [5, 70, 6, 4, 3, 1, 2, 0]


@pytest.mark.parametrize(("worse", "better"), list(itertools.combinations(PRECEDENCE, 2)))
def test_the_worse_of_two_codes_decides_in_either_order(worse: ExitCode, better: ExitCode):
    assert worst([worse, better]) is worse
    assert worst([better, worse]) is worse


def test_no_outcome_at_all_is_unknown():
    assert worst([]) is ExitCode.UNKNOWN


CODES: list[tuple[int, Run, list[Verdict], str]] = [
    (0, healthy(), [Verdict.PASS, Verdict.PASS], "every check passed"),
    (1, healthy(), [Verdict.PASS, Verdict.FAIL], "fail: always fail"),
    (1, healthy(), [Verdict.UNKNOWN, Verdict.FAIL], "fail: always fail"),
    (2, healthy(), [Verdict.UNKNOWN, Verdict.PASS], "unknown: always unknown"),
    (0, healthy(), [Verdict.PASS, Verdict.NOT_APPLICABLE], "every check passed"),
    (2, healthy(), [Verdict.NOT_APPLICABLE], "nothing was checked"),
    (3, healthy().drop("step.end"), [Verdict.FAIL], "no training step was ever completed"),
    (3, healthy().drop("step.end").change("workload.exit", code=7), [], "the training script ended with code 7"),
    (3, healthy().drop("step.end").change("workload.exit", code=None), [], "was ended at the deadline"),
    (3, healthy().until("fault.armed"), [], "the training script was not run to its end"),
    (3, healthy().until("fault.armed").add(note("run.failed", error="no node came up")), [], "no node came up"),
    (4, healthy().drop("fault.confirmed"), [Verdict.FAIL], "injection kill-0 was not confirmed"),
    (4, healthy(kills=()), [Verdict.PASS], "no fault was armed"),
    (6, healthy().add(note("run.aborted", reason="SIGINT")), [Verdict.FAIL], "aborted by SIGINT, and healed"),
    (6, healthy(kills=()).add(note("run.aborted", reason="SIGINT")), [Verdict.FAIL], "aborted by SIGINT"),
    (70, healthy().add(note("run.bug", error="KeyError()")), [Verdict.PASS], "a defect of the harness: KeyError()"),
    (70, healthy().add(note("run.bug", error="x"), note("run.aborted", reason="y")), [], "a defect of the harness: x"),
    (5, healthy().change("run.healed", errors=["pid 7 lives"]), [Verdict.PASS], "could not be undone: pid 7 lives"),
    (5, healthy().change("run.healed", errors=["a", "b"]).add(note("run.bug", error="x")), [], "undone: a; b"),
]


@pytest.mark.parametrize(("code", "run", "verdicts", "words"), CODES)
def test_the_worst_outcome_is_the_exit_code_and_gives_the_reason(
    code: int, run: Run, verdicts: list[Verdict], words: str
):
    judged = judge(run.case(), [always(verdict) for verdict in verdicts])
    assert int(judged.exit_code) == code
    assert words in judged.reason


def test_the_second_of_two_injections_must_be_confirmed_too():
    run = healthy(kills=((1, 6), (0, 10))).drop("fault.confirmed", injection="kill-1")
    judged = run.judged()
    assert (judged.exit_code, judged.reason) == (ExitCode.NOT_INJECTED, "injection kill-1 was not confirmed")


@pytest.mark.parametrize(
    "run", [healthy(kills=()), healthy().drop("fault.armed"), healthy().drop("step.end"), healthy().drop("fault.fired")]
)
def test_a_run_without_a_fault_or_a_step_is_never_a_pass(run: Run):
    assert run.judged().exit_code is not ExitCode.PASS
    assert run.judged().verdict is not Verdict.PASS


def test_a_run_without_a_check_is_unknown():
    assert exit_code(healthy().case().history, []) == (ExitCode.UNKNOWN, "nothing was checked")


def test_a_run_that_never_told_of_its_healing_is_never_a_pass():
    assert healthy().drop("run.healed").judged().exit_code is not ExitCode.PASS


def test_a_check_that_crashes_is_unknown_with_its_error_and_stops_no_other():
    def crashes(case: Case) -> Finding:
        raise ZeroDivisionError("by nothing")

    judged = judge(healthy().case(), [("broken", crashes), always(Verdict.PASS)])
    broken, other = judged.findings
    assert (broken.check, broken.verdict) == ("broken", Verdict.UNKNOWN)
    assert "ZeroDivisionError('by nothing') at test_verdict.py:" in broken.seen
    assert other.verdict is Verdict.PASS
    assert (judged.exit_code, judged.reason) == (ExitCode.UNKNOWN, "unknown: broken")


@pytest.mark.parametrize(
    ("code", "word"), [(0, "pass"), (1, "fail"), (5, "fail"), (2, "unknown"), (3, "unknown"), (4, "unknown"),
                       (6, "unknown"), (70, "unknown")]
)  # fmt: skip
def test_a_run_is_one_word(code: int, word: str):
    assert Judgement((), ExitCode(code), "").verdict == word


def test_the_healthy_run_passes_every_check():
    judged = healthy().judged()
    assert {f.check: f.verdict for f in judged.findings if f.verdict is not Verdict.PASS} == {}
    assert (judged.exit_code, judged.verdict) == (ExitCode.PASS, Verdict.PASS)


def test_a_stored_run_loads_as_it_was(tmp_path: Path):
    run = healthy()
    case = Case.load(run.write(tmp_path / "run", store=False))
    assert case.history == run.case().history
    assert case.control == run.case().control
    assert case.record == run.case().record


def test_a_run_without_control_loads_without(tmp_path: Path):
    case = Case.load(healthy(control=False).write(tmp_path / "run", store=False))
    assert case.control is None
    assert case.control_attempts == []


@pytest.mark.parametrize("name", [RECORD, "history.jsonl"])
def test_a_directory_that_is_no_run_is_refused_by_name_of_what_is_missing(name: str, tmp_path: Path):
    directory = healthy().write(tmp_path / "run", store=False)
    (directory / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        Case.load(directory)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"schema": 1}', b"\xff\xfe\x00", b'{"schema": "one"}'])
def test_a_record_that_cannot_be_read_is_refused(text: bytes, tmp_path: Path):
    directory = healthy().write(tmp_path / "run", store=False)
    (directory / RECORD).write_bytes(text)
    with pytest.raises(ValueError, match="cannot be read"):
        Case.load(directory)
