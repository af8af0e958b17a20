"""Make one point of the training take longer: a long save, a slow first step, a long evaluation, slow steps."""

from __future__ import annotations

import time
from dataclasses import dataclass

from chaos.faults.base import Fault, Proof, register


@register
@dataclass(frozen=True)
class Delay(Fault):
    """A healthy rank that takes its time.

    ``seconds``: how long.
    """

    name = "delay"
    effect = "the rank stood at the point for the whole time, and went on"
    certifies = "that a healthy rank which is late is waited for, and nothing restarts"
    not_certified = "slowness that grows without bound"
    proof = Proof.ENDED
    breaks = False
    in_training_thread = True

    seconds: float = 5.0

    def fire(self) -> None:
        """Take the time, here."""
        end = time.monotonic() + self.seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(left)
