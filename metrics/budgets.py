"""Restarts by class against the budgets that the job was given, and the errors that they or its end are due to."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from chaos.history import Event
from metrics.recovery import incidents
from metrics.verdict import Case, Finding, Verdict


class Reason(StrEnum):
    """Why the worker group began anew."""

    FAILURE = "failure"
    """An error of a worker, which Ray charges to ``max_failures``, or of a rendezvous, a controller's failure."""
    PREEMPTION = "preemption"
    """A node was about to be taken away: Ray charges it to ``max_preemption_failures``."""
    RESIZE = "resize"
    """The job takes more or fewer workers: no restart, and nothing is charged for it."""


def reasons(case: Case) -> list[Reason]:
    """Why each attempt beyond the first began, in order: from what the controller did since the one before."""
    states = case.history.select("controller.state")
    return [
        _reason([e for e in states if before.number <= (e.attempt or 0) < after.number])
        for before, after in itertools.pairwise(case.attempts)
    ]


def _reason(changes: Sequence[Event]) -> Reason:
    """A preemption that ends in another error than its own is charged as a failure, as Ray does.

    So is one without a notice, but for a worker that Ray knows to have died with a node that was taken away.
    """
    if any(e.data["to"] == "RESIZING" for e in changes):
        return Reason.RESIZE
    restarting = [e.data for e in changes if e.data["to"] == "RESTARTING"]
    causes = [data.get("error", "PreemptionError" if data["from"] == "PREEMPTING" else "") for data in restarting]
    preempted = "PreemptionError" in causes or any(data.get("preempted") for data in restarting)
    return Reason.PREEMPTION if preempted else Reason.FAILURE


def restarts_by_class(case: Case) -> dict[str, int]:
    """Restarts of the worker group by what Ray charges them to: an error of a worker, a preemption, the controller."""
    found = dict.fromkeys(("worker", "preemption", "controller"), 0)
    states = case.history.select("controller.state")
    for reason, (before, after) in zip(reasons(case), itertools.pairwise(case.attempts), strict=True):
        between = [e for e in states if before.number <= (e.attempt or 0) < after.number]
        errors = [_charged(e) for e in between if e.data["to"] in RETRIED]
        match reason:
            case Reason.PREEMPTION:
                found["preemption"] += 1
            case Reason.FAILURE:
                found["controller" if errors[:1] == ["ControllerError"] else "worker"] += 1
    return found


def failed_starts(case: Case) -> list[Event]:
    """The changes of state by which the controller gave up a group that never came up, to ask for one again.

    A group that came up and broke in the rendezvous is none of them: it was an attempt, and costs a restart.
    """
    failed, up = [], False
    for event in case.history:
        if event.kind == "attempt.start":
            up = True
        elif event.kind == "controller.state" and event.data["to"] == "SCHEDULING":
            up = False
        elif event.kind == "controller.state" and event.data["to"] == "RESCHEDULING" and not up:
            failed.append(event)
    return failed


@dataclass(frozen=True)
class Budget:
    """What a job may spend on one class of errors, by Ray's own name for it, and how often it retried after one.

    ``allowed``: -1 for any number, None where that was not told.
    """

    name: str
    spent: int
    allowed: int | None

    @property
    def holds(self) -> bool:
        """Whether it is known, and not overdrawn."""
        return self.allowed is not None and (self.allowed == -1 or self.spent <= self.allowed)


CHARGED = {
    "max_failures": "WorkerGroupError",
    "max_preemption_failures": "PreemptionError",
    "controller_failure_limit": "ControllerError",
}
"""The budget of each class of errors, in the order in which Ray names them."""

NO_BUDGET = "; FailureConfig(max_failures=0), which is Ray Train's default, restarts nothing"

RETRIED = ("RESTARTING", "RESCHEDULING")


def budgets(case: Case) -> list[Budget]:
    """Every budget of a job with what was spent of it, from the errors after which its controller tried again.

    A Ray that knows no budget for preemptions lets any number pass.
    """
    started = case.history.first("controller.start")
    told = {name: value for name, value in (started.data if started else {}).items() if value is not None}
    told = {"max_preemption_failures": -1, **told} if started else {}
    errors = [_charged(e) for e in case.history.select("controller.state") if e.data["to"] in RETRIED]
    return [Budget(name, errors.count(error), told.get(name)) for name, error in CHARGED.items()]


def _charged(change: Event) -> str:
    """The class of error that a change of state is due to."""
    data = change.data
    if data.get("preempted"):
        return "PreemptionError"
    untold = {"PREEMPTING": "PreemptionError"}.get(data["from"], "WorkerGroupError")
    return str(data.get("error", "ControllerError" if data["to"] == "RESCHEDULING" else untold))


@dataclass(frozen=True)
class Tally:
    """How often the group began anew, and why; how often it failed to; and what the controller decided.

    ``awaited``: restarts that were decided on and that the job still waited for when it was last looked at, 0 or 1.
    """

    reasons: tuple[Reason, ...]
    failed_starts: int
    awaited: int
    decisions: tuple[str, ...]

    @property
    def failures(self) -> int:
        """New beginnings because of a failure."""
        return self.reasons.count(Reason.FAILURE)

    @property
    def preemptions(self) -> int:
        """New beginnings because of a preemption."""
        return self.reasons.count(Reason.PREEMPTION)

    @property
    def restarts(self) -> int:
        """New beginnings that the controller decided on because of an error: all but resizes."""
        return self.failures + self.preemptions

    @property
    def retries(self) -> int:
        """Decisions to retry that were due to a group that had come up, and that another one followed."""
        return self.decisions.count("RETRY") - self.failed_starts - self.awaited

    @property
    def evidence(self) -> dict[str, Any]:
        """All of it, as a finding shows it."""
        told = {"restarts": self.restarts, "classes": list(self.reasons), "failed_starts": self.failed_starts}
        return {**told, "decisions": list(self.decisions)}

    def __str__(self) -> str:
        """Only what there was beside plain restarts is told apart."""
        told = counted(self.restarts, "restart")
        if self.preemptions:
            told += f" ({counted(self.failures, 'failure')}, {counted(self.preemptions, 'preemption')})"
        rest = (self.reasons.count(Reason.RESIZE), "resize"), (self.failed_starts, "failed start")
        others = [counted(number, what) for number, what in rest if number]
        others += ["one more still waited for"] if self.awaited else []
        return f"{', '.join([told, *others])}; the controller decided {_told(self.decisions)}"


def tally(case: Case) -> Tally:
    """Count what a run's history tells of new beginnings."""
    decisions = (str(e.data["decision"]) for e in case.history.select("controller.decision"))
    return Tally(tuple(reasons(case)), len(failed_starts(case)), _awaited(case), tuple(decisions))


def _awaited(case: Case) -> int:
    """Whether the job was seen waiting, and the last group it had was given up."""
    last = case.attempts[-1].number if case.attempts else 0
    changes = case.history.select("controller.state")
    given_up = any(e.data["to"] == "RESTARTING" and (e.attempt or 0) >= last for e in changes)
    return int(given_up and case.history.first("probe.waiting") is not None)


def check(case: Case, times: int | None = None) -> Finding:
    """The worker group restarted exactly as often as it should, each time by the controller's own decision.

    ``times``: how often; None for once for each attempt that faults have hit. Resizes and failed starts are none. No
    budget may be overdrawn.
    """
    name, found = "restarts", tally(case)
    wanted = len(incidents(case)) if times is None else times
    spent = {budget.name: budget for budget in budgets(case)}
    failures, preemptions, starts = spent.values()
    why = ", one for each attempt that faults hit" if times is None else ""
    expected = f"{counted(wanted, 'restart')}{why}, of {_shown(failures.allowed)} allowed"
    expected += f", and {_shown(preemptions.allowed)} of preemptions" if found.preemptions else ""
    if case.history.first("controller.start") is None or not case.attempts:
        return Finding(name, Verdict.UNKNOWN, expected, "the controller was not seen")
    within = failures.holds and preemptions.holds and (starts.holds or starts.allowed is None)
    good = within and found.restarts == wanted == found.retries
    evidence = found.evidence | {"budget": failures.allowed}
    evidence |= {"preemption_budget": preemptions.allowed} if found.preemptions else {}
    seen = str(found) + (NO_BUDGET if failures.allowed == 0 and "RAISE" in found.decisions and not good else "")
    return Finding(name, Verdict.PASS if good else Verdict.FAIL, expected, seen, evidence=evidence)


def check_preemptions(case: Case, times: int) -> Finding:
    """So many restarts, and no more, were due to preemptions."""
    name, expected = "preemptions", f"{counted(times, 'restart')} because of preemptions"
    if not case.attempts or not case.history.select("controller.state"):
        return Finding(name, Verdict.UNKNOWN, expected, "the controller was not seen")
    found = reasons(case)
    seen = f"{found.count(Reason.PREEMPTION)} of {counted(len(found), 'new beginning')}"
    evidence = {"classes": list(found)}
    verdict = Verdict.PASS if found.count(Reason.PREEMPTION) == times else Verdict.FAIL
    return Finding(name, verdict, expected, seen, evidence=evidence)


def check_worlds(case: Case, worlds: Sequence[int]) -> Finding:
    """The attempts had these world sizes, in this order."""
    name, expected = "world-sizes", f"attempts of {_listed(worlds)} workers"
    sizes = [attempt.world_size for attempt in case.attempts]
    if not sizes or 0 in sizes:
        missing = f"the start of attempt {case.attempts[sizes.index(0)].number}" if sizes else "any attempt"
        return Finding(name, Verdict.UNKNOWN, expected, f"no event tells {missing}")
    why = reasons(case)
    seen = ", ".join([str(sizes[0]), *(f"{size} after a {r}" for size, r in zip(sizes[1:], why, strict=True))])
    evidence = {"world_sizes": sizes, "classes": list(why)}
    verdict = Verdict.PASS if sizes == list(worlds) else Verdict.FAIL
    return Finding(name, verdict, expected, seen, evidence=evidence)


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


def counted(number: int, what: str) -> str:
    """A number of things, in words: 1 restart, 2 restarts."""
    return f"{number} {what}{'s' if number != 1 else ''}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _told(decisions: Sequence[str]) -> str:
    """Decisions in a row as one: RETRY 5 times, RAISE."""
    runs = [(word, len(list(same))) for word, same in itertools.groupby(decisions)]
    return ", ".join(word if count == 1 else f"{word} {count} times" for word, count in runs) or "nothing"


def _shown(budget: int | None) -> str:
    return "an unknown number" if budget is None else "any number" if budget == -1 else str(budget)
