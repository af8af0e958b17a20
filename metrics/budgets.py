"""Restarts against the budgets that the job was given, and whether each fault cost exactly one."""

from __future__ import annotations

from metrics.verdict import Case, Finding, Verdict


def check(case: Case) -> Finding:
    """Each confirmed fault caused one restart, no restart came from anything else, and the budget held."""
    name = "restarts"
    fired = len(case.history.select("fault.fired"))
    started = case.history.first("controller.start")
    budget = started.data["max_failures"] if started else None
    expected = f"{fired} restart{'s' if fired != 1 else ''}, one for each fault, of {_shown(budget)} allowed"
    if started is None or not case.attempts:
        return Finding(name, Verdict.UNKNOWN, expected, "the controller was not seen")
    restarts = len(case.attempts) - 1
    retries = [e.data["decision"] for e in case.history.select("controller.decision")]
    evidence = {"restarts": restarts, "budget": budget, "decisions": retries}
    seen = f"{restarts} restart{'s' if restarts != 1 else ''}; the controller decided {', '.join(retries) or 'nothing'}"
    within = budget is not None and (budget == -1 or restarts <= budget)
    good = within and restarts == fired and len(retries) == fired and all(decision == "RETRY" for decision in retries)
    return Finding(name, Verdict.PASS if good else Verdict.FAIL, expected, seen, evidence=evidence)


def _shown(budget: int | None) -> str:
    return "an unknown number" if budget is None else "any number" if budget == -1 else str(budget)
