"""Allocate beyond a bound on the address space, as in a container that refuses instead of killing."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

from chaos.faults.base import Fault, Proof, register


@register
@dataclass(frozen=True)
class MemoryLimit(Fault):
    """A real allocation that a real bound (RLIMIT_AS) refuses: MemoryError in the training loop.

    ``room_mib``: MiB that the process may still take beyond what it has; the allocation asks for twice that.
    """

    name = "memory-limit"
    effect = "the controller has received MemoryError from the rank that was hit"
    certifies = "the path of a refused allocation: an exception at a bad moment, the budget used, the job resumed"
    not_certified = "GPU memory; the kernel's out-of-memory killer, which asks nobody"
    proof = Proof.ERROR
    error = "MemoryError"
    in_training_thread = True

    room_mib: int = 64

    def fire(self) -> None:
        """Set the bound and run into it, here; the bound is lifted again before the error goes up."""
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + (self.room_mib << 20), hard))
        try:
            bytearray(self.room_mib << 21)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
