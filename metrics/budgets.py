"""Restarts against the budgets that the job was given, and the errors that they or the job's end are due to."""

from __future__ import annotations

import itertools

from metrics.recovery import incidents
from metrics.verdict import Case, Finding, Verdict


def check(case: Case, times: int | None = None) -> Finding:
    """The worker group restarted exactly as often as it should, each time by the controller's own decision.

    ``times``: how often; None for once for each attempt that faults have hit.
    """
    name = "restarts"
    wanted = len(incidents(case)) if times is None else times
    started = case.history.first("controller.start")
    budget = started.data["max_failures"] if started else None
    why = ", one for each attempt that faults hit" if times is None else ""
    expected = f"{wanted} restart{'s' if wanted != 1 else ''}{why}, of {_shown(budget)} allowed"
    if started is None or not case.attempts:
        return Finding(name, Verdict.UNKNOWN, expected, "the controller was not seen")
    restarts = len(case.attempts) - 1
    decisions = [e.data["decision"] for e in case.history.select("controller.decision")]
    evidence = {"restarts": restarts, "budget": budget, "decisions": decisions}
    seen = f"{restarts} restart{'s' if restarts != 1 else ''}; the controller decided {_told(decisions)}"
    within = budget is not None and (budget == -1 or restarts <= budget)
    good = within and restarts == wanted == decisions.count("RETRY")
    return Finding(name, Verdict.PASS if good else Verdict.FAIL, expected, seen, evidence=evidence)


def check_failed(case: Case, error: str) -> Finding:
    """The job ended in an error of that type, told by Ray and by the script's exit code, and in nothing else."""
    name, expected = "failed", f"the controller ends ERRORED with {error}, the training script with a code other than 0"
    ended = case.history.first("workload.exit")
    last = next((e for e in reversed(case.history.select("controller.state")) if "error" in e.data), None)
    if ended is None or ended.data.get("code") is None:
        return Finding(name, Verdict.FAIL if ended else Verdict.UNKNOWN, expected, "the training script did not end")
    if last is None:
        return Finding(name, Verdict.FAIL, expected, f"exit code {ended.data['code']}, and no error of the controller")
    seen = f"{last.data['to']} with {last.data['error']}, exit code {ended.data['code']}"
    good = last.data["to"] == "ERRORED" and last.data["error"] == error and ended.data["code"] != 0
    return Finding(name, Verdict.PASS if good else Verdict.FAIL, expected, seen, evidence=dict(last.data))


def check_named(case: Case, error: str) -> Finding:
    """The controller was told that type of error as the cause, by some rank that a fault hit."""
    name, expected = "cause", f"a rank hit by a fault fails with {error}"
    errors = case.history.select("worker.error")
    hit = {(event.attempt, event.rank) for event in case.history.select("fault.fired")}
    told = [e for e in errors if (e.attempt, e.rank) in hit]
    if not told:
        return Finding(name, Verdict.UNKNOWN, expected, "the controller was told no error of a rank that was hit")
    seen = ", ".join(f"rank {e.rank}: {e.data['error']}" for e in told)
    good = any(e.data["error"] == error for e in told)
    evidence = {"messages": [e.data["message"][:500] for e in told]}
    return Finding(name, Verdict.PASS if good else Verdict.FAIL, expected, seen, evidence=evidence)


def _told(decisions: list[str]) -> str:
    """Decisions in a row as one: RETRY 5 times, RAISE."""
    runs = [(word, len(list(same))) for word, same in itertools.groupby(decisions)]
    return ", ".join(word if count == 1 else f"{word} {count} times" for word, count in runs) or "nothing"


def _shown(budget: int | None) -> str:
    return "an unknown number" if budget is None else "any number" if budget == -1 else str(budget)
