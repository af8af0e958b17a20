"""Programs of the catalogue in a world of one, without Ray: what they train, save, restore and change."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import ray.train
import ray.train.torch
import torch
from ray.train.v2._internal.execution.storage import StorageContext

from chaos.digest import tree_digests
from tests.mutants.program import Patch
from trainer import data, dealing, launch, loop, saving, state
from trainer.config import TrainerConfig
from trainer.state import TrainState

OWNERS = (loop, saving, state, data, dealing, launch, TrainState, StorageContext, torch.optim)
"""What patches change functions of."""

CONFIG = TrainerConfig(
    workers=1, micro_batches=4, batch_size=2, sequence_length=8, layers=2, width=16, heads=2, dropout=0.2,
    warmup_steps=1, steps=6, checkpoint_every=2, log_every=100,
)  # fmt: skip


@contextmanager
def patched(*patches: Patch) -> Iterator[set[str]]:
    """Apply patches, for a while; gives the names of what they changed.

    Raises AssertionError when one makes a name that was not there.
    """
    before = [(owner, dict(vars(owner))) for owner in OWNERS]
    try:
        for patch in patches:
            patch()
        changed = {
            f"{owner.__name__}.{name}": name in held
            for owner, held in before
            for name, value in vars(owner).items()
            if held.get(name) is not value
        }
        assert all(changed.values()), changed
        yield set(changed)
    finally:
        for owner, held in before:
            for name in [name for name, value in vars(owner).items() if held.get(name) is not value]:
                setattr(owner, name, held[name])


class Killed(Exception):
    """A life was cut short."""


@dataclass
class Life:
    """What one life of the training loop told, as an observer. ``until``: the step in which it is killed, 0 for none.

    ``steps``: samples and loss of each. ``saved``: digests of what was told at each save, by step.
    """

    until: int = 0
    steps: list[tuple[list[int], float]] = field(default_factory=list)
    saved: dict[int, dict[str, str]] = field(default_factory=dict)
    restored: dict[str, str] = field(default_factory=dict)
    _ids: list[int] = field(default_factory=list)

    def samples(self, ids: Any) -> None:
        self._ids += ids

    def loss(self, value: float) -> None:
        if self.until and len(self.steps) + 1 == self.until:
            raise Killed
        self.steps.append((self._ids, value))
        self._ids = []

    def state(self, name: str, tree: Any) -> None:
        digests = tree_digests(tree)
        if name == "restored":
            self.restored = digests
        else:
            self.saved[tree["progress"]["step"]] = digests


def batches(config: TrainerConfig, samples: int) -> Iterator[data.MicroBatch]:
    """The micro-batches of a run from that position on, in place of Ray Data's."""
    for number in range(samples // config.batch_size, 1000):
        generator = torch.Generator().manual_seed(number)
        tokens = torch.randint(0, 256, (config.batch_size, config.sequence_length + 1), generator=generator)
        first = number * config.batch_size
        yield data.MicroBatch(list(range(first, first + config.batch_size)), tokens)


def live(patch: Patch, folder: Path, checkpoint: Path | None = None, until: int = 0) -> Life:
    """One life of a program: from a checkpoint or the seed, to the end or to the step in which it is killed."""
    life = Life(until)
    folder.mkdir(parents=True, exist_ok=True)
    given = None if checkpoint is None else ray.train.Checkpoint.from_directory(checkpoint)

    def report(metrics: dict[str, Any], checkpoint: Any = None) -> None:
        if checkpoint is not None:
            shutil.copytree(checkpoint.path, folder / f"checkpoint_{metrics['step']:06d}")

    with pytest.MonkeyPatch.context() as stand_in:
        stand_in.setattr(ray.train.torch, "get_device", lambda: torch.device("cpu"))
        stand_in.setattr(ray.train, "get_checkpoint", lambda: given)
        stand_in.setattr(ray.train, "report", report)
        stand_in.setattr(loop, "micro_batches", batches)
        stand_in.setattr(loop, "find_observer", lambda name: life)
        with patched(patch), suppress(Killed):
            loop.train(dataclasses.asdict(CONFIG))
    return life
