"""What a run or a suite came to, as ``chaos.run`` returns it: read from what the command prints."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from chaos.exits import ExitCode

T = TypeVar("T")
BAD = ("fail", "unknown")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check's answer: pass, fail, unknown or not-applicable; what was expected, what was seen, where to look."""

    name: str
    verdict: str
    expected: str
    seen: str
    where: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One phase of a recovery; ``rank``: the one that was last, where ranks end it."""

    name: str
    seconds: float
    rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """One recovery; ``missing``: the phase whose end was never seen, empty when it is whole."""

    injection: str
    fault: str
    rank: int
    step: int
    phase: str
    total_s: float
    phases: tuple[Phase, ...] = ()
    missing: str = ""
    resume_step: int | None = None
    lost_steps: int | None = None
    lost_samples: int | None = None
    cause: str = ""

    def __str__(self) -> str:
        parts = ", ".join(f"{phase.name} {phase.seconds:.3f}" for phase in self.phases)
        ended = f"; the end of '{self.missing}' was never seen" if self.missing else ""
        where = f"rank {self.rank} in {self.phase} at step {self.step}"
        return f"{self.fault} of {where}: {self.total_s:.3f} s ({parts}){ended}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run came to; of a suite, what its ``members`` came to.

    ``verdict``: pass, fail or unknown, of a member of a suite also skipped. ``exit_code``: the command's.
    ``directory``: of the run; None where there is none. ``repeat``: the command that repeats it. ``told``: all that the
    command printed, as in ``verdict.json`` or ``suite.json``.
    """

    scenario: str
    verdict: str
    exit_code: int
    reason: str
    restarts: int = 0
    checks: tuple[Check, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    members: tuple[Result, ...] = ()
    directory: Path | None = None
    repeat: str = ""
    told: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def passed(self) -> bool:
        """Whether every check that applies passed, on evidence."""
        return self.exit_code == ExitCode.PASS and self.verdict == "pass"

    def check(self, name: str) -> Check:
        """The check of that name.

        Raises KeyError naming those that there are.
        """
        for found in self.checks:
            if found.name == name:
                return found
        raise KeyError(f"no check '{name}': there are {', '.join(check.name for check in self.checks) or 'none'}")

    def member(self, name: str) -> Result:
        """The member of a suite that ran the scenario of that name.

        Raises KeyError naming those that there are.
        """
        for found in self.members:
            if found.scenario == name:
                return found
        raise KeyError(f"no member '{name}': there are {', '.join(one.scenario for one in self.members) or 'none'}")

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        """What broke: the verdict, the checks that did not pass, the recoveries, where to look, how to repeat it."""
        lines = [f"{self.scenario}: {self.verdict} (exit code {self.exit_code}): {self.reason}"]
        for check in self.checks:
            if check.verdict in BAD:
                lines += [f"  {check.name}: {check.verdict}", f"    expected  {check.expected}"]
                lines += [f"    seen      {check.seen}"] + [f"    see       {check.where}"] * bool(check.where)
        lines += [f"  recovery  {recovery}" for recovery in self.recoveries]
        for member in self.members:
            lines += [f"  {line}" for line in (member._lines() if member.verdict in BAD else [_short(member)])]
        lines += [f"  directory {self.directory}"] * (self.directory is not None)
        return lines + [f"  repeat    {self.repeat}"] * bool(self.repeat)


def _short(member: Result) -> str:
    return f"{member.scenario}: {member.verdict}" + f": {member.reason}" * (member.verdict != "pass")


def of_output(told: Mapping[str, Any], directory: Path | None) -> Result:
    """The result that the command printed, of a run or of a suite; ``directory``: where it lies."""
    return _of_suite(told, directory) if "members" in told else _of_run(told, directory)


def without_output(scenario: str, code: int, reason: str, directory: Path | None) -> Result:
    """The result of a command that printed none."""
    verdict = "fail" if code in (ExitCode.FAIL, ExitCode.NOT_HEALED) else "unknown"
    return Result(scenario=scenario, verdict=verdict, exit_code=code, reason=reason, directory=directory)


def _of_run(told: Mapping[str, Any], directory: Path | None) -> Result:
    recoveries = [
        {**recovery, "phases": tuple(_made(Phase, phase) for phase in recovery["phases"])}
        for recovery in told["recoveries"]
    ]
    return dataclasses.replace(
        _made(Result, {k: v for k, v in told.items() if k not in ("checks", "recoveries")}),
        checks=tuple(_made(Check, check) for check in told["checks"]),
        recoveries=tuple(_made(Recovery, recovery) for recovery in recoveries),
        directory=directory,
        told=told,
    )


def _of_suite(told: Mapping[str, Any], directory: Path | None) -> Result:
    code = int(told["exit_code"])
    members = tuple(_member(member, directory) for member in told["members"])
    passed, asked = sum(member.passed for member in members), len(told["asked"])
    whole = without_output(told["suite"], code, f"{passed} of {asked} passed", directory)
    verdict = "pass" if code == ExitCode.PASS else whole.verdict
    return dataclasses.replace(whole, verdict=verdict, members=members, told=told)


def _member(told: Mapping[str, Any], suite: Path | None) -> Result:
    """A member with its checks, from its own directory; its line in the suite's record where it has none."""
    own = suite / told["directory"] if suite and told["directory"] else None
    try:
        return _of_run(json.loads((own / "verdict.json").read_text()), own) if own else _made(Result, told)
    except (OSError, ValueError, KeyError):
        return dataclasses.replace(_made(Result, {**told, "directory": None}), directory=own)


def _made(kind: type[T], told: Mapping[str, Any]) -> T:
    """A record of what is told, as far as it has fields for it."""
    known = {f.name for f in dataclasses.fields(kind) if f.name != "directory"}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in told.items() if name in known})
