"""Block with the interpreter lock held, as a native extension that never returns would."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass

from chaos.faults.base import Fault, Proof, register


@register
@dataclass(frozen=True)
class HangGil(Fault):
    """No Python thread of the process runs any more, the ones that answer health checks included.

    ``seconds``: how long at most.
    """

    name = "hang-gil"
    effect = "the rank stands inside the fault, and no rank completes a step"
    certifies = "that a process whose interpreter is stuck is noticed from outside, and replaced"
    not_certified = "a process stuck in the kernel (state D), which not even SIGKILL ends"
    proof = Proof.BLOCKED
    noticed_by = ("process_group", "worker_health")
    in_training_thread = True

    seconds: float = 600.0

    def fire(self) -> None:
        """Block, here, in a C call that keeps the lock."""
        hold_lock(self.seconds)


def hold_lock(seconds: float) -> None:
    """Wait with the interpreter lock held; a signal cuts the wait short, so what is left of it is taken up again."""
    wait = ctypes.PyDLL(None).poll
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        wait(None, 0, max(1, int(left * 1000)))
