"""Mistakes in the optimizer's state."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.optim import Optimizer

from tests.mutants.patches import Before, after_restore
from tests.mutants.program import DIFFERS, Mutant
from trainer import state as states
from trainer.state import TrainState


def forget_optimizer(state: TrainState, before: Before) -> None:
    """Pytorch issue 140898: the moments of Adam start from zero."""
    state.optimizer.state.clear()


def reset_step_count(state: TrainState, before: Before) -> None:
    """Adam corrects the bias of its moments as in its first steps."""
    for held in state.optimizer.state.values():
        held["step"].zero_()


def round_moments(state: TrainState, before: Before) -> None:
    """The moments pass through bfloat16 on their way back."""
    for held in state.optimizer.state.values():
        for name in ("exp_avg", "exp_avg_sq"):
            held[name].copy_(held[name].bfloat16())


def swap_moments(state: TrainState, before: Before) -> None:
    """States are kept by the place of a parameter, and two layers of equal shape have changed places."""
    found, held = dict(state.model.named_parameters()), state.optimizer.state
    first, second = (found[f"blocks.{number}.project.weight"] for number in (0, 1))
    held[first], held[second] = held[second], held[first]


def default_weight_decay(state: TrainState, before: Before) -> None:
    """The groups are built anew after the load, without the configured weight decay."""
    for group in state.optimizer.param_groups:
        group["weight_decay"] = 0.01


def leave_optimizer_out() -> None:
    """Neither saved nor loaded nor told."""
    original = TrainState.tree

    def tree(self: TrainState) -> dict[str, Any]:
        return {**original(self), "optimizer": {}}

    def set_state_dict(
        model: nn.Module,
        optimizer: Optimizer,
        *,
        model_state_dict: dict[str, Any],
        optim_state_dict: dict[str, Any],
        options: StateDictOptions,
    ) -> None:
        set_model_state_dict(model, model_state_dict, options=options)

    TrainState.tree = tree  # type: ignore[method-assign]
    states.set_state_dict = set_state_dict  # type: ignore[assignment]


def round_weights(state: TrainState, before: Before) -> None:
    """The weights were stored in half the precision that they are trained in."""
    with torch.no_grad():
        for parameter in state.model.parameters():
            parameter.copy_(parameter.bfloat16())


MUTANTS = (
    Mutant(
        name="optimizer-not-restored",
        caught_by="restored-state",
        also=DIFFERS,
        worker=after_restore(forget_optimizer),
    ),
    Mutant(
        name="step-count-of-adam-reset",
        caught_by="restored-state",
        also=DIFFERS,
        worker=after_restore(reset_step_count),
    ),
    Mutant(
        name="moments-rounded",
        caught_by="restored-state",
        also=DIFFERS,
        worker=after_restore(round_moments),
    ),
    Mutant(
        name="moments-of-another-layer",
        caught_by="restored-state",
        also=DIFFERS,
        worker=after_restore(swap_moments),
    ),
    Mutant(
        name="weight-decay-of-defaults",
        caught_by="restored-state",
        also=DIFFERS,
        worker=after_restore(default_weight_decay),
    ),
    Mutant(
        name="optimizer-left-out",
        caught_by="trajectory",
        also=frozenset({"control-state"}),
        worker=leave_optimizer_out,
    ),
    Mutant(
        name="weights-rounded",
        caught_by="restored-state",
        also=DIFFERS,
        worker=after_restore(round_weights),
    ),
)
