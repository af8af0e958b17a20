"""Against the control run: the same seed and configuration, no fault. Whatever differs, the fault changed.

Bitwise where the world size never changed. Across a resize sums are taken in another order, so values are compared
within a tolerance: the trajectory by step over all ranks, the state by its numbers in the checkpoints on disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.history import Event
from metrics.attempts import after_fault, by_step, effective_steps
from metrics.checkpoints.content import differing, saved_parts
from metrics.checkpoints.dcp import BadCheckpoint
from metrics.checkpoints.values import Gap, distance, gaps
from metrics.continuity import by_rank, effective, sample_ids
from metrics.scripts import check_content, on_disk
from metrics.verdict import Case, Finding, Verdict, untold


def _unusable(case: Case) -> str:
    """Why nothing can be compared with the control run; empty when it is sound."""
    if case.control is None:
        return "there is no control run"
    if case.control.unreadable:
        return f"the control run's history has {case.control.unreadable} unreadable lines"
    ended = case.control.first("workload.exit")
    if ended is None or ended.data.get("code") != 0:
        return "the control run did not end well"
    if len(case.control_attempts) != 1:
        return f"the control run had {len(case.control_attempts)} attempts, so it is no control"
    return ""


def _without_control(case: Case, name: str, expected: str) -> Finding | None:
    """The answer where there is nothing to compare with; None where there is."""
    if case.control is None and not case.record.control:
        return Finding(name, Verdict.NOT_APPLICABLE, expected, "no control run was asked for; --control makes one")
    reason = _unusable(case)
    return Finding(name, Verdict.UNKNOWN, expected, reason) if reason else None


def check_trajectory(case: Case, within: float | None = None) -> Finding:
    """Loss, learning rate and samples of every effective step equal the control run's, on every rank, bitwise.

    With ``within`` they are compared by step: mean loss and mean learning rate over the ranks must differ by no more,
    the samples of all ranks together must be the same.
    """
    name, expected = "trajectory", "loss, learning rate and samples of each step equal the control run's"
    if within is not None:
        expected = f"mean loss, learning rate and samples of each step equal the control run's, within {within:g}"
    if finding := _without_control(case, name, expected):
        return finding
    return _same_trajectory(case, name, expected) if within is None else _near_trajectory(case, name, expected, within)


def _same_trajectory(case: Case, name: str, expected: str) -> Finding:
    ours, theirs = by_rank(case), effective_steps(case.control_attempts)
    ranks = [
        _Compared.of(rank, ours.get(rank, []), theirs.get(rank, [])) for rank in sorted(ours.keys() | theirs.keys())
    ]
    steps = {step for rank in ranks for step in rank.steps}
    if not steps:
        return Finding(name, Verdict.UNKNOWN, expected, "no step to compare")
    if differences := sorted(rank.difference for rank in ranks if rank.difference):
        step, which, words = differences[0]
        if case.record.script and step <= _hit(case):
            seen = f"the script does not repeat itself: step {step}, before the fault, rank {which}: {words}"
            return Finding(name, Verdict.UNKNOWN, expected, seen)
        return Finding(name, Verdict.FAIL, expected, f"first difference at step {step}, rank {which}: {words}")
    losses = any(rank.losses for rank in ranks)
    if not losses and not (case.record.script and any(rank.rates for rank in ranks)):
        return untold(case, name, expected, "the workload told of no loss (observe.loss)", "observe.loss(loss.item())")
    if odd := sorted((rank.lone, rank.rank) for rank in ranks if rank.lone is not None):
        return Finding(
            name, Verdict.FAIL, expected, f"only one of the two runs has step {odd[0][0]} of rank {odd[0][1]}"
        )
    told = sum(bool(rank.steps) for rank in ranks)
    what = "" if losses else "learning rate of "
    return Finding(name, Verdict.PASS, expected, f"{what}{len(steps)} steps on {told} ranks equal, bitwise")


def _hit(case: Case) -> int:
    """The last step of the first attempt that was complete on all ranks when a fault fired; 0 where it was redone."""
    fired = min((event.wall_ns for event in case.history.select("fault.fired")), default=0)
    kept = [event for events in by_rank(case).values() for event in events]
    return max((event.step or 0 for event in kept if event.wall_ns < fired), default=0)


@dataclass(frozen=True)
class _Compared:
    """A rank's steps in both runs, the first that is in one only, the first that differs, what was told of them."""

    rank: int
    steps: list[int]
    lone: int | None
    difference: tuple[int, int, str] | None
    losses: bool
    rates: bool

    @classmethod
    def of(cls, rank: int, mine: list[Event], control: list[Event]) -> _Compared:
        """Compare what a rank did in the run with what it did in the control run."""
        ours, theirs = ({event.step or 0: event for event in events} for events in (mine, control))
        both = sorted(ours.keys() & theirs.keys())
        found = ((step, _difference(ours[step].data, theirs[step].data)) for step in both)
        difference = next(((step, rank, words) for step, words in found if words), None)
        losses, rates = (any(ours[step].data[key] is not None for step in both) for key in ("loss", "lr"))
        return cls(rank, both, min(ours.keys() ^ theirs.keys(), default=None), difference, losses, rates)


def _difference(mine: Mapping[str, Any], control: Mapping[str, Any]) -> str:
    """What differs in a step, with both values; empty where nothing does."""
    odd = next((field for field in ("loss", "lr", "samples") if mine[field] != control[field]), None)
    return f"{odd} {mine[odd]}, control {control[odd]}" if odd else ""


@dataclass(frozen=True)
class StepGap:
    """How far one quantity of a step is from the control run's; infinite where only one side told it, or no number."""

    step: int
    field: str
    mine: float | None
    control: float | None

    @property
    def apart(self) -> float:
        """The absolute difference, in the quantity's own unit."""
        if self.mine is None or self.control is None:
            return 0.0 if self.mine is self.control else math.inf
        return distance(self.mine, self.control)


def _near_trajectory(case: Case, name: str, expected: str, within: float) -> Finding:
    ours, theirs = effective(case), by_step(effective_steps(case.control_attempts))
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return Finding(name, Verdict.UNKNOWN, expected, "no step to compare")
    told = ("lr",) if case.record.script else ("loss", "lr")  # the losses of a script drift after a resize
    found = [StepGap(s, f, _mean(ours[s], f), _mean(theirs[s], f)) for s in both for f in told]
    largest = max(found, key=lambda gap: gap.apart)
    evidence = {"largest": largest.apart, "of": largest.field, "step": largest.step}
    most = _largest(largest.apart, f"{largest.field} of step {largest.step}")
    if odd := _first_difference(ours, theirs, found, within):
        return Finding(name, Verdict.FAIL, expected, f"{odd}; {most}", evidence=evidence)
    if all(gap.mine is None for gap in found if gap.field == told[0]):
        return Finding(name, Verdict.UNKNOWN, expected, "the workload told of no loss (observe.loss)")
    if lone := sorted(ours.keys() ^ theirs.keys()):
        return Finding(name, Verdict.FAIL, expected, f"only one of the two runs has step {lone[0]}", evidence=evidence)
    what = "learning rate of " if case.record.script else ""
    seen = f"{what}{len(both)} steps equal within {within:g}; {most}"
    return Finding(name, Verdict.PASS, expected, seen, evidence=evidence)


def _largest(apart: float, what: str) -> str:
    return f"largest difference {apart:.3g}, {what}" if apart else "no difference"


def _mean(events: list[Event], field: str) -> float | None:
    """The mean over the ranks that told it; None where none did."""
    told = [event.data[field] for event in events if event.data[field] is not None]
    return sum(told) / len(told) if told else None


def _first_difference(
    ours: dict[int, list[Event]], theirs: dict[int, list[Event]], found: list[StepGap], within: float
) -> str:
    """The first step at which a quantity or the samples differ, as a sentence; empty when none does."""
    for gap in found:
        if gap.apart > within:
            return f"first difference at step {gap.step}: {gap.field} {gap.mine}, control {gap.control}"
        mine, control = sample_ids(ours[gap.step]), sample_ids(theirs[gap.step])
        if mine != control:
            only, lacking = sorted((mine - control).elements()), sorted((control - mine).elements())
            return f"first difference at step {gap.step}: samples too many {only[:5]}, too few {lacking[:5]}"
    return ""


def check_state(case: Case, within: float | None = None) -> Finding:
    """Weights, optimizer, schedule, random states and position saved after the fault equal the control run's.

    With ``within`` the newest checkpoint on disk is compared with the control run's of the same step: floats, in
    tensors and beside them, must differ by no more, all else, random states among it, must be equal.
    """
    name, expected = "control-state", "state saved after the fault equals the control run's, bitwise"
    if within is not None:
        expected = f"all values of the newest checkpoint equal the control run's of the same step, within {within:g}"
    if finding := _without_control(case, name, expected):
        return finding
    if case.record.script:
        return check_content(case, name)
    return _same_state(case, name, expected) if within is None else _near_state(case, name, expected, within)


def _same_state(case: Case, name: str, expected: str) -> Finding:
    control = saved_parts(case.control_attempts)
    after = saved_parts(after_fault(case.attempts))
    compared = [(key, step) for key in sorted(after, key=lambda key: key[1]) for step in [key[1]] if step]
    pieces = 0
    for key, step in compared:
        theirs = next((parts for (_, s), parts in control.items() if s == step), None)
        if theirs is None:
            return Finding(name, Verdict.FAIL, expected, f"the control run saved nothing at step {step}")
        if odd := differing(after[key], theirs):
            seen = f"at step {step}, {len(odd)} of {len(theirs)} pieces differ, first {odd[0]}"
            return Finding(name, Verdict.FAIL, expected, seen, evidence={"step": step, "pieces": odd[:20]})
        pieces += len(theirs)
    if not pieces:
        return Finding(name, Verdict.UNKNOWN, expected, "no state was told after the fault (observe.state)")
    steps = ", ".join(str(step) for _, step in compared)
    return Finding(name, Verdict.PASS, expected, f"{pieces} pieces equal, bitwise, at step {steps}")


def _near_state(case: Case, name: str, expected: str, within: float) -> Finding:
    assert case.control is not None
    ours = on_disk(case.directory, case.history, after_fault(case.attempts))
    theirs = on_disk(case.directory / "control", case.control, case.control_attempts)
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return Finding(name, Verdict.UNKNOWN, expected, _why_no_pair(ours, theirs), where="control/storage")
    step = both[-1]
    where = f"storage/{ours[step].parent.name}/{ours[step].name}"
    try:
        found = gaps(ours[step], theirs[step])
    except BadCheckpoint as error:
        seen = f"the control run's checkpoint of step {step} cannot be read: {error}"
        return Finding(name, Verdict.UNKNOWN, expected, seen, where="control/storage")
    return _judged(name, expected, step, where, found, within)


def _why_no_pair(ours: dict[int, Path], theirs: dict[int, Path]) -> str:
    """Why there are no two checkpoints to compare."""
    if not ours:
        return "no checkpoint that was committed after the fault is on disk"
    if not theirs:
        return "no checkpoint of the control run is on disk"
    mine, control = (", ".join(map(str, sorted(found))) for found in (ours, theirs))
    return f"no step of which both have a checkpoint on disk: the run of step {mine}, the control run of step {control}"


def _judged(name: str, expected: str, step: int, where: str, found: list[Gap], within: float) -> Finding:
    tensors = sum(gap.tensor for gap in found)
    odd = [gap for gap in found if gap.apart > within]
    if not odd and not tensors:
        return Finding(name, Verdict.UNKNOWN, expected, f"the checkpoints of step {step} hold no tensor", where=where)
    most = max(found, key=lambda gap: gap.apart)
    counted = f"{tensors} tensors and {len(found) - tensors} other values"
    seen = f"{counted} equal within {within:g} at step {step}; {_largest(most.apart, most.name)}"
    evidence = {"step": step, "tensors": tensors, "largest": most.apart, "of": most.name}
    if odd:
        seen = f"at step {step}, {len(odd)} of {counted} differ, most {most}"
        evidence["values"] = [gap.name for gap in odd[:20]]
    return Finding(name, Verdict.FAIL if odd else Verdict.PASS, expected, seen, where=where, evidence=evidence)
