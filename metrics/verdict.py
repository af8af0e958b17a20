"""Checks and their verdicts. A check is a pure function of a stored run; without evidence it answers *unknown*."""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from chaos import own
from chaos.exits import ExitCode, worst
from chaos.history import History
from metrics.attempts import Attempt, attempts_of

RECORD = "scenario.json"


class Verdict(StrEnum):
    """What a check found."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not-applicable"
    """What the check judges cannot exist in this run: listed, not judged."""


CODES = {Verdict.PASS: ExitCode.PASS, Verdict.FAIL: ExitCode.FAIL, Verdict.UNKNOWN: ExitCode.UNKNOWN}
"""The exit code of each verdict that decides."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for: the resolved scenario as stored in ``scenario.json``.

    ``expect``: the expectation, as ``--expect`` takes it. ``injections``: the plan's, with their fault, rank and
    trigger. ``timeouts``: seconds by name (``chaos.timeouts``), None for Ray's default. ``epoch_samples``: samples in
    one epoch, with ids from 0; None where that is not known. ``known_issue``: what Ray or torch is known to do wrong.
    ``poll_s``: how often the controller polls its workers. ``strict``: whether what is not applicable is unknown.
    ``sources``: the run's copies of the files of the user's own that it needs. ``script``: the user's own training
    script and its arguments, empty for the reference trainer.
    """

    schema: int
    run: str
    scenario: str
    title: str
    command: str
    seed: int
    workers: int
    steps: int
    checkpoint_every: int
    keep: int
    max_failures: int
    poll_s: float
    control: bool
    expect: str
    timeouts: dict[str, float | None]
    injections: list[dict[str, Any]]
    settings: dict[str, Any]
    epoch_samples: int | None = None
    versions: dict[str, str]
    commit: str = ""
    known_issue: str = ""
    strict: bool = False
    sources: list[str] = []
    script: list[str] = []


@dataclass(frozen=True)
class Case:
    """A stored run as the checks see it; ``control`` is the history of its control run, where there is one."""

    directory: Path
    record: Record
    history: History
    control: History | None
    known: dict[str, Any] = field(init=False, default_factory=dict, compare=False, repr=False)
    """What was worked out of it already, see ``per_case``."""

    @classmethod
    def load(cls, directory: Path) -> Case:
        """Read a run directory.

        Raises FileNotFoundError or ValueError when it is none, with what is missing.
        """
        record_file = directory / RECORD
        if not record_file.exists():
            raise FileNotFoundError(f"{directory} holds no {RECORD}: it is no run directory")
        try:
            record = msgspec.json.decode(record_file.read_bytes(), type=Record)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{record_file} cannot be read, or is of another version: {error}") from error
        control = directory / "control"
        found = History.load(control) if (control / "history.jsonl").exists() else None
        return cls(directory, record, History.load(directory), found)

    @cached_property
    def attempts(self) -> list[Attempt]:
        """The lives of the worker group, in order."""
        return attempts_of(self.history)

    @cached_property
    def control_attempts(self) -> list[Attempt]:
        """The lives of the control run's worker group; a sound control run has one."""
        return attempts_of(self.control) if self.control else []


T = TypeVar("T")


def per_case(function: Callable[[Case], T]) -> Callable[[Case], T]:
    """What a function answers of a case, worked out once: many checks ask for the same."""

    @functools.wraps(function)
    def remembered(case: Case) -> T:
        name = f"{function.__module__}.{function.__qualname__}"
        if name not in case.known:
            case.known[name] = function(case)
        return cast(T, case.known[name])

    return remembered


@dataclass(frozen=True)
class Finding:
    """The answer of one check: what was expected, what was seen, where to look."""

    check: str
    verdict: Verdict
    expected: str
    seen: str
    where: str = "history.jsonl"
    evidence: dict[str, Any] = field(default_factory=dict)


def worst_of(findings: Iterable[Finding]) -> Verdict:
    """The verdict that decides: fail before unknown before pass; unknown where no finding decides anything."""
    found = {finding.verdict for finding in findings}
    return next((v for v in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS) if v in found), Verdict.UNKNOWN)


Check = Callable[[Case], Finding]


def untold(case: Case, name: str, expected: str, seen: str, call: str) -> Finding:
    """The answer where the program did not volunteer what a check needs.

    The reference trainer always does, so its silence is *unknown*; to a user's script the check does not apply.
    """
    if not case.record.script:
        return Finding(name, Verdict.UNKNOWN, expected, seen)
    return Finding(name, Verdict.NOT_APPLICABLE, expected, f"{seen}; from chaos import observe; {call} supplies it")


@dataclass(frozen=True)
class Judgement:
    """All findings of a run and the exit code that follows. ``seconds``: how long each check took, by its name."""

    findings: tuple[Finding, ...]
    exit_code: ExitCode
    reason: str
    seconds: dict[str, float] = field(default_factory=dict, compare=False)

    @property
    def verdict(self) -> Verdict:
        """One word for the run."""
        if self.exit_code is ExitCode.PASS:
            return Verdict.PASS
        return Verdict.FAIL if self.exit_code in (ExitCode.FAIL, ExitCode.NOT_HEALED) else Verdict.UNKNOWN


def judge(case: Case, checks: Sequence[tuple[str, Check]]) -> Judgement:
    """Run every check over a stored run; one that crashes is *unknown*, with its error."""
    findings: list[Finding] = []
    seconds: dict[str, float] = {}
    for name, check in checks:
        begin = time.perf_counter()
        findings.append(guarded(name, check, case))
        seconds[name] = time.perf_counter() - begin
    code, reason = exit_code(case.history, findings)
    return Judgement(tuple(findings), code, reason, seconds)


def guarded(name: str, check: Check, case: Case) -> Finding:
    """The answer of a check; one that crashes is *unknown*, with its error.

    Of a strict run what is not applicable is unknown, too.
    """
    try:
        found = check(case)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        lines = own.lines(error)
        where = lines[-1] if lines else f"{Path(last.filename).name}:{last.lineno}"
        seen = f"the check itself failed: {error!r} at {where}"
        return Finding(name, Verdict.UNKNOWN, "a verdict", seen, evidence={"traceback": lines} if lines else {})
    if case.record.strict and found.verdict is Verdict.NOT_APPLICABLE:
        return replace(found, verdict=Verdict.UNKNOWN, seen=f"{found.seen} (not applicable; --strict)")
    return found


def exit_code(history: History, findings: Sequence[Finding]) -> tuple[ExitCode, str]:
    """The worst of what the run itself says and of what the checks found, with the sentence that explains it."""
    outcomes = [*_outcomes_of_run(history), *_outcomes_of(findings)]
    code = worst(outcome for outcome, _ in outcomes)
    reason = next((text for outcome, text in outcomes if outcome is code), "nothing was checked")
    return code, reason


def harness_outcomes(history: History) -> list[tuple[ExitCode, str]]:
    """What the harness itself says of a run: not healed, a defect of its own, aborted; empty when all went well."""
    outcomes = []
    if errors := [
        error for event in history.select("run.healed") for error in event.data.get("errors", ["healing was not told"])
    ]:
        outcomes.append((ExitCode.NOT_HEALED, f"could not be undone: {'; '.join(errors)}"))
    if bug := history.first("run.bug"):
        outcomes.append((ExitCode.BUG, f"a defect of the harness: {bug.data.get('error')}"))
    if aborted := history.first("run.aborted"):
        outcomes.append((ExitCode.ABORTED, f"aborted by {aborted.data.get('reason')}, and healed"))
    return outcomes


def _outcomes_of_run(history: History) -> list[tuple[ExitCode, str]]:
    outcomes = harness_outcomes(history)
    if not history.select("step.end"):
        outcomes.append((ExitCode.NOT_STEADY, f"no training step was ever completed: {_why_no_step(history)}"))
    elif injected := [str(event.data.get("injection")) for event in history.select("fault.armed")]:
        confirmed = {event.data.get("injection") for event in history.select("fault.confirmed")}
        if missing := [name for name in injected if name not in confirmed]:
            alone = died_alone(history)
            outcomes.append((ExitCode.NOT_INJECTED, f"injection {', '.join(missing)} was not confirmed{alone}"))
    else:
        outcomes.append((ExitCode.NOT_INJECTED, "no fault was armed"))
    return outcomes


def died_alone(history: History) -> str:
    """Which rank died by itself: in an attempt that no fault hit, before its group was taken down; empty for none."""
    hit = {event.attempt for event in history.select("fault.fired")}
    ends = {event.attempt: event.wall_ns for event in reversed(history.select("attempt.shutdown"))}
    for event in history.select("process.exit"):
        if event.attempt not in hit and event.wall_ns < ends.get(event.attempt, 0):
            how = f" ({event.data['cause']})" if event.data.get("cause") else ""
            return f"; rank {event.rank} died by itself{how} in attempt {event.attempt}"
    return ""


def _why_no_step(history: History) -> str:
    if failed := history.first("run.failed"):
        return str(failed.data.get("error"))
    ended = history.first("workload.exit")
    if ended is None:
        return "the training script was not run to its end"
    code = ended.data.get("code")
    how = "was ended at the deadline" if code is None else f"ended with code {code}"
    return f"the training script {how}, see logs/driver.log"


def _outcomes_of(findings: Sequence[Finding]) -> list[tuple[ExitCode, str]]:
    outcomes = []
    for verdict, code in CODES.items():
        if named := [finding.check for finding in findings if finding.verdict is verdict]:
            text = "every check that applies passed" if verdict is Verdict.PASS else f"{verdict}: {', '.join(named)}"
            outcomes.append((code, text))
    return outcomes
