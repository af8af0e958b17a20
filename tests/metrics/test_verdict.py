"""Judging: precedence of exit codes, checks that crash, and runs in which nothing was tried."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from chaos.exits import PRECEDENCE, ExitCode, worst
from chaos.history import Event
from metrics.expectations import HEALTHY, UNDISTURBED, loses, names, recovers
from metrics.verdict import RECORD, Case, Check, Finding, Judgement, Verdict, died_alone, exit_code, judge
from tests.histories import Run, faulty, healthy
from tests.stories import BEGIN_NS, Hit, checkpoint_name, parts


def finding(verdict: Verdict, name: str = "some") -> Finding:
    return Finding(name, verdict, "this", "that")


def note(kind: str, **data: object) -> Event:
    return Event(kind=kind, wall_ns=BEGIN_NS, mono_ns=1, node="harness", pid=1, data=data)


def always(verdict: Verdict) -> tuple[str, Check]:
    return (f"always {verdict}", lambda case: finding(verdict, f"always {verdict}"))


def test_precedence_is_5_70_6_4_3_1_2_0() -> None:
    assert [int(code) for code in PRECEDENCE] == [5, 70, 6, 4, 3, 1, 2, 0]


@pytest.mark.parametrize(("worse", "better"), list(itertools.combinations(PRECEDENCE, 2)))
def test_the_worse_of_two_codes_decides_in_either_order(worse: ExitCode, better: ExitCode) -> None:
    assert worst([worse, better]) is worse
    assert worst([better, worse]) is worse


def test_no_outcome_at_all_is_unknown() -> None:
    assert worst([]) is ExitCode.UNKNOWN


CODES: list[tuple[int, Run, list[Verdict], str]] = [
    (0, healthy(), [Verdict.PASS, Verdict.PASS], "every check that applies passed"),
    (1, healthy(), [Verdict.PASS, Verdict.FAIL], "fail: always fail"),
    (1, healthy(), [Verdict.UNKNOWN, Verdict.FAIL], "fail: always fail"),
    (2, healthy(), [Verdict.UNKNOWN, Verdict.PASS], "unknown: always unknown"),
    (0, healthy(), [Verdict.PASS, Verdict.NOT_APPLICABLE], "every check that applies passed"),
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
) -> None:
    judged = judge(run.case(), [always(verdict) for verdict in verdicts])
    assert int(judged.exit_code) == code
    assert words in judged.reason


LONELY = healthy().drop("fault.fired").drop("fault.confirmed")


def test_a_rank_that_died_by_itself_is_named_with_how_it_ended() -> None:
    assert died_alone(LONELY.case().history) == "; rank 1 died by itself (SIGKILL) in attempt 0"
    assert died_alone(LONELY.change("process.exit", cause="").case().history) == "; rank 1 died by itself in attempt 0"
    judged = LONELY.judged()
    assert judged.exit_code is ExitCode.NOT_INJECTED
    assert judged.reason == "injection kill-0 was not confirmed; rank 1 died by itself (SIGKILL) in attempt 0"


@pytest.mark.parametrize(
    "run",
    [
        healthy(),
        healthy().drop("fault.confirmed"),  # the fault did hit it
        healthy(kills=()),
        healthy(kills=((1, 6), (0, 10))),
        LONELY.drop("attempt.shutdown"),  # whether the group was taken down before is not known
        LONELY.drop("process.exit", attempt=0, rank=1),
        LONELY.drop("process.exit"),
    ],
)
def test_a_rank_that_was_hit_or_taken_down_did_not_die_by_itself(run: Run) -> None:
    assert died_alone(run.case().history) == ""


def test_a_death_in_another_attempt_than_the_faults_is_by_itself() -> None:
    run = healthy(kills=((1, 6), (0, 10))).drop("fault.fired", injection="kill-1")
    assert died_alone(run.case().history) == "; rank 0 died by itself (SIGKILL) in attempt 1"


def test_the_second_of_two_injections_must_be_confirmed_too() -> None:
    run = healthy(kills=((1, 6), (0, 10))).drop("fault.confirmed", injection="kill-1")
    judged = run.judged()
    assert (judged.exit_code, judged.reason) == (ExitCode.NOT_INJECTED, "injection kill-1 was not confirmed")


@pytest.mark.parametrize(
    "run", [healthy(kills=()), healthy().drop("fault.armed"), healthy().drop("step.end"), healthy().drop("fault.fired")]
)
def test_a_run_without_a_fault_or_a_step_is_never_a_pass(run: Run) -> None:
    assert run.judged().exit_code is not ExitCode.PASS
    assert run.judged().verdict is not Verdict.PASS


def test_a_run_without_a_check_is_unknown() -> None:
    assert exit_code(healthy().case().history, []) == (ExitCode.UNKNOWN, "nothing was checked")


def test_a_run_that_never_told_of_its_healing_is_never_a_pass() -> None:
    assert healthy().drop("run.healed").judged().exit_code is not ExitCode.PASS


def test_a_check_that_crashes_is_unknown_with_its_error_and_stops_no_other() -> None:
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
def test_a_run_is_one_word(code: int, word: str) -> None:
    assert Judgement((), ExitCode(code), "").verdict == word


def test_the_healthy_run_passes_every_check() -> None:
    judged = healthy().judged()
    assert {f.check: f.verdict for f in judged.findings if f.verdict is not Verdict.PASS} == {}
    assert (judged.exit_code, judged.verdict) == (ExitCode.PASS, Verdict.PASS)


STRICT = healthy(expects=HEALTHY.but(recovers(within=6) & loses(steps=2)))
RAISED = faulty((Hit(1, 6, fault="exception"),), expects=HEALTHY & names(error="InjectedError"))
DISTURBED = faulty((Hit(1, 6, fault="delay"),), expects=UNDISTURBED)
OTHER = {**parts(1, 8), "progress.step": "0" * 32}
DEFECTS: list[tuple[Run, set[str]]] = [
    (STRICT.change("fault.fired", rank=0), {"fault", "blast-radius"}),
    (STRICT.again("fault.fired"), {"fault"}),
    (STRICT.change("residue.checked", placement_groups=["ab12"]), {"residue"}),
    (STRICT.change("fault.fired", wall_ns=STRICT.select("fault.fired")[0].wall_ns - 1_000_000_000), {"recovered"}),
    (STRICT.again("controller.decision"), {"restarts"}),
    (STRICT.change("controller.start", max_failures=0), {"restarts"}),
    (STRICT.asked(expect=str(HEALTHY.but(loses(steps=1)))), {"lost-steps"}),
    (STRICT.change("workload.exit", code=1), {"completed"}),
    (STRICT.change("worker.start", {"attempt": 1, "rank": 1}, checkpoint=checkpoint_name(0)), {"resume-step"}),
    (STRICT.change("state", {"name": "restored", "rank": 1}, parts=parts(1, 8)), {"restored-state"}),
    (STRICT.change("step.end", {"rank": 0, "step": 9}, samples=[]), {"samples", "trajectory"}),
    (STRICT.again("step.end", {"attempt": 1, "rank": 0, "step": 9}, samples=[]), {"steps", "trajectory"}),
    (STRICT.change("step.end", {"rank": 0, "step": 9}, loss=0.0), {"trajectory"}),
    (STRICT.change("state", {"rank": 1, "step": 8}, parts=OTHER), {"control-state"}),
    (RAISED.change("worker.error", {"rank": 1}, error="RayTaskError"), {"cause"}),
    (DISTURBED.again("controller.state", kind="controller.decision", decision="RETRY"), {"restarts"}),
    (DISTURBED.change("workload.exit", code=None), {"completed"}),
]


@pytest.mark.parametrize("run", [STRICT, RAISED, DISTURBED])
def test_what_the_defects_are_seeded_in_is_healthy(run: Run) -> None:
    assert run.judged().reason == "every check that applies passed"


@pytest.mark.parametrize(("run", "red"), DEFECTS)
def test_each_defect_turns_its_own_check_red_and_no_other(run: Run, red: set[str]) -> None:
    judged = run.judged()
    assert {f.check for f in judged.findings if f.verdict is not Verdict.PASS} == red
    assert {f.verdict for f in judged.findings if f.check in red} == {Verdict.FAIL}
    assert judged.exit_code is ExitCode.FAIL


EVIDENCE: list[tuple[str, dict[str, object], set[str]]] = [
    ("fault.confirmed", {}, {"fault"}),
    ("residue.checked", {}, {"residue", "blast-radius"}),
    ("controller.start", {}, {"restarts"}),
    ("workload.exit", {}, {"completed"}),
    ("schedule.begin", {"attempt": 1}, {"recovered"}),
    ("restore.end", {}, {"recovered"}),
    ("state", {"name": "restored"}, {"restored-state"}),
    ("state", {"name": "saved", "attempt": 1}, {"control-state"}),
    ("run.healed", {}, {"history"}),
]


@pytest.mark.parametrize(("kind", "where", "dark"), EVIDENCE)
def test_lost_evidence_makes_its_own_check_unknown_and_no_other(
    kind: str, where: dict[str, object], dark: set[str]
) -> None:
    judged = STRICT.drop(kind, **where).judged()
    assert {f.check for f in judged.findings if f.verdict is not Verdict.PASS} == dark
    assert {f.verdict for f in judged.findings if f.check in dark} == {Verdict.UNKNOWN}
    assert judged.exit_code is not ExitCode.PASS


def test_a_stored_run_loads_as_it_was(tmp_path: Path) -> None:
    run = healthy()
    case, wanted = Case.load(run.write(tmp_path / "run", store=False)), run.case()
    assert wanted.control is not None
    assert case.control is not None
    for loaded, told in ((case.history, wanted.history), (case.control, wanted.control)):
        assert [e.data for e in loaded] == [e.data for e in told]
        assert [(e.kind, e.wall_ns, e.attempt, e.rank) for e in loaded] == [
            (e.kind, e.wall_ns, e.attempt, e.rank) for e in told
        ]
    assert case.record == wanted.record


def test_a_run_without_control_loads_without(tmp_path: Path) -> None:
    case = Case.load(healthy(control=False).write(tmp_path / "run", store=False))
    assert case.control is None
    assert case.control_attempts == []


@pytest.mark.parametrize("name", [RECORD, "history.jsonl"])
def test_a_directory_that_is_no_run_is_refused_by_name_of_what_is_missing(name: str, tmp_path: Path) -> None:
    directory = healthy().write(tmp_path / "run", store=False)
    (directory / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        Case.load(directory)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"schema": 1}', b"\xff\xfe\x00", b'{"schema": "one"}'])
def test_a_record_that_cannot_be_read_is_refused(text: bytes, tmp_path: Path) -> None:
    directory = healthy().write(tmp_path / "run", store=False)
    (directory / RECORD).write_bytes(text)
    with pytest.raises(ValueError, match="cannot be read"):
        Case.load(directory)
