"""Kill the process at once, as the kernel's out-of-memory killer or an operator would."""

from __future__ import annotations

import os
import signal

from chaos.faults.base import Fault, Proof, register


@register
class Kill(Fault):
    """SIGKILL to the training process itself: no handler runs, no buffer is flushed, no peer is told."""

    name = "kill"
    effect = "the process has left the process table, ended by SIGKILL"
    certifies = "that the job survives the sudden death of a worker: detection by its peers and by Ray, restart, resume"
    not_certified = "loss of a machine, a link or a GPU; NCCL, which waits where gloo fails at once on a dead peer"
    proof = Proof.EXIT

    @property
    def cause(self) -> str:
        """The signal."""
        return "SIGKILL"

    def fire(self) -> None:
        """Die, here."""
        os.kill(os.getpid(), signal.SIGKILL)
