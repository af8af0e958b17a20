"""The checks on the run itself: was the fault confirmed, is the history whole?"""

from __future__ import annotations

from collections import Counter

from metrics.verdict import Case, Finding, Verdict


def check_fault(case: Case) -> Finding:
    """Every injection fired once, at its step, in its rank's process, and its effect was seen."""
    name = "fault"
    wanted = {i["id"]: i for i in case.record.injections}
    expected = "; ".join(f"{i['fault']} rank {i['rank']} right after step {i['step']}" for i in wanted.values())
    fired = case.history.select("fault.fired")
    confirmed = {str(e.data.get("injection")): e for e in case.history.select("fault.confirmed")}
    times = Counter(str(event.data.get("injection")) for event in fired)
    if not wanted:
        return Finding(name, Verdict.UNKNOWN, "a fault", "the scenario injects nothing")
    if odd := [key for key, count in times.items() if count > 1 or key not in wanted]:
        seen = ", ".join(
            f"{key} fired {times[key]} times" + ("" if key in wanted else ", nobody asked for it") for key in odd
        )
        return Finding(name, Verdict.FAIL, expected, seen)
    for event in fired:
        injection = wanted[event.data["injection"]]
        if (event.rank, event.step) != (injection["rank"], injection["step"]):
            seen = f"{injection['id']} fired in rank {event.rank} after step {event.step}"
            return Finding(name, Verdict.FAIL, expected, seen)
    if len(fired) < len(wanted):
        return Finding(name, Verdict.UNKNOWN, expected, f"{len(fired)} of {len(wanted)} fired")
    if missing := wanted.keys() - confirmed.keys():
        return Finding(name, Verdict.UNKNOWN, expected, f"no effect was seen of {', '.join(sorted(missing))}")
    first = next(iter(confirmed.values()))
    seen = f"{first.data['evidence']} {first.data['after_ms']:.1f} ms after the fault fired"
    if len(confirmed) > 1:
        seen = f"{len(confirmed)} of {len(wanted)} at their steps; {seen}"
    evidence = {e.data["injection"]: e.data for e in confirmed.values()}
    return Finding(name, Verdict.PASS, expected, seen, evidence=evidence)


def check_history(case: Case) -> Finding:
    """The history is complete: every line readable, the beginning and the end there."""
    name, expected = "history", "every line readable, from run.start to run.end, the agent without error"
    ends = {kind: case.history.first(kind) is not None for kind in ("run.start", "run.healed", "run.end")}
    if case.history.unreadable:
        seen = f"{case.history.unreadable} unreadable lines: the history was cut or damaged"
        return Finding(name, Verdict.UNKNOWN, expected, seen)
    if absent := [kind for kind, there in ends.items() if not there]:
        return Finding(name, Verdict.UNKNOWN, expected, f"no {' and no '.join(absent)}: the history was cut")
    if errors := case.history.select("agent.error"):
        seen = f"the agent failed {len(errors)} times, first: {errors[0].data['error']}"
        return Finding(name, Verdict.UNKNOWN, expected, seen)
    return Finding(name, Verdict.PASS, expected, f"{_count(case)} events")


def _count(case: Case) -> int:
    """Events of the run itself: that it has been judged is none of them, so that every judging counts the same."""
    return sum(event.kind != "run.judged" for event in case.history)
