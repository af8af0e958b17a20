"""Notice of nodes about to be taken away, and the checkpoints just in time that it calls for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import ray.train
import torch.distributed as dist

if TYPE_CHECKING:
    from ray.train import PreemptionInfo


@dataclass
class PreemptionWatch:
    """Asks Ray every ``every`` steps whether nodes of this group are about to be taken away; 0 for never.

    Ray's answer is rank 0's, broadcast to all: every rank must ask at the same steps, and all come to one decision.
    From the notice to the end of the group each look calls for a checkpoint, so at most ``every`` steps are lost, and
    those that a report under way takes. ``announced``: deadlines already told, in Unix milliseconds; None stands for a
    notice without a deadline.
    """

    every: int
    announced: set[int | None] = field(default_factory=set)

    def calls_for_checkpoint(self, step: int) -> bool:
        """Whether nodes are about to be taken away; rank 0 prints the notice, once for each deadline."""
        if not self.every or step % self.every:
            return False
        notice = ray.train.get_preemption_info()
        if notice is None:
            return False
        if notice.deadline_ms not in self.announced:
            self.announced.add(notice.deadline_ms)
            if dist.get_rank() == 0:
                print(announcement(notice, step, time.time()), flush=True)
        return True


def announcement(notice: PreemptionInfo, step: int, now: float) -> str:
    """One line on who will be lost and when; ``now`` in seconds of Unix time."""
    ranks = ", ".join(map(str, notice.preempted_ranks))
    when = "soon" if notice.deadline_ms is None else f"in {max(0.0, notice.deadline_ms / 1000 - now):.1f} s"
    return f"step {step:>5}  preemption announced: ranks {ranks} will be lost {when}; saving at every look from now on"
