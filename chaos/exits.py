"""Exit codes and their precedence: the worst of several outcomes decides."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """What the exit code of ``aftershock`` says."""

    PASS = 0
    """Every check passed, on evidence."""
    FAIL = 1
    """A check failed."""
    UNKNOWN = 2
    """No evidence, or a probe failed: neither pass nor fail."""
    NOT_STEADY = 3
    """The workload never reached steady state, so nothing was injected."""
    NOT_INJECTED = 4
    """The fault was not confirmed, or no target matched."""
    NOT_HEALED = 5
    """Something that the harness made could not be undone."""
    ABORTED = 6
    """Interrupted, and healed."""
    USAGE = 64
    """Bad usage or an invalid scenario; nothing was started."""
    BUG = 70
    """A defect of the harness itself."""


PRECEDENCE = (
    ExitCode.NOT_HEALED,
    ExitCode.BUG,
    ExitCode.ABORTED,
    ExitCode.NOT_INJECTED,
    ExitCode.NOT_STEADY,
    ExitCode.FAIL,
    ExitCode.UNKNOWN,
    ExitCode.PASS,
)


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The outcome that decides among several; without any there is no evidence, so UNKNOWN."""
    return min(codes, key=PRECEDENCE.index, default=ExitCode.UNKNOWN)


class UsageError(Exception):
    """A mistake of the user's: the message names the value and the way out; exit code 64."""
