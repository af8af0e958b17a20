"""The checks on the run itself: was the fault confirmed, is the history whole, is anything left?"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict

from chaos.agent.plan import Injection
from chaos.history import SCHEMA, Event
from chaos.triggers import Moment
from metrics.verdict import Case, Finding, Verdict, died_alone

STEP_NS = 100_000_000
"""How far the wall clock may be off its course before it counts as stepped; reading both clocks took up to 5 ms."""


def check_fault(case: Case) -> Finding:
    """Every injection fired once, at its moment, in its rank's process, and its effect was seen."""
    name = "fault"
    wanted = {i.id: i for i in map(Injection.of, case.record.injections)}
    expected = "; ".join(f"{i.fault} {i.where} {i.trigger}" for i in wanted.values())
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
        there = event.rank is not None and injection.hits(event.rank, event.data.get("node", ""))
        if not there or not _in_time(injection, event):
            seen = f"{injection.id} fired in rank {event.rank} in {event.data['phase']} at step {event.step}"
            return Finding(name, Verdict.FAIL, expected, seen)
    if len(fired) < len(wanted):
        seen = f"{len(fired)} of {len(wanted)} fired{died_alone(case.history)}"
        return Finding(name, Verdict.UNKNOWN, expected, seen)
    if missing := wanted.keys() - confirmed.keys():
        return Finding(name, Verdict.UNKNOWN, expected, f"no effect was seen of {', '.join(sorted(missing))}")
    first = next(iter(confirmed.values()))
    seen = f"{first.data['evidence']}, {first.data['after_ms']:.1f} ms after the fault fired"
    if len(confirmed) > 1:
        seen = f"{len(confirmed)} of {len(wanted)} at their moments; {seen}"
    evidence = {e.data["injection"]: e.data for e in confirmed.values()}
    return Finding(name, Verdict.PASS, expected, seen, evidence=evidence)


def _in_time(injection: Injection, event: Event) -> bool:
    """Whether the moment of a firing is the one that its trigger names; times are the agent's own affair."""
    moment = Moment(event.data["phase"], event.step or 0, event.attempt or 0, math.inf)
    return injection.trigger.holds(moment)


def check_residue(case: Case) -> Finding:
    """After the end of the training script nothing of the job is left: no worker, no actor, no placement group."""
    name, expected = "residue", "no worker process, actor or placement group outlives the job"
    checked = case.history.first("residue.checked")
    kinds = ("workers", "actors", "placement_groups")
    left = {key: checked.data[key] for key in kinds if checked.data.get(key)} if checked else {}
    if not left and (checked is None or "error" in checked.data):
        why = checked.data["error"] if checked else "nobody looked"
        return Finding(name, Verdict.UNKNOWN, expected, f"what is left is not known: {why}")
    if left:
        seen = "; ".join(f"{len(items)} {key.replace('_', ' ')}, first {items[0]}" for key, items in left.items())
        return Finding(name, Verdict.FAIL, expected, f"left: {seen}", evidence=left)
    seconds = checked.data["seconds"] if checked else 0.0
    return Finding(name, Verdict.PASS, expected, f"nothing left, seen {seconds:.1f} s after the end")


def check_history(case: Case) -> Finding:
    """The history is complete and in order: every line readable, beginning and end there, no clock that stepped."""
    name, expected = "history", "every line readable, from run.start to run.end, steady clocks, the agent without error"
    ends = {kind: case.history.first(kind) is not None for kind in ("run.start", "run.healed", "run.end")}
    if case.history.unreadable:
        seen = f"{case.history.unreadable} unreadable lines: the history was cut or damaged"
        return Finding(name, Verdict.UNKNOWN, expected, seen)
    if absent := [kind for kind, there in ends.items() if not there]:
        return Finding(name, Verdict.UNKNOWN, expected, f"no {' and no '.join(absent)}: the history was cut")
    start = case.history.first("run.start")
    if start is not None and start.data.get("schema", SCHEMA) > SCHEMA:
        seen = f"written in schema {start.data['schema']}, by a newer version; this one knows {SCHEMA}"
        return Finding(name, Verdict.UNKNOWN, expected, seen)
    if stepped := _stepped_clock(case):
        return Finding(name, Verdict.UNKNOWN, expected, stepped)
    if errors := case.history.select("agent.error"):
        seen = f"the agent failed {len(errors)} times, first: {errors[0].data['error']}"
        return Finding(name, Verdict.UNKNOWN, expected, seen)
    return Finding(name, Verdict.PASS, expected, f"{_count(case)} events")


def _stepped_clock(case: Case) -> str:
    """Which machine's wall clock stepped against its monotonic one, as a sentence; empty when none did.

    Events are put in the order of the wall clock, so nothing that rests on their order holds across a step.
    """
    by_node: dict[str, list[Event]] = defaultdict(list)
    for event in case.history:
        by_node[event.node].append(event)
    for node, events in by_node.items():
        usual = statistics.median_low(event.wall_ns - event.mono_ns for event in events)
        odd = [event for event in events if abs(event.wall_ns - event.mono_ns - usual) > STEP_NS]
        # One process may have been stopped between its two readings, the wall clock's first.
        if len(odd) > 1 or any(event.wall_ns - event.mono_ns > usual for event in odd):
            by_s = (odd[0].wall_ns - odd[0].mono_ns - usual) / 1e9
            return f"the clock of {node} stepped: it is off by {by_s:+.3f} s at {len(odd)} events, first {odd[0].kind}"
    return ""


def _count(case: Case) -> int:
    """Events of the run itself: that it has been judged is none of them, so that every judging counts the same."""
    return sum(event.kind != "run.judged" for event in case.history)
