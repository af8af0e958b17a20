"""Slow a rank down by stopping it again and again, as a throttled or crowded machine would."""

from __future__ import annotations

import signal
import time
from collections.abc import Generator
from dataclasses import dataclass

from chaos.faults.base import Attack, Scene, register
from chaos.faults.freeze import stop
from chaos.process import Identity


@register
@dataclass(frozen=True)
class Straggler(Attack):
    """Duty-cycled SIGSTOP and SIGCONT.

    ``seconds``: for how long. ``stopped_s`` and ``running_s``: the two parts of a cycle, seconds.
    """

    name = "straggler"
    effect = "the kernel showed the process as stopped, cycle after cycle"
    certifies = "that a slow but healthy rank slows the job and does not restart it"
    not_certified = "slowness of one link or one GPU, which slows some operations only"
    breaks = False

    seconds: float = 8.0
    stopped_s: float = 0.2
    running_s: float = 0.2

    def attack(self, victim: Identity, scene: Scene) -> Generator[float]:
        """Cycle until the time is over, then confirm."""
        end = time.monotonic() + self.seconds
        cycles, stood = 0, 0.0
        try:
            while time.monotonic() < end and victim.alive():
                begin = time.monotonic()
                yield from stop(victim)
                scene.release()
                yield self.stopped_s
                victim.send(signal.SIGCONT)
                cycles, stood = cycles + 1, stood + time.monotonic() - begin
                yield self.running_s
        finally:
            victim.send(signal.SIGCONT)
        if cycles and victim.alive():
            scene.confirm(f"process {victim.pid} was stopped {cycles} times, {stood:.1f} of {self.seconds:g} s in all")
