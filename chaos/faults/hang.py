"""Block between two steps with the interpreter lock free, as a deadlock or a lost file system would."""

from __future__ import annotations

import time
from dataclasses import dataclass

from chaos.faults.base import Fault, Proof, register


@register
@dataclass(frozen=True)
class Hang(Fault):
    """The training thread blocks; all other threads of the process answer as ever.

    ``seconds``: how long at most.
    """

    name = "hang"
    effect = "the rank stands inside the fault, and no rank completes a step"
    certifies = "that a hang which answers every health check ends by the process group's time-out, with one restart"
    not_certified = "a hang inside an NCCL kernel, which its own watchdog aborts"
    proof = Proof.BLOCKED
    noticed_by = ("process_group",)
    in_training_thread = True

    seconds: float = 600.0

    def fire(self) -> None:
        """Block, here."""
        time.sleep(self.seconds)
