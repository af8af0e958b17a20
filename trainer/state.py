"""Everything a resume needs, as one tree that DCP saves sharded and loads at any world size."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)
STAMP = "stamp"


class TornCheckpoint(RuntimeError):
    """The shards of a checkpoint carry different steps: it mixes two saves and must not be trained on."""


@dataclass
class SlotRandomness:
    """Random states that belong to the M micro-batch slots of a step, not to ranks.

    A slot's state is handed to whichever rank owns the slot, so dropout draws the same numbers at any world size.
    """

    device: torch.device
    states: dict[int, Tensor]

    @classmethod
    def seeded(cls, seed: int, slots: range, device: torch.device) -> SlotRandomness:
        """Give every slot of this rank a state of its own, derived from the seed."""
        seeds = {slot: (seed * 1_000_003 + slot + 1) % 2**63 for slot in slots}
        states = {slot: torch.Generator(device).manual_seed(own).get_state() for slot, own in seeds.items()}
        return cls(device, states)

    def enter(self, slot: int) -> None:
        """Go on drawing where this slot stopped."""
        if self.device.type == "cpu":
            torch.set_rng_state(self.states[slot])
        else:
            torch.get_device_module(self.device).set_rng_state(self.states[slot], self.device)

    def leave(self, slot: int) -> None:
        """Remember where this slot stopped."""
        if self.device.type == "cpu":
            self.states[slot] = torch.get_rng_state()
        else:
            self.states[slot] = torch.get_device_module(self.device).get_rng_state(self.device)


@dataclass
class TrainState:
    """The live objects of one rank and the position that the run has reached.

    ``step``: optimizer steps done. ``samples``: sequences that all ranks together were trained on in them.
    """

    model: nn.Module
    optimizer: Optimizer
    scheduler: LambdaLR
    randomness: SlotRandomness
    step: int = field(default=0)
    samples: int = field(default=0)

    def tree(self) -> dict[str, Any]:
        """The state as a nested dict of (sharded) tensors and plain values, the form that DCP saves and loads in.

        ``stamp`` holds the step once per rank, so that every shard file tells which save it belongs to.
        """
        model, optimizer = get_state_dict(self.model, self.optimizer, options=OPTIONS)
        return {
            "model": model,
            "optimizer": optimizer,
            "scheduler": self.scheduler.state_dict(),
            "random": {f"slot{slot}": state for slot, state in self.randomness.states.items()},
            "progress": {"step": self.step, "samples": self.samples},
            STAMP: {f"rank{dist.get_rank()}": torch.tensor([self.step])},
        }

    def restore(self, folder: str | Path) -> None:
        """Load every part from a checkpoint directory.

        Raises TornCheckpoint when its shards stem from different steps.
        """
        tree = self.tree()
        tree[STAMP] = {name: torch.tensor([-1]) for name in _stamps(folder)}
        load(tree, checkpoint_id=folder)
        self.step, self.samples = int(tree["progress"]["step"]), int(tree["progress"]["samples"])
        stamps = {name: int(stamp) for name, stamp in tree[STAMP].items()}
        if set(stamps.values()) != {self.step}:
            raise TornCheckpoint(f"{folder}: metadata say step {self.step}, the shards say {stamps}")
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=tree["model"],
            optim_state_dict=tree["optimizer"],
            options=OPTIONS,
        )
        self.scheduler.load_state_dict(tree["scheduler"])
        self.randomness.states = {int(name.removeprefix("slot")): s for name, s in tree["random"].items()}

    def follow_schedule(self) -> None:
        """Set the learning rate of the coming step anew: a checkpoint holds that of the world size which saved it."""
        schedule = self.scheduler
        for group, peak, share in zip(self.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True):
            group["lr"] = peak * share(schedule.last_epoch)


def _stamps(folder: str | Path) -> list[str]:
    """Names of the ranks that left a stamp in the checkpoint."""
    keys = FileSystemReader(folder).read_metadata().state_dict_metadata
    return [key.removeprefix(f"{STAMP}.") for key in keys if key.startswith(f"{STAMP}.")]
