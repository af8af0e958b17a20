"""What a sweep found: the fate of every crash, from the histories of its lives; the table and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.exits import ExitCode, worst
from chaos.history import NAME as HISTORY
from chaos.history import Event, History
from metrics.attempts import Attempt, attempts_of
from metrics.crashes import GOOD, Aftermath, Fate, aftermath
from metrics.verdict import Case, harness_outcomes
from scenarios.crashpoints import Point
from scenarios.view import short

SCHEMA = 1
NAME = "sweep.json"
CRASHES = "crashes.json"
UNDISTURBED = "undisturbed"

KNOWN_ISSUE = (
    "Ray 2.60 writes its record of checkpoints in place: a controller that dies in the middle of it leaves a record "
    "that no later start of the job can read"
)
"""Why a crash in the writing of the snapshot may end in a job that cannot resume."""

COLOURS = {Fate.CLEAN: "green", Fate.LOST_WORK: "green", Fate.UNKNOWN: "yellow"}


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """One crash of a sweep: the point, the injection and the life in which it was to happen, and the life after it.

    A life is a folder of the run directory with a history of its own; all are empty where none was begun.
    ``known_issue``: what Ray is known to do wrong here, where it did.
    """

    point: Point
    injection: str = ""
    life: str = ""
    next_life: str = ""
    aftermath: Aftermath = Aftermath(fate=Fate.UNKNOWN, seen="it was not tried")
    known_issue: str = ""


class SweepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of ``sweep.json``."""

    schema: int
    exit_code: int
    reason: str
    workers: int
    steps: int
    checkpoint_every: int
    crashes: list[Crash]

    @property
    def counts(self) -> Counter[str]:
        """How many crashes had each fate."""
        return Counter(str(crash.aftermath.fate) for crash in self.crashes)


def read(directory: Path) -> list[Crash]:
    """The crashes that a sweep stored, with what became of each; empty where it came to none.

    Raises ValueError when they cannot be read.
    """
    file = directory / CRASHES
    try:
        crashes = msgspec.json.decode(file.read_bytes(), type=list[Crash]) if file.exists() else []
    except msgspec.MsgspecError as error:
        raise ValueError(f"{file} cannot be read, or is of another version: {error}") from error
    lives = Lives(directory)
    return [_judged(crash, fate_of(crash, lives)) for crash in crashes]


def _judged(crash: Crash, found: Aftermath) -> Crash:
    """With what became of it; before the record of checkpoints is opened the old one is whole, so no issue is known."""
    within = crash.point.stage == "snapshot" and crash.point.values.get("call") != "openat"
    known = KNOWN_ISSUE if within and found.fate is Fate.CANNOT_RESUME else ""
    return msgspec.structs.replace(crash, aftermath=found, known_issue=known)


@dataclass
class Lives:
    """The lives of a sweep, each read once."""

    directory: Path
    _known: dict[str, tuple[History, list[Attempt]]] = field(default_factory=dict, init=False)

    def history(self, name: str) -> History:
        """The history of a life."""
        return self._read(name)[0]

    def attempts(self, name: str) -> list[Attempt]:
        """Its attempts; none of a life that never was."""
        return self._read(name)[1]

    def _read(self, name: str) -> tuple[History, list[Attempt]]:
        if name not in self._known:
            there = bool(name) and (self.directory / name / HISTORY).exists()
            history = History.load(self.directory / name) if there else History(())
            self._known[name] = history, attempts_of(history)
        return self._known[name]


def fate_of(crash: Crash, lives: Lives) -> Aftermath:
    """What became of a crash; unknown unless it was seen to happen, and what followed too."""
    if not crash.life:
        return crash.aftermath
    events = {kind: _about(crash, lives, kind) for kind in ("fault.fired", "fault.confirmed", "fault.failed")}
    fired = events["fault.fired"]
    attempts = lives.attempts(crash.life)
    hit = next((attempt for attempt in attempts if fired and attempt.number == fired.attempt), None)
    if fired is None or hit is None or events["fault.confirmed"] is None:
        failed = events["fault.failed"]
        return Aftermath(fate=Fate.UNKNOWN, seen=str(failed.data["error"]) if failed else "the point did not come")
    if not crash.next_life:
        return Aftermath(fate=Fate.UNKNOWN, seen="the job was not started again")
    commits = [c.step or 0 for attempt in attempts for c in attempt.commits if c.wall_ns < fired.wall_ns]
    first = hit.number + 1 if crash.next_life == crash.life else 0
    following = [attempt for attempt in lives.attempts(crash.next_life) if attempt.number >= first]
    ended = lives.history(crash.next_life).first("workload.exit")
    code = ended.data.get("code") if ended else None
    return aftermath(hit, following, code, max([hit.resumed, *commits]), lives.attempts(UNDISTURBED))


def _about(crash: Crash, lives: Lives, kind: str) -> Event | None:
    """The first event of a kind on the injection of a crash."""
    events = lives.history(crash.life).select(kind)
    return next((event for event in events if event.data.get("injection") == crash.injection), None)


def is_sweep(directory: Path) -> bool:
    """Whether a run directory is that of a sweep."""
    return any((directory / name).exists() for name in (UNDISTURBED, CRASHES, NAME))


def make(directory: Path) -> SweepRecord:
    """Judge a sweep by its directory.

    Raises FileNotFoundError or ValueError when it holds no readable record.
    """
    case = Case.load(directory)
    crashes = read(directory)
    outcomes = [*harness_outcomes(case.history), *_steady(case.history), *_outcomes(crashes)]
    code = worst(outcome for outcome, _ in outcomes)
    return SweepRecord(
        schema=SCHEMA,
        exit_code=int(code),
        reason=next(text for outcome, text in outcomes if outcome is code),
        workers=case.record.workers,
        steps=case.record.steps,
        checkpoint_every=case.record.checkpoint_every,
        crashes=crashes,
    )


def _steady(history: History) -> list[tuple[ExitCode, str]]:
    """Why there was nothing to crash; empty when there was."""
    failed = history.first("run.failed")
    return [(ExitCode.NOT_STEADY, str(failed.data.get("error")))] if failed else []


def _outcomes(crashes: Sequence[Crash]) -> list[tuple[ExitCode, str]]:
    if not crashes:
        return [(ExitCode.UNKNOWN, "the job was not crashed at all")]
    fates = [crash.aftermath.fate for crash in crashes if not crash.known_issue]
    bad = Counter(fate for fate in fates if fate not in (*GOOD, Fate.UNKNOWN))
    known = len(crashes) - len(fates)
    outcomes = [(ExitCode.PASS, "every crash was survived" + (f", but for {known} of a known issue" if known else ""))]
    if bad:
        outcomes.append((ExitCode.FAIL, ", ".join(f"{count} {fate}" for fate, count in bad.items())))
    if unknown := fates.count(Fate.UNKNOWN):
        outcomes.append((ExitCode.UNKNOWN, f"what became of {unknown} crashes is unknown"))
    return outcomes


def write(record: SweepRecord, directory: Path) -> None:
    """Store ``sweep.json``."""
    (directory / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def show(record: SweepRecord, directory: Path, console: Console) -> None:
    """Print a row for each crash, and the outcome of all."""
    table = Table(box=None, padding=(0, 2, 0, 0), width=100)
    for column in ("stage", "who"):
        table.add_column(column, no_wrap=True)
    table.add_column("crashed", ratio=1)
    table.add_column("fate", no_wrap=True)
    table.add_column("from", justify="right", no_wrap=True)
    table.add_column("lost", justify="right", no_wrap=True)
    for crash in record.crashes:
        after = crash.aftermath
        fate = Text(after.fate, style="yellow" if crash.known_issue else COLOURS.get(after.fate, "red"))
        numbers = ["-" if number is None else str(number) for number in (after.resumed, after.lost_steps)]
        table.add_row(crash.point.stage, crash.point.who, Text(crash.point.words), fate, *numbers)
    console.print(table)
    for line in _told(record):
        console.print(line, highlight=False, markup=False)
    outcome = f"exit code {record.exit_code}: {record.reason}; {short(directory / NAME)}"
    console.print(outcome, highlight=False, markup=False)


def _told(record: SweepRecord) -> list[str]:
    """What a table does not say, each in a line."""
    lost = max((crash.aftermath.lost_steps or 0 for crash in record.crashes), default=0)
    counted = ", ".join(f"{count} {fate}" for fate, count in record.counts.items())
    kept = f"at most {lost} steps lost, saved every {record.checkpoint_every}"
    lines = [f"{len(record.crashes)} crashes: {counted}; {kept}"]
    odd = [crash for crash in record.crashes if crash.aftermath.fate not in GOOD and not crash.known_issue]
    lines += [f"{crash.point.stage}, {crash.point.who}, {crash.point.words}: {crash.aftermath.seen}" for crash in odd]
    known = sum(bool(crash.known_issue) for crash in record.crashes)
    return [*lines, f"{known} times the known issue: {KNOWN_ISSUE}"] if known else lines
