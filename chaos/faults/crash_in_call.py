"""Kill a process inside an operation on files: on entering its n-th system call of one kind on one file."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from chaos import strace
from chaos.faults.base import Attack, Scene, register
from chaos.process import Identity

ATTACH_S = 20.0
COMES_S = 30.0
LOOK_S = 0.002
FLUSHED_S = 5.0


@dataclass(frozen=True)
class InCall(Attack):
    """SIGKILL on entering that call, which is then not carried out; strace delivers it.

    ``call``: name of the system call. ``file``: its file, relative to the folder that the victim's point is about.
    ``nth``: which call of the kind on that file. ``left``: which part of the file is left afterwards; below 1 it is
    cut, as a machine that loses its power in mid-write leaves it. ``late_s``: how long the victim is held first, in
    seconds, so that other ranks come before it.
    """

    effect = "strace noted that the process was killed on entering that very call"
    not_certified = "the loss of what a machine had not written to its disk yet: the page cache outlives a process"
    outlives = True

    call: str = "openat"
    file: str = ".metadata"
    nth: int = 1
    left: float = 1.0
    late_s: float = 0.001

    def attack(self, victim: Identity, scene: Scene) -> Generator[float]:
        """Trace, let the victim go on, wait for the end of the one aimed at, read what strace noted."""
        aimed, path = self.touches(victim, scene), os.path.normpath(os.path.join(scene.place, self.file))
        if aimed is None:
            raise TimeoutError("the controller's process is not known")
        if not scene.place:
            raise TimeoutError("the folder that the victim's point is about is not known")
        yield self.late_s
        if not aimed.alive():
            raise TimeoutError(f"process {aimed.pid} was gone before it could be traced")
        log = scene.folder / f"{self.name}-{aimed.pid}-{time.monotonic_ns()}.strace"
        command = [*strace.kill(log, self.call, path, self.nth), "-p", str(aimed.pid)]
        with tracing(scene, aimed, command) as tracer:
            yield from attached(tracer, aimed)
            scene.release()
            end = time.monotonic() + COMES_S
            while aimed.alive() and tracer.poll() is None and time.monotonic() < end:
                yield LOOK_S
        told = [call for call in strace.calls(log) if call.name == self.call]
        if not any(call.killed for call in told[self.nth - 1 :]):
            raise TimeoutError(f"{self.call} on {path} came {len(told)} times, not {self.nth}, or did not end it")
        scene.confirm(f"killed on entering {self.call} {self.nth} on {self.file}{self._cut(path)}")

    def _cut(self, path: str) -> str:
        """Leave only a part of the file; what was done, in words."""
        if self.left >= 1:
            return ""
        size = Path(path).stat().st_size
        os.truncate(path, int(size * self.left))
        return f", and cut to {int(size * self.left)} of {size} bytes"


@register
class CrashInCall(InCall):
    """A training process dies in the middle of its save, or of the copy to the storage."""

    name = "crash-in-call"
    certifies = "that a checkpoint left half-made, at this very point, is never taken for a whole one"
    points = ("save", "transfer")


@register
class CrashControllerInCall(InCall):
    """Ray Train's controller dies in the middle of its record of checkpoints, or of deleting one; so the job ends.

    The victim is held right before its report, until the controller is traced.
    """

    name = "crash-controller-in-call"
    certifies = "that a new start of the same job resumes, whatever its controller was doing when it died"
    points = ("report",)

    def touches(self, victim: Identity, scene: Scene) -> Identity | None:
        """The controller."""
        return scene.controller


@contextlib.contextmanager
def tracing(scene: Scene, aimed: Identity, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A tracer of that process; it is ended in any case, after its last note."""
    tracer = scene.nodes.tool(command)
    try:
        yield tracer
    finally:
        strace.end(tracer, 0.0 if aimed.alive() else FLUSHED_S)


def attached(tracer: subprocess.Popen[bytes], aimed: Identity) -> Iterator[float]:
    """Wait until every thread is traced.

    Raises TimeoutError, with what the tracer said, when that does not come about.
    """
    end = time.monotonic() + ATTACH_S
    while not strace.traces(tracer.pid, aimed.pid):
        if tracer.poll() is not None:
            said = tracer.stderr.read().decode(errors="replace").strip() if tracer.stderr else ""
            raise TimeoutError(f"process {aimed.pid} could not be traced: {said}")
        if time.monotonic() > end:
            raise TimeoutError(f"process {aimed.pid} was not traced within {ATTACH_S:g} s")
        yield LOOK_S
