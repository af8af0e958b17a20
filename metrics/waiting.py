"""How a job behaves while it waits for capacity: what its controller costs meanwhile, and whether Ctrl-C ends it."""

from __future__ import annotations

from chaos.history import Event
from metrics.verdict import Case, Finding, Verdict


def check_idle(case: Case, cpu: float) -> Finding:
    """While the job waited its controller used at most that share of one core."""
    name, expected = "idle", f"while it waits, the controller uses at most {cpu:g} of one core"
    waits = [e.data for e in _waits(case) if e.data.get("cpu_share") is not None]
    if not waits:
        looks = case.history.select("probe.waiting")
        why = "the job trained, or its controller was gone" if looks else "nobody looked while the job waited"
        return Finding(name, Verdict.UNKNOWN, expected, why)
    worst = max(waits, key=lambda wait: float(wait["cpu_share"]))
    seen = f"{worst['cpu_share']:.2f} of one core over {worst['seconds']:.1f} s, {worst['states']} changes of state"
    verdict = Verdict.PASS if worst["cpu_share"] <= cpu else Verdict.FAIL
    return Finding(name, verdict, expected, seen, evidence={"waits": waits})


def _waits(case: Case) -> list[Event]:
    """The looks at a job that waited."""
    return [look for look in case.history.select("probe.waiting") if not _trained(case, look)]


def _trained(case: Case, look: Event) -> bool:
    """Whether the job had a running group when the look at it began."""
    begin_ns = look.wall_ns - int(look.data["seconds"] * 1e9)
    before = [e for e in case.history.select("controller.state") if e.wall_ns <= begin_ns]
    return bool(before) and before[-1].data["to"] == "RUNNING"


def check_interruptible(case: Case, within: float) -> Finding:
    """The training script ended within so many seconds of the signal that was to end it."""
    name, expected = "interruptible", f"Ctrl-C (SIGINT) ends the training script within {within:g} s"
    found = case.history.first("workload.interrupted")
    if found is None:
        return Finding(name, Verdict.UNKNOWN, expected, "nobody interrupted it")
    signal, seconds = found.data["signal"], found.data["seconds"]
    if seconds is None:
        waited = float(found.data.get("waited_s", within))
        verdict = Verdict.FAIL if waited >= within else Verdict.UNKNOWN
        return Finding(name, verdict, expected, f"{signal} did not end it: it had to be killed after {waited:g} s")
    verdict = Verdict.PASS if seconds <= within else Verdict.FAIL
    return Finding(name, verdict, expected, f"ended {seconds:.1f} s after {signal}", evidence=dict(found.data))


def check_deaf(case: Case) -> Finding:
    """Known defect: the signal that was to end the training script did not, as long as anybody waited."""
    name, expected = "deaf", "Ctrl-C (SIGINT) does not end the training script"
    found = case.history.first("workload.interrupted")
    if found is None:
        return Finding(name, Verdict.UNKNOWN, expected, "nobody interrupted it")
    if found.data["seconds"] is not None:
        return Finding(
            name, Verdict.FAIL, expected, f"ended {found.data['seconds']:.1f} s after {found.data['signal']}"
        )
    looks = _waits(case)
    if not looks:
        return Finding(name, Verdict.UNKNOWN, expected, "nobody saw the job wait")
    shares = [look.data.get("cpu_share") for look in looks]
    waits = ", ".join(f"{share:.2f} of one core" for share in shares if share is not None)
    seen = f"{found.data['signal']} did not end it; while it waited the controller used {waits or 'an unknown share'}"
    return Finding(name, Verdict.PASS, expected, seen)
