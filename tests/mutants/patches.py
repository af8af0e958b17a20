"""Where mistakes are put into the reference trainer: each helper makes a patch of a smaller function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray.train
import torch
from torch import Tensor

from tests.mutants.program import Patch
from trainer import launch, loop
from trainer.data import REST, Epoch
from trainer.observer import Observer
from trainer.saving import Save
from trainer.state import TrainState


@dataclass(frozen=True)
class Before:
    """What a state held before a load, and the checkpoint directory that it was loaded from."""

    scheduler: dict[str, Any]
    random: dict[int, Tensor]
    weights: dict[str, Tensor]
    folder: Path


def local(parameter: Tensor) -> Tensor:
    """This rank's part of a parameter, sharing its memory."""
    part: Tensor = parameter.detach().to_local()  # type: ignore[attr-defined]
    return part


def after_restore(mistake: Callable[[TrainState, Before], None]) -> Patch:
    """Make a mistake in the load itself, before the program tells what it has restored."""

    def patch() -> None:
        original = TrainState.restore

        def restore(self: TrainState, folder: str | Path) -> None:
            before = Before(
                scheduler=self.scheduler.state_dict(),
                random={slot: state.clone() for slot, state in self.randomness.states.items()},
                weights={name: local(p).clone() for name, p in self.model.named_parameters()},
                folder=Path(folder),
            )
            original(self, folder)
            mistake(self, before)

        TrainState.restore = restore  # type: ignore[method-assign]

    return patch


def after_resume(mistake: Callable[[TrainState], None]) -> Patch:
    """Make a mistake between the load, which was right and told to be, and the first step."""

    def patch() -> None:
        original = loop.resume

        def resume(state: TrainState, observer: Observer) -> None:
            original(state, observer)
            if ray.train.get_checkpoint() is not None:
                mistake(state)

        loop.resume = resume

    return patch


def where_resumed(patch: Patch) -> Patch:
    """Patch only a worker that goes on from a checkpoint."""

    def patch_resumed() -> None:
        if ray.train.get_checkpoint() is not None:
            patch()

    return patch_resumed


def saving_by(make: Callable[[Save], Save]) -> Patch:
    """Put something around the way to save, which it is given."""

    def patch() -> None:
        original = loop.saver
        loop.saver = lambda config: make(original(config))

    return patch


def reading(epoch: Callable[[Epoch], Callable[[], Any]]) -> Patch:
    """Hand out other data than the rest of the epoch; for the driver."""

    def patch() -> None:
        original = launch.datasets

        def datasets(*arguments: Any) -> dict[str, Any]:
            found = original(*arguments)
            return {**found, REST: epoch(found[REST])}  # type: ignore[arg-type]

        launch.datasets = datasets

    return patch


def both(*patches: Patch) -> Patch:
    """One patch after the other."""

    def patch() -> None:
        for one in patches:
            one()

    return patch


def take_back_weights(state: TrainState, before: Before) -> None:
    """The weights of before the load."""
    with torch.no_grad():
        for name, parameter in state.model.named_parameters():
            local(parameter).copy_(before.weights[name])


def experiment() -> Path:
    """The directory of the run, which holds its checkpoints."""
    return Path(ray.train.get_context().get_storage().experiment_fs_path)


def stored() -> list[Path]:
    """Every checkpoint directory of the run, committed or not, in the order of time."""
    return sorted(experiment().glob("checkpoint_*"))
