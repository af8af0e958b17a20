"""What is told of a finished run beyond its summary: read from stored events and files, None where they do not tell."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from chaos.exits import UsageError
from chaos.history import Event, History
from metrics import recovery
from metrics.budgets import restarts_by_class
from metrics.checkpoints import content
from metrics.expectations import parse
from metrics.summary import Summary
from metrics.verdict import Case, Verdict

REFERENCE_STRATEGY = "fsdp"
"""How the reference trainer shards its model, where its settings name no strategy."""

STORED = "checkpoints"
"""The check that reads back and compares the checkpoints kept."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One finished run. Times in seconds; None, or an empty collection, for what its history does not tell.

    ``faults``: how many were ``armed``, ``fired`` and ``confirmed``, by name. ``detections``: the fault and how long
    the controller took to act on it, also where the recovery is not whole. ``restarts``: by class. ``saves``,
    ``commits``: how long each checkpoint took, see ``save_times``. ``verifying_s``: how long the checkpoints kept were
    read and compared. ``checkpoint_bytes``: of the one committed last. ``budget_s``: what a recovery may take.
    """

    summary: Summary
    finished_s: float
    strategy: str = REFERENCE_STRATEGY
    faults: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    detections: tuple[tuple[str, float], ...] = ()
    restarts: Mapping[str, int] = field(default_factory=dict)
    saves: tuple[float, ...] = ()
    commits: tuple[float, ...] = ()
    verifying_s: float | None = None
    checkpoint_bytes: int | None = None
    budget_s: float | None = None
    heal_errors: int | None = None


def facts(case: Case, summary: Summary) -> Facts:
    """Gather what is told of a stored run that has been judged."""
    history = case.history
    healed = history.select("run.healed")
    return Facts(
        summary=summary,
        finished_s=history.events[-1].wall if history.events else 0.0,
        strategy=str(case.record.settings.get("strategy", REFERENCE_STRATEGY)),
        faults=_faults(history),
        detections=_detections(case),
        restarts=restarts_by_class(case) if history.first("controller.start") else {},
        saves=save_times(case),
        commits=commit_times(case),
        verifying_s=_verifying_s(history, summary),
        checkpoint_bytes=_checkpoint_bytes(case),
        budget_s=_budget_s(summary.expect),
        heal_errors=sum(len(event.data.get("errors", ())) for event in healed) if healed else None,
    )


def _faults(history: History) -> dict[str, Counter[str]]:
    """Injections armed, fired and confirmed, each counted once, by the name of their fault."""
    names = {_injection(event): str(event.data.get("fault")) for event in history.select("fault.armed")}
    found: dict[str, Counter[str]] = {name: Counter() for name in names.values()}
    for state in ("armed", "fired", "confirmed"):
        for injection in {_injection(event) for event in history.select(f"fault.{state}")} & names.keys():
            found[names[injection]][state] += 1
    return found


def _injection(event: Event) -> str:
    return str(event.data.get("injection"))


def _detections(case: Case) -> tuple[tuple[str, float], ...]:
    found = [(str(one.fired[0].data.get("fault")), phase) for one in recovery.recoveries(case) for phase in one.phases]
    return tuple((fault, phase.seconds) for fault, phase in found if phase.name == "detect")


def save_times(case: Case) -> tuple[float, ...]:
    """From each step complete on every rank to its checkpoint handed over by every rank, in seconds.

    A save that a fault cut short is none. Of a save beside the training it is the part for which the training waits.
    """
    saved = {_place(event) for event in case.history.select("checkpoint.transfer.begin")}
    handed: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for event in case.history.select("report.end"):
        if _place(event) in saved and event.rank is not None:
            handed[_place(event)][event.rank] = event.wall_ns
    found = []
    for attempt in case.attempts:
        for step, end_ns in attempt.complete.items():
            ranks = handed.get((attempt.number, step), {})
            if len(ranks) >= attempt.world_size:
                found.append((max(ranks.values()) - end_ns) / 1e9)
    return tuple(found)


def commit_times(case: Case) -> tuple[float, ...]:
    """From each step complete on every rank to its checkpoint counting, in seconds: until then a fault costs it."""
    return tuple(
        (commit.wall_ns - attempt.complete[commit.step]) / 1e9
        for attempt in case.attempts
        for commit in attempt.commits
        if commit.step in attempt.complete
    )


def _place(event: Event) -> tuple[int, int]:
    return event.attempt or 0, event.step or 0


def _verifying_s(history: History, summary: Summary) -> float | None:
    """How long the fresh run's check of its checkpoints took; None where it came to no verdict or was not timed."""
    judged = history.first("run.judged")
    decided = {check.name for check in summary.checks if check.verdict in (Verdict.PASS, Verdict.FAIL)}
    return judged.data.get("seconds", {}).get(STORED) if judged and STORED in decided else None


def _checkpoint_bytes(case: Case) -> int | None:
    """Bytes of all files of the checkpoint committed last; None where it is not in reach."""
    commits, storage = content.kept(case), content.storage_of(case.directory, case.history)
    if not commits or storage is None:
        return None
    folder = storage / str(commits[-1].data["checkpoint"])
    return content.size_of(folder) if folder.is_dir() else None


def _budget_s(expect: str) -> float | None:
    """What ``recovers(within=...)`` allows; None where a scenario expects no recovery, or either of two outcomes."""
    try:
        checks: dict[str, Any] = dict(parse(expect).checks)
    except UsageError:
        return None
    check = checks.get(recovery.CHECK)
    return float(check.keywords["bound"]) if isinstance(check, partial) else None
