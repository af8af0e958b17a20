"""Eat memory until somebody ends the process: Ray's memory monitor, or a bound of the machine."""

from __future__ import annotations

import time
from dataclasses import dataclass

from chaos.faults.base import Fault, Proof, register

PIECE_MIB = 64
PIECE_S = 0.02
"""The pause after each piece, so that a monitor which looks four times a second is not overrun."""

PATIENCE_S = 60.0


@register
@dataclass(frozen=True)
class OutOfMemory(Fault):
    """Take piece after piece of memory; the monitor of the node's raylet must end the process before all is taken.

    Scenarios set the monitor's threshold on the raylet of the target's node only, so the machine itself stays well.
    ``most_mib``: how much, MiB; when nobody has ended the process a minute after that, it lets go of the memory again.
    """

    name = "oom"
    effect = "the process has left the process table, ended by SIGKILL"
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
            eaten.append(bytearray(b"\1") * (PIECE_MIB << 20))
            time.sleep(PIECE_S)
        time.sleep(PATIENCE_S)
