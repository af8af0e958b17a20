"""System calls of other processes, by strace: which of them touch files, and a kill on entering the n-th of a kind.

Debian's strace 6 attaches to a process with all its threads; it takes root, or a kernel that lets one trace processes
that are not one's children. This module is imported inside training processes: it stays with the standard library.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import signal
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CALLS = (
    "mkdir", "mkdirat", "openat", "write", "pwrite64", "fsync", "rename", "renameat", "renameat2", "close", "unlink",
    "unlinkat", "rmdir",
)  # fmt: skip
"""The calls by which files come, fill, move and go; not every processor has all of them."""

FIRST_SEEN = ("-f", "-y", "-qq", "-s", "0")
"""All threads; paths beside descriptors; no remarks; no data."""

ASKED, ASKED_S = 20, 0.5

_LINE = re.compile(r"^(?P<thread>\d+) +(?P<name>\w+)\((?P<arguments>.*)$")
_KILLED = re.compile(r"^(?P<thread>\d+) +\+\+\+ killed by SIGKILL \+\+\+$")
_NOT_DONE = re.compile(r"(\) += \?|<unfinished \.\.\.>)$")
_OPENED = re.compile(r"^\d+<(?P<path>[^>]*)>")
_BELOW = re.compile(r'^(?:AT_FDCWD|\d+)(?:<(?P<folder>[^>]*)>)?, "(?P<path>[^"]*)"')
_PLAIN = re.compile(r'^"(?P<path>[^"]*)"')
_FLAGS = re.compile(r"\b(O_WRONLY|O_RDWR|O_CREAT)\b")


@dataclass(frozen=True)
class Call:
    """One call on one file: ``writes`` unless it opens the file only to read; ``killed``: it was not carried out.

    ``path`` leads through no link: so the kernel names the file of a descriptor.
    """

    thread: int
    name: str
    path: str
    writes: bool
    killed: bool


def record(log: Path) -> list[str]:
    """The command that notes the calls that touch files; what follows is ``-p PID``, or the command to run under it."""
    known = ",".join(f"?{call}" for call in CALLS)
    return ["strace", *FIRST_SEEN, "-e", f"trace={known}", "-o", str(log)]


def kill(log: Path, call: str, path: str, nth: int) -> list[str]:
    """The command that sends SIGKILL on entering the n-th call of that name on that file; it goes on as ``record``'s.

    A thread counts its calls by itself: the file must be one thread's. The call that is killed is not carried out.
    """
    paths = [word for name in dict.fromkeys((path, real(path))) for word in ("-P", name)]
    aim = [*paths, "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={nth}"]
    return ["strace", *FIRST_SEEN, *aim, "-o", str(log)]


def traces(tracer: int, pid: int) -> bool:
    """Whether every thread of a process is under that tracer."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        states = [Path(f"/proc/{pid}/task/{thread}/status").read_text() for thread in threads]
    except OSError:
        return False
    return bool(states) and all(f"TracerPid:\t{tracer}\n" in state for state in states)


def end(tracer: subprocess.Popen[bytes], itself_s: float = 0.0) -> None:
    """End a tracer in a session of its own, which lets its processes go on; it may end by itself for that long first.

    A SIGTERM that comes right before strace begins to wait is seen only after the next one, so it is sent until the
    tracer is gone; SIGKILL in the end, at which the kernel lets the processes go. Children by which strace tries the
    kernel at its start would outlive an early end, with its pipes open: they are in its session, and end with it.
    """
    if tracer.poll() is None:
        handle = os.pidfd_open(tracer.pid)
        try:
            _end_session(tracer.pid, handle, itself_s)
        finally:
            os.close(handle)
        tracer.wait()
    for pipe in filter(None, (tracer.stdout, tracer.stderr)):
        pipe.close()


def _end_session(pid: int, handle: int, itself_s: float) -> None:
    """End a tracer and then its session, before it is reaped: until then nobody else's can have that number."""
    gone = select.poll()
    gone.register(handle, select.POLLIN)
    for wait_s in (itself_s, *[ASKED_S] * ASKED):
        if gone.poll(wait_s * 1000):
            break
        signal.pidfd_send_signal(handle, signal.SIGTERM)
    else:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        gone.poll()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def calls(log: Path) -> list[Call]:
    """The calls on files that strace noted, in order; empty where it noted nothing."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return list(_calls(lines))


def _calls(lines: list[str]) -> Iterator[Call]:
    killed = {int(found["thread"]) for line in lines if (found := _KILLED.match(line))}
    last = {int(found["thread"]): number for number, line in enumerate(lines) if (found := _LINE.match(line))}
    for number, line in enumerate(lines):
        found = _LINE.match(line)
        path = _path(found["arguments"]) if found else ""
        if found is None or not path:
            continue
        thread = int(found["thread"])
        over = thread in killed and last[thread] == number and _NOT_DONE.search(line) is not None
        writes = found["name"] != "openat" or _FLAGS.search(found["arguments"]) is not None
        yield Call(thread, found["name"], path, writes, over)


def _path(arguments: str) -> str:
    """The file that a call is about, from its arguments as strace writes them; empty for none."""
    if found := _BELOW.match(arguments):
        return real(os.path.join(found["folder"] or "", found["path"]))
    if found := _PLAIN.match(arguments):
        return real(found["path"])
    found = _OPENED.match(arguments)
    return found["path"] if found else ""


@functools.lru_cache(maxsize=4096)
def real(path: str) -> str:
    """The same file by a path that leads through no link; a link itself, and a relative path, stay as they are."""
    folder, name = os.path.split(os.path.normpath(path))
    return os.path.join(os.path.realpath(folder) if folder.startswith("/") else folder, name)


def below(found: Iterable[Call], folder: str) -> list[Call]:
    """Those on a folder or on what lies below it, in order."""
    return [call for call in found if call.path == folder or call.path.startswith(f"{folder}/")]
