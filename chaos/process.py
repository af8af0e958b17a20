"""Who a process is, and how to signal it only when it is provably ours.

A pid alone proves nothing, since pids are reused: an identity is a pid with its start time in clock ticks.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARKER = "AFTERSHOCK_RUN"
"""Environment variable that every process of a run inherits; its value is the run's id."""


@dataclass(frozen=True)
class Identity:
    """One life of one process on this machine: its pid and start time (clock ticks since boot)."""

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """The identity of a running process; None when there is none with that pid, or only a zombie."""
        fields = _stat(pid)
        return cls(pid, int(fields[19])) if fields and fields[0] not in "ZX" else None

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return Identity.of(self.pid) == self

    def stopped(self) -> bool:
        """Whether this very process is stopped by a signal (state T)."""
        fields = _stat(self.pid)
        return bool(fields) and fields[0] == "T" and int(fields[19]) == self.start

    def send(self, number: int) -> bool:
        """Signal this very process, and no other that reuses its pid; False when it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(handle, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)


_EXIT_INFO = struct.Struct("=QQ11Ii")
"""Of Linux's ``pidfd_info``: mask, cgroup, eleven ids, exit code."""
_EXIT_ASKED = 1 << 3
_PIDFD_GET_INFO = 3 << 30 | _EXIT_INFO.size << 16 | 0xFF << 8 | 11


def exit_cause(handle: int) -> str:
    """How the process of a pidfd ended: a signal's name or ``exit code N``.

    Empty while it runs, and where the kernel (before Linux 6.15) does not tell.
    """
    answer = bytearray(_EXIT_INFO.pack(_EXIT_ASKED, *[0] * 13))
    try:
        fcntl.ioctl(handle, _PIDFD_GET_INFO, answer)
    except OSError:
        return ""
    mask, *_, status = _EXIT_INFO.unpack(answer)
    if not mask & _EXIT_ASKED:
        return ""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"exit code {os.waitstatus_to_exitcode(status)}"


def current() -> Identity:
    """The identity of the calling process."""
    found = Identity.of(os.getpid())
    assert found is not None
    return found


def _stat(pid: int) -> list[str]:
    """Fields of ``/proc/PID/stat`` from the state on; empty when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text[text.rindex(")") + 2 :].split()


def session_of(pid: int) -> int:
    """The session a process belongs to; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[3]) if fields else 0


def name_of(pid: int) -> str:
    """The name of a process's program, at most 15 characters; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def pids() -> Iterator[int]:
    """Every process of this machine that we may see."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def carries_marker(pid: int, run_id: str) -> bool:
    """Whether the process inherited the marker of that run; unreadable counts as no."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARKER}={run_id}".encode() in environment.split(b"\0")


def holds_file_below(pid: int, folder: Path) -> bool:
    """Whether the process has a file open, or its working directory, below that folder; unreadable counts as no."""
    prefix = f"{folder.resolve()}/"
    try:
        names = [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return False
    return any(_target(name).startswith(prefix) for name in (*names, f"/proc/{pid}/cwd"))


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def ours(run_id: str, sessions: frozenset[int], folder: Path) -> list[Identity]:
    """Every live process that provably belongs to a run.

    Proof is the run's marker in the environment; or, since Ray overwrites the environment of its workers, an open
    file below the run's own folder together with membership in a session that the run started.
    """
    here = [Identity.of(pid) for pid in pids() if pid != os.getpid()]
    alive = [identity for identity in here if identity is not None]
    marked = {identity for identity in alive if carries_marker(identity.pid, run_id)}
    known = sessions | {session_of(identity.pid) for identity in marked}
    return [
        identity
        for identity in alive
        if identity in marked or (session_of(identity.pid) in known and holds_file_below(identity.pid, folder))
    ]
