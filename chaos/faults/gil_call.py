"""A healthy native call that keeps the interpreter lock for a while, as tokenizers and compilers do."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.faults.base import register
from chaos.faults.delay import Delay
from chaos.faults.hang_gil import hold_lock


@register
@dataclass(frozen=True)
class GilCall(Delay):
    """The process answers nothing for ``seconds``, and is well."""

    name = "gil-call"
    effect = "the process answered nothing for the whole time, and went on"
    certifies = "that a process which is silent for less than the health check's time-out is left alone"
    not_certified = "silence close to the time-out, where load decides"

    def fire(self) -> None:
        """Keep the lock, here."""
        hold_lock(self.seconds)
