"""Abort, as an assertion in native code (NCCL's watchdog, glibc, CUDA) would."""

from __future__ import annotations

import os

from chaos.faults.base import Fault, Proof, register


@register
class Abort(Fault):
    """SIGABRT by the process's own ``abort()``."""

    name = "abort"
    effect = "the process has left the process table, ended by SIGABRT"
    certifies = "that the job survives an abort in native code, as NCCL's watchdog or a failed assertion causes it"
    not_certified = "what a real watchdog does before it aborts: dumps, and the abort of other communicators"
    proof = Proof.EXIT

    @property
    def cause(self) -> str:
        """The signal."""
        return "SIGABRT"

    def fire(self) -> None:
        """Abort, here."""
        os.abort()
