"""How much sooner a hang was over than Ray's defaults would even have noticed it: the chain of time-outs."""

from __future__ import annotations

from chaos.faults.base import Fault, all_faults
from chaos.timeouts import TIMEOUTS, floor_s
from metrics.recovery import recoveries
from metrics.verdict import Case, Finding, Record, Verdict


def chain(record: Record, fault: type[Fault]) -> str:
    """The time-outs that can notice a fault, as this run set them, beside the defaults; and what follows."""
    parts = []
    for name in (*fault.noticed_by, "poll", "shutdown"):
        known, value = TIMEOUTS[name], record.timeouts.get(name)
        default = "never" if known.default_s is None else f"{known.default_s:g} s"
        own = default if value is None else f"{value:g} s"
        parts.append(f"{name} {own} ({known.setting}, default {default})")
    return "; ".join(parts)


def check(case: Case, times: float) -> Finding:
    """The whole recovery took less than the floor of the defaults divided by that number."""
    name = "detection"
    known = all_faults()
    found = [(r, known[str(r.fired[0].data["fault"])]) for r in recoveries(case)]
    found = [(recovery, fault) for recovery, fault in found if fault.noticed_by]
    expected = f"recovered at least {times:g} times sooner than Ray's defaults would notice"
    if not found or any(recovery.missing for recovery, _ in found):
        return Finding(name, Verdict.UNKNOWN, expected, "no whole recovery from a fault that a time-out must notice")
    recovery, fault = max(found, key=lambda pair: pair[0].total_s)
    floor = floor_s(fault.noticed_by)
    expected += f" ({'never' if floor is None else f'{floor:g} s'})"
    ratio = floor / recovery.total_s if floor is not None else float("inf")
    detect = next((p.seconds for p in recovery.phases if p.name == "detect"), 0.0)
    sooner = f"{ratio:.1f} times sooner" if floor is not None else "they never would"
    seen = f"noticed after {detect:.1f} s, over after {recovery.total_s:.1f} s, {sooner}: {chain(case.record, fault)}"
    evidence = {"floor_s": floor, "total_s": recovery.total_s, "detect_s": detect}
    return Finding(name, Verdict.PASS if ratio >= times else Verdict.FAIL, expected, seen, evidence=evidence)
