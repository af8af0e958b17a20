"""Read address zero, as a broken native extension would."""

from __future__ import annotations

import ctypes

from chaos.faults.base import Fault, Proof, register


@register
class Segfault(Fault):
    """A real invalid read in native code: the kernel sends SIGSEGV, handlers of Ray and of the program may run."""

    name = "segfault"
    effect = "the process has left the process table, ended by SIGSEGV"
    certifies = "that the job survives a crash in native code, crash handlers and their delay included"
    not_certified = "memory silently corrupted before the crash; a crash in a GPU driver"
    proof = Proof.EXIT

    @property
    def cause(self) -> str:
        """The signal."""
        return "SIGSEGV"

    def fire(self) -> None:
        """Crash, here."""
        ctypes.string_at(0)
