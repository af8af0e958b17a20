"""Leave one collective out on one rank, as a branch that depends on the rank would."""

from __future__ import annotations

import time
from dataclasses import dataclass

from chaos.faults.base import Fault, Proof, register


@register
@dataclass(frozen=True)
class SkipCollective(Fault):
    """Every rank but the target takes part in one all-reduce at the point; the target goes on without it.

    So the ranks disagree on what comes next, and each waits for the others until the process group's time-out.
    """

    name = "skip-collective"
    effect = "the ranks stand in different collectives, and no rank completes a step"
    certifies = "that ranks out of step end by the process group's time-out, with one restart"
    not_certified = "NCCL, where a mismatch may also corrupt data or crash; the debug checks of torch (DETAIL)"
    proof = Proof.BLOCKED
    noticed_by = ("process_group",)
    in_training_thread = True
    with_peers = True

    def fire(self) -> None:
        """Leave it out; the pause lets the others arrive in theirs first."""
        time.sleep(0.1)

    def accompany(self) -> None:
        """The collective that the target leaves out; it waits for ever, so it raises at the time-out."""
        import torch
        import torch.distributed as dist

        if dist.is_initialized():
            dist.all_reduce(torch.zeros(1))
