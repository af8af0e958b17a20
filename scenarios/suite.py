"""Running the scenarios of a suite one after the other: one table, one exit code, one record."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.exits import ExitCode, UsageError, worst
from chaos.history import NAME, History
from metrics.summary import Summary
from metrics.verdict import Verdict
from scenarios.request import Request
from scenarios.view import COLOURS, short

SCHEMA = 1


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """How one scenario of a suite ended; ``directory``: its run directory, below the suite's."""

    scenario: str
    verdict: str
    exit_code: int
    reason: str
    directory: str
    recovery_s: float | None
    lost_steps: int | None
    restarts: int
    wall_s: float


class SuiteRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of ``suite.json``."""

    schema: int
    suite: str
    exit_code: int
    asked: int
    members: list[Member]


@dataclass
class SuiteRun:
    """A suite under way in a directory of its own; ``run_one`` executes and judges one request."""

    name: str
    requests: list[Request]
    run_one: Callable[[Request], tuple[Summary, Path] | ExitCode]
    directory: Path
    members: list[Member] = field(default_factory=list, init=False)
    _controls: dict[str, Path] = field(default_factory=dict, init=False)

    def run(self) -> SuiteRecord:
        """Run member after member; an interruption ends the suite. The record is stored after each."""
        for request in self.requests:
            self.members.append(self._member(request))
            self._store()
            if self.members[-1].exit_code == ExitCode.ABORTED:
                break
        return self._store()

    def _member(self, request: Request) -> Member:
        """Run one; what cannot be stored or judged is a member all the same."""
        options = request.options.model_copy(update={"out": self.directory})
        shared = self._controls.get(request.workload_key)
        try:
            asked = replace(request, options=options, control_from=shared, began_s=time.time())
            outcome = self.run_one(asked)
        except UsageError as error:
            return without_verdict(request, ExitCode.ABORTED, str(error))
        if isinstance(outcome, ExitCode):
            return without_verdict(request, outcome, "the run could not be stored or judged")
        summary, directory = outcome
        if shared is None and is_sound_control(directory):
            self._controls[request.workload_key] = directory
        return member(summary, directory)

    def _store(self) -> SuiteRecord:
        codes = [ExitCode(m.exit_code) for m in self.members]
        if len(codes) < len(self.requests):
            codes.append(ExitCode.UNKNOWN)
        found = SuiteRecord(
            schema=SCHEMA,
            suite=self.name,
            exit_code=int(worst(codes)),
            asked=len(self.requests),
            members=self.members,
        )
        text = msgspec.json.format(msgspec.json.encode(found), indent=1)
        (self.directory / "suite.json").write_bytes(text + b"\n")
        return found


def make_directory(out: Path, name: str) -> Path:
    """A new directory for the runs of a suite.

    Raises UsageError when it cannot be made.
    """
    directory = out.absolute() / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-{uuid.uuid4().hex[:8]}"
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror or error}; name a directory that can be written") from error
    return directory


def member(summary: Summary, directory: Path) -> Member:
    """The line of a run in the suite's record."""
    whole = [r for r in summary.recoveries if not r.missing]
    return Member(
        scenario=summary.scenario,
        verdict=summary.verdict,
        exit_code=summary.exit_code,
        reason=summary.reason,
        directory=directory.name,
        recovery_s=max((r.total_s for r in whole), default=None),
        lost_steps=max((r.lost_steps or 0 for r in whole), default=None),
        restarts=summary.restarts,
        wall_s=summary.time.wall_s,
    )


def without_verdict(request: Request, code: ExitCode, reason: str) -> Member:
    """The line of a run that has no summary."""
    return Member(
        scenario=request.scenario.name,
        verdict=str(Verdict.UNKNOWN),
        exit_code=int(code),
        reason=reason,
        directory="",
        recovery_s=None,
        lost_steps=None,
        restarts=0,
        wall_s=0.0,
    )


def is_sound_control(directory: Path) -> bool:
    """Whether a run has a control run that may serve for others: only one that ended well."""
    control = directory / "control"
    ended = History.load(control).first("workload.exit") if (control / NAME).exists() else None
    return ended is not None and ended.data.get("code") == 0


def show(record: SuiteRecord, directory: Path, console: Console) -> None:
    """Print one row for each member, and the outcome of all."""
    table = Table(box=None, padding=(0, 2, 0, 0), width=100)
    for column, justify in (("scenario", "left"), ("verdict", "left")):
        table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for column in ("restarts", "recovery", "lost", "wall"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("why", ratio=1)
    for m in record.members:
        recovery = "-" if m.recovery_s is None else f"{m.recovery_s:.1f} s"
        lost = "-" if m.lost_steps is None else str(m.lost_steps)
        verdict = Text(m.verdict, style=COLOURS[m.verdict])
        why = Text("" if m.verdict == "pass" else m.reason)
        table.add_row(m.scenario, verdict, str(m.restarts), recovery, lost, f"{m.wall_s:.0f} s", why)
    console.print(table)
    passed = sum(m.verdict == "pass" for m in record.members)
    console.print(
        f"{passed} of {record.asked} passed; exit code {record.exit_code}; {short(directory / 'suite.json')}",
        highlight=False,
        soft_wrap=True,
    )
