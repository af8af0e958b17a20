"""Healthy programs and configurations that a judge too strict would fail."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ray.train
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import AdamW

from tests.mutants.catalogue.accumulation import warm_up
from tests.mutants.patches import after_resume
from tests.mutants.program import Variant
from tests.mutants.trials import ASYNCHRONOUS, EPOCHS, GROW, KILL, SHRINK, THREE
from trainer import loop, saving
from trainer.config import TrainerConfig
from trainer.data import MicroBatch
from trainer.observer import Observer
from trainer.state import TrainState


def slow(original: Callable[..., Any], rank: int, seconds: float) -> Callable[..., Any]:
    """The same function, which takes its time on one rank."""

    def slowed(*arguments: Any, **named: Any) -> Any:
        if dist.get_rank() == rank:
            time.sleep(seconds)
        return original(*arguments, **named)

    return slowed


def slow_save() -> None:
    """One rank writes slowly."""
    saving.save_sharded = slow(saving.save_sharded, rank=1, seconds=2.0)


def slow_evaluation() -> None:
    """One rank evaluates slowly."""
    loop.evaluate = slow(loop.evaluate, rank=0, seconds=1.0)


def at_once() -> None:
    """The optimizer updates all parameters in one go."""
    torch.optim.AdamW = functools.partial(AdamW, foreach=True)  # type: ignore[misc,assignment]


def in_groups() -> None:
    """Biases and norms do not decay, in a group of their own."""

    def grouped(parameters: Iterable[nn.Parameter], **options: Any) -> AdamW:
        found = list(parameters)
        matrices, vectors = ([p for p in found if (p.dim() > 1) is wide] for wide in (True, False))
        return AdamW([{"params": matrices}, {"params": vectors, "weight_decay": 0.0}], **options)

    torch.optim.AdamW = grouped  # type: ignore[misc,assignment]


def zeros_for_gradients() -> None:
    """Gradients are set to zero instead of none."""
    original = loop.new_state

    def new_state(config: TrainerConfig) -> TrainState:
        made = original(config)
        optimizer: Any = made.optimizer
        optimizer.zero_grad = functools.partial(optimizer.zero_grad, set_to_none=False)
        return made

    loop.new_state = new_state


def warm_up_cleanly(state: TrainState) -> None:
    """The pass is made, and its gradient thrown away."""
    warm_up(state)
    state.optimizer.zero_grad()


def report_between_saves() -> None:
    """Metrics are reported every third step, without a checkpoint."""
    original = loop.train_step

    def train_step(
        config: TrainerConfig, state: TrainState, batches: Iterator[MicroBatch], observer: Observer
    ) -> Tensor:
        loss = original(config, state, batches, observer)
        if state.step % 3 == 0:
            ray.train.report({"loss": loss.item()})
        return loss

    loop.train_step = train_step


VARIANTS = (
    Variant(name="reference"),
    Variant(name="larger-model", trial=KILL.but(layers="3", width="96")),
    Variant(name="bfloat16", trial=KILL.but(dtype="bfloat16")),
    Variant(name="float64", trial=KILL.but(dtype="float64")),
    Variant(name="accumulates-more", trial=KILL.but(micro_batches="12")),
    Variant(name="another-seed", trial=KILL.but(seed=7)),
    Variant(name="without-dropout", trial=KILL.but(dropout="0")),
    Variant(name="several-epochs", trial=EPOCHS),
    Variant(name="saves-often", trial=KILL.but(checkpoint_every="3")),
    Variant(name="keeps-one", trial=KILL.but(keep="1")),
    Variant(name="asks-for-preemptions", trial=KILL.but(preemption_check_every="2")),
    Variant(name="saves-beside-the-training", trial=ASYNCHRONOUS),
    Variant(name="saves-slowly", worker=slow_save),
    Variant(name="evaluates-slowly", trial=KILL.but(evaluate_every="6"), worker=slow_evaluation),
    Variant(name="updates-at-once", worker=at_once, own_control=True),
    Variant(name="parameters-in-groups", worker=in_groups, own_control=True),
    Variant(name="zeros-for-gradients", worker=zeros_for_gradients),
    Variant(name="warms-up-cleanly", worker=after_resume(warm_up_cleanly)),
    Variant(name="reports-between-saves", worker=report_between_saves),
    Variant(name="three-workers", trial=THREE),
    Variant(name="shrinks", trial=SHRINK),
    Variant(name="shrinks-and-grows", trial=GROW),
)
