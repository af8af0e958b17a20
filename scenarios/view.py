"""What a user sees while a run goes on and when it is over."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live as LiveDisplay
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from chaos.healing import InPlace
from chaos.history import Event
from chaos.live import Live
from metrics.goodput import told
from metrics.recovery import PHASES
from metrics.summary import BudgetRecord, CheckRecord, RecoveryRecord, Summary
from scenarios.doctor import Diagnosis

COLOURS = {"pass": "green", "fail": "red", "unknown": "yellow", "not-applicable": "dim", "skipped": "dim"}
WIDTH = 100

DOING = {
    "cluster": "start the cluster",
    "launch": "launch the training script",
    "steady": "wait for the first step on every rank",
    "inject": "train up to the fault",
    "recover": "wait for the recovery",
    "wait": "watch a job that lacks capacity",
    "finish": "train to the end",
    "control": "the same run without a fault",
    "again": "once more without a fault: is the script deterministic?",
    "heal": "undo everything",
    "judge": "judge the stored run",
    "record": "an undisturbed run, its calls on files noted",
    "ranks": "crash the ranks, one point after the other",
    "controller": "crash the controller, and start the job again",
}


class PatientConsole(Console):
    """A console that goes quiet when nobody reads it any more, instead of ending the process: a run is not its view."""

    def on_broken_pipe(self) -> None:
        """Write to nowhere from now on."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class Progress:
    """An observer that shows the phases of a run: live on a terminal, one line each elsewhere, nothing if quiet."""

    def __init__(self, console: Console, title: str, steps: int, quiet: bool = False) -> None:
        self._console = console
        self._title = title
        self._steps = steps
        self._quiet = quiet
        self._live = Live()
        self._phases: list[tuple[str, float]] = []
        self._missed: set[str] = set()
        self._display = LiveDisplay(console=console, get_renderable=self._render, refresh_per_second=8, transient=True)

    def __enter__(self) -> Progress:
        if not self._quiet:
            self._console.print(Text(self._title, style="bold"))
            if self._console.is_terminal:
                self._display.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._display.stop()
        if not self._quiet and self._console.is_terminal:
            self._console.print(self._table(done=True))

    def __call__(self, event: Event) -> None:
        """Take in an event of the run."""
        self._live(event)
        if event.kind == "run.phase":
            self.phase(str(event.data["phase"]))
        elif event.kind in ("run.phase.missed", "run.aborted", "run.failed", "run.bug") and self._phases:
            self._missed.add(self._phases[-1][0])
        if not self._quiet and not self._console.is_terminal:
            self._line(event)

    def phase(self, name: str) -> None:
        """A phase begins."""
        self._phases.append((name, time.monotonic()))

    def _line(self, event: Event) -> None:
        match event.kind:
            case "run.phase":
                self._console.print(f"  {event.data['phase']:<8} {DOING.get(event.data['phase'], '')}", highlight=False)
            case "fault.fired":
                where = f"rank {event.rank}, {event.data['phase']}, step {event.step}"
                self._console.print(f"           {event.data['fault']} fired: {where}", highlight=False)
            case "fault.confirmed":
                text = f"           confirmed: {event.data['evidence']}"
                self._console.print(text, highlight=False, soft_wrap=True, markup=False)
            case "controller.state" if event.data["to"] != "RUNNING" or event.attempt:
                self._console.print(f"           controller: {event.data['to']}", highlight=False)

    def _render(self) -> RenderableType:
        return Group(self._table(done=False), self._status())

    def _table(self, *, done: bool) -> Table:
        table = Table.grid(padding=(0, 2))
        now = time.monotonic()
        for i, (name, begin) in enumerate(self._phases):
            last = i == len(self._phases) - 1
            end = now if last else self._phases[i + 1][1]
            reached = Text("✗", style="red") if name in self._missed else Text("✓", style="green")
            mark = Spinner("dots") if last and not done else reached
            table.add_row(mark, name, Text(DOING.get(name, ""), style="dim"), f"{end - begin:6.1f} s")
        return table

    def _status(self) -> Text:
        live = self._live
        steps = f"{live.step}/{self._steps}" if self._steps else str(live.step)
        text = f"   attempt {live.attempt} · step {steps} · {live.state or 'not started'}"
        if live.committed:
            text += f" · last checkpoint {live.committed}"
        return Text(text, style="cyan")


def show(summary: Summary, directory: Path, console: Console) -> None:
    """Print the phases, the checks with their evidence, the time, and where to read more."""
    for recovery in summary.recoveries:
        console.print(_recovery_table(recovery))
        console.print(_recovery_line(recovery), highlight=False, soft_wrap=True)
        if line := _return_line(recovery):
            console.print(line, highlight=False, soft_wrap=True, markup=False)
    console.print()
    console.print(finding_table(summary.checks))
    t = summary.time
    console.print(
        f"time     {t.wall_s:.1f} s: cluster start {t.cluster_start_s:.1f}, training and recovery {t.workload_s:.1f}, "
        f"control run {t.control_s:.1f}, harness {t.harness_s:.1f} ({t.harness_share:.1%})",
        highlight=False,
    )
    if job := summary.goodput:
        console.print(f"goodput  {job.share:.1%} of {job.wall_s:.1f} s: {told(job.seconds.items())}", highlight=False)
    if spent := [budget for budget in summary.budgets if budget.spent]:
        console.print(f"budgets  {_budget_line(spent)}", highlight=False)
    colour = COLOURS[summary.verdict]
    console.print(Text.assemble("verdict  ", (summary.verdict, f"bold {colour}"), f": {summary.reason}"))
    if summary.known_issue:
        console.print(f"known issue: {summary.known_issue}", highlight=False, style="dim", markup=False)
    console.print(f"report   {short(directory / 'report.html')}", highlight=False, soft_wrap=True, markup=False)
    if summary.verdict != "pass":
        console.print(f"repeat   {summary.repeat}", highlight=False, soft_wrap=True, markup=False)


def short(path: Path) -> str:
    """The path from here, where it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _budget_line(budgets: Iterable[BudgetRecord]) -> str:
    """What was spent of each, in words."""
    allowed = {None: "an unknown number", -1: "any number"}
    return ", ".join(f"{b.name} {b.spent} of {allowed.get(b.allowed, b.allowed)}" for b in budgets)


def _recovery_table(recovery: RecoveryRecord) -> Table:
    where = f"after step {recovery.step}" if recovery.phase == "step" else f"in {recovery.phase}, step {recovery.step}"
    title = f"recovery from {recovery.fault} of rank {recovery.rank} {where}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    table.add_column("last", justify="right")
    table.add_column("what it spans", style="dim")
    for phase in recovery.phases:
        last = "" if phase.rank is None else f"rank {phase.rank}"
        table.add_row(phase.name, f"{phase.seconds:.3f}", last, PHASES[phase.name])
    table.add_row("total", f"{recovery.total_s:.3f}", "", "", style="bold")
    return table


def _recovery_line(recovery: RecoveryRecord) -> str:
    if recovery.missing:
        return f"the end of '{recovery.missing}' was never seen"
    where = f"step {recovery.resume_step}" if recovery.resume_step else "step 0, no checkpoint was committed before"
    return (
        f"resumed from {where}; {recovery.lost_steps} steps and {recovery.lost_samples} samples lost "
        f"({recovery.step_before} steps were complete)"
    )


def _return_line(recovery: RecoveryRecord) -> str:
    """What the controller acted on, and when steps were made again; empty where nothing is known of either."""
    told = [f"the controller acted on {recovery.cause}"] if recovery.cause else []
    if recovery.first_step_s is not None:
        told.append(f"first step again after {recovery.first_step_s:.1f} s")
    if recovery.usual_step_s is not None:
        told.append(f"at its usual pace after {recovery.usual_step_s:.1f} s")
    return "; ".join(told)


def finding_table(checks: Iterable[CheckRecord]) -> Table:
    """A table of checks with their verdicts and what was seen; what was expected, where it was not."""
    table = Table(box=None, padding=(0, 2, 0, 0), width=WIDTH)
    table.add_column("check", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("seen", ratio=1)
    for check in checks:
        seen = check.seen
        if check.verdict in ("fail", "unknown"):
            seen += f"\nexpected: {check.expected}" + (f"\nsee {check.where}" if check.where else "")
        table.add_row(check.name, Text(check.verdict, style=COLOURS[check.verdict]), Text(seen))
    return table


STATES = {"ok": "green", "limited": "yellow", "missing": "red"}


def show_diagnosis(found: Diagnosis, console: Console) -> None:
    """Print what the machine permits, and what the rest costs."""
    table = Table(box=None, padding=(0, 2, 0, 0), width=WIDTH)
    for column in ("need", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("seen", ratio=1)
    for finding in found.findings:
        seen = finding.seen + (f"\n{finding.remedy}" if finding.remedy else "")
        table.add_row(finding.name, Text(finding.state, style=STATES[finding.state]), Text(seen))
    console.print(table)
    for scenario, needs in found.cannot_run.items():
        console.print(f"{scenario} cannot run here: {', '.join(needs)}", highlight=False)
    if not found.cannot_run:
        console.print("every scenario can run here" if found.well else "no scenario can run here", highlight=False)


def show_status(found: list[InPlace], console: Console) -> None:
    """Print what is in place of each run."""
    if not found:
        console.print("nothing is in place")
    for run in found:
        size = f"owner {run.owner}, {len(run.processes)} processes"
        console.print(f"run {run.run_id}: {run.state}, {size}", highlight=False)
        if run.stopped:
            console.print(f"  stopped: {', '.join(map(str, run.stopped))}", highlight=False)
        for entry in run.entries:
            console.print(f"  open: {entry}", highlight=False, soft_wrap=True)
        if run.left_s is not None:
            console.print(f"  its watcher heals in {max(0.0, run.left_s):.0f} s at the latest", highlight=False)
