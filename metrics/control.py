"""Against the control run: the same seed and configuration, no fault. Whatever differs, the fault changed."""

from __future__ import annotations

from chaos.history import Event
from metrics.attempts import Attempt, effective_steps
from metrics.checkpoints.content import differing, saved_parts
from metrics.verdict import Case, Finding, Verdict


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


def check_trajectory(case: Case) -> Finding:
    """Loss, learning rate and samples of every effective step equal the control run's, on every rank, bitwise."""
    name, expected = "trajectory", "loss, learning rate and samples of each step equal the control run's"
    if finding := _without_control(case, name, expected):
        return finding
    ours, theirs = _by_rank_and_step(case.attempts), _by_rank_and_step(case.control_attempts)
    both = sorted(ours.keys() & theirs.keys(), key=lambda key: (key[1], key[0]))
    if not both:
        return Finding(name, Verdict.UNKNOWN, expected, "no step to compare")
    for rank, step in both:
        for field in ("loss", "lr", "samples"):
            mine, control = (side[rank, step].data[field] for side in (ours, theirs))
            if mine != control:
                seen = f"first difference at step {step}, rank {rank}: {field} {mine}, control {control}"
                return Finding(name, Verdict.FAIL, expected, seen)
    if all(ours[key].data["loss"] is None for key in both):
        return Finding(name, Verdict.UNKNOWN, expected, "the workload told of no loss (observe.loss)")
    if ours.keys() != theirs.keys():
        odd = sorted(ours.keys() ^ theirs.keys(), key=lambda key: (key[1], key[0]))[0]
        return Finding(name, Verdict.FAIL, expected, f"only one of the two runs has step {odd[1]} of rank {odd[0]}")
    steps = len({step for _, step in both})
    return Finding(name, Verdict.PASS, expected, f"{steps} steps on {len(both) // steps} ranks equal, bitwise")


def _by_rank_and_step(attempts: list[Attempt]) -> dict[tuple[int, int], Event]:
    return {(rank, e.step or 0): e for rank, events in effective_steps(attempts).items() for e in events}


def check_state(case: Case) -> Finding:
    """Weights, optimizer, schedule, random states and position saved after the fault equal the control run's."""
    name, expected = "control-state", "state saved after the fault equals the control run's, bitwise"
    if finding := _without_control(case, name, expected):
        return finding
    control = saved_parts(case.control_attempts)
    restarted = [attempt for attempt in case.attempts if attempt.number > 0]
    after = saved_parts(restarted or case.attempts)
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
