"""The training loop that Ray Train runs on every rank."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import ray.train
import ray.train.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.optim.lr_scheduler import LambdaLR

from trainer.config import TrainerConfig
from trainer.data import MicroBatch, held_out, micro_batches
from trainer.dealing import learning_rate_scale, samples_per_step, slots_of_step
from trainer.model import build_model, next_token_loss
from trainer.observer import Observer, find_observer
from trainer.preemption import PreemptionWatch
from trainer.saving import Save, saver
from trainer.state import SlotRandomness, TrainState

FLOOR = 0.1


def train(settings: dict[str, Any]) -> None:
    """Train from the last committed checkpoint, or from the seed, to the last step.

    ``settings``: the fields of TrainerConfig.
    """
    config = TrainerConfig(**settings)
    observer = find_observer(config.observer)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    state = new_state(config)
    resume(state, observer)
    batches = micro_batches(config, state.samples)
    preemption = PreemptionWatch(config.preemption_check_every)
    write = saver(config)
    while state.step < config.steps:
        loss = train_step(config, state, batches, observer)
        if state.step % config.log_every == 0 or state.step == config.steps:
            log(config, state, loss)
        if preemption.calls_for_checkpoint(state.step) or save_is_due(config, state.step):
            save(write, state, loss, observer)
        if config.evaluate_every and state.step % config.evaluate_every == 0:
            evaluate(config, state.model)


def new_state(config: TrainerConfig) -> TrainState:
    """Model, optimizer, schedule and random states as the seed gives them, sharded over all ranks."""
    device = ray.train.torch.get_device()
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build_model(config, device, init_device_mesh(device.type, (world,)))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay
    )
    slots = range(rank, config.micro_batches, world)
    scale = learning_rate_scale(config, world)
    return TrainState(
        model=model,
        optimizer=optimizer,
        scheduler=LambdaLR(optimizer, lambda step: schedule(config, step) * scale),
        randomness=SlotRandomness.seeded(config.seed, slots, device),
    )


def schedule(config: TrainerConfig, step: int) -> float:
    """Share of the peak learning rate after ``step`` steps: linear warm-up, then cosine down to a tenth."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def resume(state: TrainState, observer: Observer) -> None:
    """Go back to the last committed checkpoint, where there is one."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return
    with checkpoint.as_directory() as folder:
        state.restore(folder)
    if dist.get_rank() == 0:
        print(f"resumed at step {state.step} from {checkpoint.path}", flush=True)
    observer.state("restored", state.tree())
    state.follow_schedule()


def train_step(
    config: TrainerConfig, state: TrainState, batches: Iterator[MicroBatch], observer: Observer
) -> torch.Tensor:
    """One optimizer step over this rank's micro-batches; returns their mean loss.

    The gradient is the mean over all micro-batches of the step: FSDP averages over the ranks, and within a rank each
    loss counts 1 / n, n being the micro-batches of a rank.
    """
    begun, world = time.monotonic(), dist.get_world_size()
    slots = slots_of_step(config, state.samples, dist.get_rank(), world)
    weight = 1 / len(slots)
    total = torch.zeros((), dtype=torch.float64, device=state.randomness.device)
    for slot, batch in zip(slots, islice(batches, len(slots)), strict=True):
        observer.samples(batch.ids)
        set_gradient_sync(state.model, slot == slots[-1])
        state.randomness.enter(slot)
        loss = next_token_loss(state.model, batch.tokens.to(total.device))
        (loss * weight).backward()
        state.randomness.leave(slot)
        total += loss.detach()
    mean = total / len(slots)
    observer.loss(mean.item())
    nn.utils.clip_grad_norm_(state.model.parameters(), config.clip_norm)
    keep_pace(config, begun)
    state.step += 1
    state.samples += samples_per_step(config, world)
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.scheduler.step()
    return mean


def keep_pace(config: TrainerConfig, begun: float) -> None:
    """Sleep until a step that began at that time (of the monotonic clock, seconds) has taken ``pace`` seconds."""
    time.sleep(max(0.0, begun + config.pace - time.monotonic()))


def save_is_due(config: TrainerConfig, step: int) -> bool:
    """Whether every run saves after that step: at its intervals, and at its end."""
    return step % config.checkpoint_every == 0 or step == config.steps


def set_gradient_sync(model: nn.Module, sync: bool) -> None:
    """Reduce gradients across ranks in the last micro-batch of a step only."""
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(sync)


def mean_over_ranks(value: torch.Tensor) -> float:
    """The mean of one number per rank, the same on every rank."""
    value = value.detach().clone()
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def log(config: TrainerConfig, state: TrainState, loss: torch.Tensor) -> None:
    """Print one line of progress from rank 0."""
    mean = mean_over_ranks(loss)
    if dist.get_rank() == 0:
        rate = state.scheduler.get_last_lr()[0]
        print(
            f"step {state.step:>5}/{config.steps}  loss {mean:.4f}  learning rate {rate:.2e}  "
            f"world size {dist.get_world_size()}",
            flush=True,
        )


def evaluate(config: TrainerConfig, model: nn.Module) -> float:
    """Mean loss over the held-out split, without touching any random state of the training."""
    device = ray.train.torch.get_device()
    model.eval()
    with torch.no_grad():
        losses = [next_token_loss(model, batch.tokens.to(device)) for batch in held_out(config)]
    model.train()
    mean = mean_over_ranks(torch.stack(losses).mean())
    if dist.get_rank() == 0:
        print(f"held-out loss {mean:.4f}", flush=True)
    return mean


def save(write: Save, state: TrainState, loss: torch.Tensor, observer: Observer) -> None:
    """Hand the state and what is to be told with it to the way of saving."""
    metrics = {
        "step": state.step,
        "samples": state.samples,
        "loss": mean_over_ranks(loss),
        "learning_rate": state.scheduler.get_last_lr()[0],
        "world_size": dist.get_world_size(),
    }
    tree = state.tree()
    observer.state("saved", tree)
    write(tree, metrics)
