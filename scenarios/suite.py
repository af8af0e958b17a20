"""Running the scenarios of a suite one after the other: one table, one exit code, one record."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos import driving
from chaos.exits import ExitCode, UsageError, worst
from chaos.history import NAME as HISTORY
from chaos.history import Event, History
from chaos.ledger import NAME as LEDGER
from chaos.ledger import Account
from chaos.process import current
from chaos.watch import ignore_signals, interrupt_by_signals, restore_signals
from metrics import junit, prometheus
from metrics.summary import Summary
from metrics.verdict import Verdict
from scenarios.learning import Unfit
from scenarios.request import Request
from scenarios.testbed import Pool, StillStanding
from scenarios.view import COLOURS, short

SCHEMA = 2
NAME = "suite.json"
SKIPPED = "skipped"
"""The verdict of a member that this machine or the user's script does not permit; it has no part in the outcome."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Where wall-clock time went, in seconds. ``recovery_s`` is part of ``workload_s``; the others sum to the whole."""

    wall_s: float = 0.0
    cluster_start_s: float = 0.0
    workload_s: float = 0.0
    control_s: float = 0.0
    recovery_s: float = 0.0
    harness_s: float = 0.0


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
    spent: Spent


class SuiteRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of ``suite.json``.

    ``asked``: the scenarios, in order. ``options``: as given on the command line. ``controls``: run directories whose
    control run serves for others, by workload. ``clusters``: how many were started. ``left``: what could not be undone
    at the end of a shared cluster. ``wall_s``: of the whole suite, its interruptions left out.
    """

    schema: int
    suite: str
    exit_code: int
    asked: list[str]
    options: dict[str, Any]
    members: list[Member]
    controls: dict[str, str]
    clusters: int
    left: list[str]
    wall_s: float

    @property
    def spent(self) -> Spent:
        """The members' times in all; what no member accounts for is the harness's."""
        fields = ("cluster_start_s", "workload_s", "control_s", "recovery_s")
        sums = {name: sum(getattr(member.spent, name) for member in self.members) for name in fields}
        known = sums["cluster_start_s"] + sums["workload_s"] + sums["control_s"]
        return Spent(wall_s=self.wall_s, harness_s=self.wall_s - known, **sums)


Outcome = tuple[Summary, Path] | ExitCode
RunOne = Callable[[Request, Pool | None], Outcome]
"""Executes and judges one request on a cluster of the pool, or on its own where there is none."""


@dataclass
class SuiteRun:
    """A suite under way in a directory of its own.

    ``share``: whether members share clusters and control runs. ``before``: the record of a suite that is resumed.
    ``skipped``: members that this machine does not permit, with the reason.
    """

    name: str
    requests: list[Request]
    run_one: RunOne
    directory: Path
    options: dict[str, Any] = field(default_factory=dict)
    share: bool = True
    before: SuiteRecord | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict, init=False)
    _controls: dict[str, str] = field(default_factory=dict, init=False)
    _left: list[str] = field(default_factory=list, init=False)
    _interrupted: bool = field(default=False, init=False)
    _began: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        self._pool = Pool(self.directory)
        if self.before is not None:
            self.members = {m.scenario: m for m in finished(self.before)}
            known = self.before.controls.items()
            self._controls = {key: run for key, run in known if is_sound_control(self.directory / run)}
            self._pool.starts = self.before.clusters
            self._left = list(self.before.left)

    def run(self) -> SuiteRecord:
        """Run member after member; an interruption ends the suite. The record is stored at the start and after each."""
        self._store()
        driving.tell(self.directory)
        try:
            for request in self._in_order():
                interrupt_by_signals()
                self.members[request.scenario.name] = found = self._member(request)
                self._store()
                if self._interrupted or found.exit_code == ExitCode.ABORTED:
                    break
        except KeyboardInterrupt:
            self._interrupted = True  # between two members, or while one is judged
        finally:
            ignore_signals()
            self._left += self._pool.close()
            restore_signals()
        return self._store()

    def _in_order(self) -> list[Request]:
        """Those to be run, members of one cluster together, in the order of the suite otherwise."""
        keys = [request.cluster_key for request in self.requests]  # asked once: one may depend on the free memory
        ordered = sorted(range(len(keys)), key=lambda place: keys.index(keys[place]))
        return [self.requests[place] for place in ordered if self.requests[place].scenario.name not in self.members]

    def _member(self, request: Request) -> Member:
        """Run one; what cannot be stored or judged is a member all the same."""
        options = request.options.model_copy(update={"out": self.directory})
        if reason := self.skipped.get(request.scenario.name):
            return without_verdict(request, ExitCode.PASS, reason, SKIPPED)
        shared = self._controls.get(request.workload_key)
        source = self.directory / shared if shared else None
        asked = replace(request, options=options, control_from=source, began_s=time.time())
        try:
            outcome = self.run_one(asked, self._pool if self.share else None)
        except Unfit as reason:
            return without_verdict(request, ExitCode.PASS, str(reason), SKIPPED)
        except UsageError as error:
            return without_verdict(request, ExitCode.ABORTED, str(error))
        except StillStanding as error:
            return without_verdict(request, ExitCode.NOT_HEALED, str(error))
        if isinstance(outcome, ExitCode):
            return without_verdict(request, outcome, "the run could not be stored or judged")
        summary, directory = outcome
        self._interrupted |= first_event(directory, "run.aborted") is not None  # whatever its exit code tells
        if self.share and shared is None and is_sound_control(directory):
            self._controls[request.workload_key] = directory.name
        return member(summary, directory)

    def _store(self) -> SuiteRecord:
        asked = [request.scenario.name for request in self.requests]
        members = [self.members[name] for name in asked if name in self.members]
        codes = [ExitCode(m.exit_code) for m in members if m.verdict != SKIPPED]
        lacking = len(members) < len(asked) or (
            self.options.get("strict") and any(m.verdict == SKIPPED for m in members)
        )
        codes += [ExitCode.UNKNOWN] if lacking else []
        codes += [ExitCode.NOT_HEALED] if self._left else []
        codes += [ExitCode.ABORTED] if self._interrupted else []
        earlier = self.before.wall_s if self.before else 0.0
        found = SuiteRecord(
            schema=SCHEMA,
            suite=self.name,
            exit_code=int(worst(codes)),
            asked=asked,
            options=self.options,
            members=members,
            controls=self._controls,
            clusters=self._pool.starts,
            left=self._left,
            wall_s=earlier + time.monotonic() - self._began,
        )
        store(found, self.directory)
        return found


def store(record: SuiteRecord, directory: Path) -> None:
    """Write ``suite.json``, at once, one ``junit.xml`` of all members, also of those that have no run, and metrics."""
    text = msgspec.json.format(msgspec.json.encode(record), indent=1)
    scratch = directory / f".{NAME}"
    scratch.write_bytes(text + b"\n")
    scratch.replace(directory / NAME)
    files = [directory / m.directory / "junit.xml" for m in record.members if m.directory]
    alone = [m for m in record.members if not m.directory]
    skipped = {m.scenario: m.reason for m in alone if m.verdict == SKIPPED}
    errors = {m.scenario: m.reason for m in alone if m.verdict != SKIPPED}
    known = {m.scenario for m in record.members}
    errors |= {name: "not run" for name in record.asked if name not in known}
    junit.merge(files, directory / "junit.xml", errors, skipped)
    told = [directory / m.directory / "metrics.prom" for m in record.members if m.directory]
    prometheus.merge(told, facts(record), directory / "metrics.prom")


def facts(record: SuiteRecord) -> prometheus.SuiteFacts:
    """What only the suite as a whole knows, for Prometheus."""
    found = Counter(member.verdict for member in record.members)
    return prometheus.SuiteFacts(
        suite=record.suite,
        exit_code=record.exit_code,
        finished_s=time.time(),
        verdicts={verdict: found[verdict] for verdict in (*prometheus.VERDICTS, SKIPPED)},
        skipped=tuple(member.scenario for member in record.members if member.verdict == SKIPPED),
    )


def to_resume(out: Path, name: str, options: dict[str, Any], asked: list[str]) -> tuple[Path, SuiteRecord]:
    """The newest suite of that name below ``out``, which must be unfinished and asked for with the same options.

    Raises UsageError naming what differs.
    """
    found = sorted(out.absolute().glob(f"????????-??????-{name}-????????/{NAME}"))
    if not found:
        raise UsageError(f"--resume: no run of {name} below {out}; leave --resume out, or name its --out")
    file = found[-1]
    try:
        record = msgspec.json.decode(file.read_bytes(), type=SuiteRecord)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"--resume: {short(file)} cannot be read: {error}; start again without --resume") from error
    _check_resumable(record, file, options, asked)
    return file.parent, record


def _check_resumable(record: SuiteRecord, file: Path, options: dict[str, Any], asked: list[str]) -> None:
    way_out = "resume with the same options, or start again without --resume"
    keys = sorted(record.options.keys() | options.keys())
    if odd := [key for key in keys if record.options.get(key) != options.get(key)]:
        told = ", ".join(f"{key}={options.get(key)} (was {record.options.get(key)})" for key in odd)
        raise UsageError(f"--resume: {short(file)} was run with other options: {told}; {way_out}")
    if record.asked != asked:
        raise UsageError(f"--resume: {short(file)} was asked for {', '.join(record.asked)}; {way_out}")
    if len(finished(record)) == len(asked):
        raise UsageError(f"--resume: {short(file)} is finished; start again without --resume")
    if owner := next((pid for pid in map(_living_owner, file.parent.glob(f"*/{LEDGER}")) if pid), 0):
        raise UsageError(f"--resume: {short(file)} is still running as process {owner}; wait for its end, or end it")


def _living_owner(ledger: Path) -> int:
    """The pid of another harness that owns a ledger and lives; 0 for none."""
    try:
        owner = Account.read(ledger).owner
    except (OSError, ValueError):
        return 0
    return owner.pid if owner.alive() and owner != current() else 0


def finished(record: SuiteRecord) -> list[Member]:
    """The members that are over; one that was aborted is not."""
    return [member for member in record.members if member.exit_code != ExitCode.ABORTED]


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
        spent=Spent(
            wall_s=summary.time.wall_s,
            cluster_start_s=summary.time.cluster_start_s,
            workload_s=summary.time.workload_s,
            control_s=summary.time.control_s,
            recovery_s=sum(r.total_s for r in whole),
            harness_s=summary.time.harness_s,
        ),
    )


def without_verdict(request: Request, code: ExitCode, reason: str, verdict: str = str(Verdict.UNKNOWN)) -> Member:
    """The line of a run that has no summary."""
    return Member(
        scenario=request.scenario.name,
        verdict=verdict,
        exit_code=int(code),
        reason=reason,
        directory="",
        recovery_s=None,
        lost_steps=None,
        restarts=0,
        spent=Spent(),
    )


def first_event(directory: Path, kind: str) -> Event | None:
    """The first event of a kind in a stored history; None where there is none, or no history."""
    return History.load(directory).first(kind) if (directory / HISTORY).exists() else None


def is_sound_control(directory: Path) -> bool:
    """Whether a run has a control run that may serve for others: only one that ended well."""
    ended = first_event(directory / "control", "workload.exit")
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
        table.add_row(m.scenario, verdict, str(m.restarts), recovery, lost, f"{m.spent.wall_s:.0f} s", why)
    console.print(table)
    count = Counter(m.verdict for m in record.members)
    missing = len(record.asked) - len(finished(record))
    lines = [_told(record)]
    lines += [f"could not be undone: {'; '.join(record.left)}"] if record.left else []
    lines += [f"{missing} not run to the end: the same command with --resume goes on"] if missing else []
    for line in lines:
        console.print(line, highlight=False, markup=False)
    passed = f"{count['pass']} of {len(record.asked)} passed" + f", {count[SKIPPED]} skipped" * bool(count[SKIPPED])
    summary = f"{passed}; exit code {record.exit_code}; {short(directory / NAME)}"
    console.print(summary, highlight=False, soft_wrap=True, markup=False)


def _told(record: SuiteRecord) -> str:
    """Where the time went, and how many members started a cluster or made a control run, for others too or not."""
    spent, parts = record.spent, [member.spent for member in record.members]
    clusters, controls = sum(part.cluster_start_s > 0 for part in parts), sum(part.control_s > 0 for part in parts)
    return (
        f"{spent.wall_s:.0f} s: cluster starts ({clusters}) {spent.cluster_start_s:.0f}, training "
        f"{spent.workload_s:.0f} (recoveries {spent.recovery_s:.0f}), control runs ({controls}) {spent.control_s:.0f}, "
        f"harness {spent.harness_s:.0f}"
    )
