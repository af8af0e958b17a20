"""Eat memory until somebody ends the process: Ray's memory monitor, or a bound of the machine."""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass

from chaos.faults.base import Fault, Proof, register

PIECE_MIB = 64
PATIENCE_S = 60.0


@register
@dataclass(frozen=True)
class OutOfMemory(Fault):
    """Touch page after page, at most ``most_mib``; the monitor of the node's raylet must end the process before that.

    Scenarios set the monitor's threshold on the raylet of the target's node only, so the machine itself stays well.
    ``most_mib``: MiB; when nobody has ended the process a minute after that, it lets go of the memory again.
    """

    name = "oom"
    effect = "the process has left the process table, and Ray names memory as the cause"
    certifies = "that a worker ended for its memory is named as such, uses its budget, and the job resumes"
    not_certified = "the kernel's own out-of-memory killer, which may choose another victim"
    proof = Proof.EXIT
    within_s = PATIENCE_S

    most_mib: int = 8192

    @property
    def cause(self) -> str:
        """The signal that Ray's memory monitor sends."""
        return "SIGKILL"

    def fire(self) -> None:
        """Eat, here."""
        eaten = []
        for _ in range(self.most_mib // PIECE_MIB):
            piece = mmap.mmap(-1, PIECE_MIB << 20)
            for page in range(0, len(piece), mmap.PAGESIZE):
                piece[page] = 1
            eaten.append(piece)
        time.sleep(PATIENCE_S)
