"""What is judged of a user's own script: the content of its checkpoints against the control run's, at the same step.

A script that does not repeat itself bit by bit differs from its control run without any fault. So a difference counts
only where two undisturbed stretches are equal: a checkpoint from before the fault, or a second undisturbed run.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from chaos.history import NAME, Event, History
from metrics.attempts import Attempt, after_fault, attempts_of
from metrics.checkpoints.content import storage_of
from metrics.checkpoints.dcp import BadCheckpoint
from metrics.checkpoints.foreign import differences
from metrics.verdict import Case, Finding, Verdict

AGAIN = "again"
"""The folder of the second undisturbed run, where one was made."""

SHOWN = 20


def check_content(case: Case, name: str) -> Finding:
    """Checkpoints stored after the fault hold what the control run's of the same steps hold, bitwise."""
    expected = "checkpoints stored after the fault equal the control run's of the same step, value by value"
    if not _commits(case.attempts):
        seen = "the script reported no checkpoint: ray.train.report(metrics, checkpoint=...) makes one"
        return Finding(name, Verdict.NOT_APPLICABLE, expected, seen)
    if resized(case):
        seen = "world sizes differ, so sums were taken in another order: values need not be equal bit by bit"
        return Finding(name, Verdict.NOT_APPLICABLE, expected, seen)
    before, after = _both(case)
    if not after:
        seen = f"no step after the fault of which both have a checkpoint: the run has {_listed(_ours(case))}, "
        return Finding(name, Verdict.UNKNOWN, expected, f"{seen}the control run {_listed(_theirs(case))}")
    try:
        return _compared(case, name, expected, before, after)
    except BadCheckpoint as error:
        return Finding(name, Verdict.UNKNOWN, expected, f"a checkpoint cannot be compared: {error}", where="storage")


def resized(case: Case) -> bool:
    """Whether groups of more than one size trained, the control run's among them."""
    return len({attempt.world_size for attempt in (*case.attempts, *case.control_attempts)}) > 1


def _both(case: Case) -> tuple[list[int], list[int]]:
    """The steps of which both have a checkpoint: committed before the first fault fired, and by what came after it.

    What the attempt that a fault hit still committed is neither: it says nothing of the recovery.
    """
    fired = min((event.wall_ns for event in case.history.select("fault.fired")), default=0)
    commits, both = _commits(case.attempts), sorted(_ours(case).keys() & _theirs(case).keys())
    before = [step for step in both if commits[step].wall_ns < fired]
    later = {attempt.number for attempt in after_fault(case.attempts)}
    return before, [step for step in both if step not in before and commits[step].attempt in later]


def _compared(case: Case, name: str, expected: str, before: list[int], after: list[int]) -> Finding:
    ours, theirs, again = _ours(case), _theirs(case), _again(case)
    for step in before:
        if found := differences(ours[step], theirs[step]):
            return _not_repeatable(name, expected, f"already at step {step}, before the fault: {found[0]}")
    for step in after:
        if not (found := differences(ours[step], theirs[step])):
            continue
        if step in again and (noise := differences(again[step], theirs[step])):
            return _not_repeatable(name, expected, f"at step {step}, between two undisturbed runs: {noise[0]}")
        many = f"{len(found)} values differ" if len(found) > 1 else "1 value differs"
        seen = f"at step {step} {many} from the control run's, first {found[0]}"
        where = f"storage/{ours[step].parent.name}/{ours[step].name}"
        evidence = {"step": step, "values": [gap.name for gap in found[:SHOWN]]}
        if not before and step not in again:
            seen += "; whether the script repeats itself without a fault is not known"
            return Finding(name, Verdict.UNKNOWN, expected, seen, where=where, evidence=evidence)
        return Finding(name, Verdict.FAIL, expected, seen, where=where, evidence=evidence)
    return Finding(name, Verdict.PASS, expected, f"checkpoints of step {_listed(after)} equal, bitwise")


def _not_repeatable(name: str, expected: str, where: str) -> Finding:
    seen = (
        f"the script does not repeat itself: values differ {where}; seed it, and have it use deterministic algorithms"
    )
    return Finding(name, Verdict.UNKNOWN, expected, seen)


def told_apart(case: Case) -> bool:
    """Whether only a second undisturbed run can tell if a difference of content is due to the fault."""
    before, after = _both(case)
    if before or resized(case) or (case.directory / AGAIN).exists():
        return False
    ours, theirs = _ours(case), _theirs(case)
    try:
        return any(differences(ours[step], theirs[step]) for step in after)
    except BadCheckpoint:
        return False


def _ours(case: Case) -> dict[int, Path]:
    return on_disk(case.directory, case.history, case.attempts)


def _theirs(case: Case) -> dict[int, Path]:
    return on_disk(case.directory / "control", case.control, case.control_attempts) if case.control else {}


def _again(case: Case) -> dict[int, Path]:
    folder = case.directory / AGAIN
    if not (folder / NAME).exists():
        return {}
    history = History.load(folder)
    attempts = attempts_of(history)
    if {attempt.world_size for attempt in attempts} != {attempt.world_size for attempt in case.control_attempts}:
        return {}
    return on_disk(folder, history, attempts)


def on_disk(directory: Path, history: History, attempts: list[Attempt]) -> dict[int, Path]:
    """The committed checkpoints that are on disk, by step."""
    storage = storage_of(directory, history)
    commits = _commits(attempts).items()
    folders = {step: storage / str(commit.data["checkpoint"]) for step, commit in commits} if storage else {}
    return {step: folder for step, folder in folders.items() if folder.is_dir()}


def _commits(attempts: list[Attempt]) -> dict[int, Event]:
    """The last commit of each step."""
    commits = (commit for attempt in attempts for commit in attempt.commits)
    return {commit.step: commit for commit in commits if commit.step is not None}


def _listed(steps: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(steps))) or "none"
