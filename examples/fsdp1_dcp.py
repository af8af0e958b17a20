"""FSDP1 with sharded checkpoints of torch.distributed.checkpoint, each rank reporting its own shard.

aftershock run kill-worker -- python examples/fsdp1_dcp.py
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import ray.train
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy


def batch(step: int, rank: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch of a rank for a step; it needs no position, since it follows from the step."""
    generator = torch.Generator().manual_seed(step * 1000 + rank)
    inputs = torch.randn(size, 32, generator=generator)
    return inputs, inputs.flip(1)


def build() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(3)]
    model = nn.Sequential(*layers, nn.Linear(32, 32))
    return FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.FULL_SHARD, device_id=torch.device("cpu"))


def train(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    done = resume(model, optimizer)
    for step in range(done + 1, config["steps"] + 1):
        inputs, wanted = batch(step, dist.get_rank(), config["batch"])
        loss = nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % config["every"] == 0:
            save(model, optimizer, step, loss.item())


def resume(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint that Ray Train gives; the steps done by then."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0
    weights, moments = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": weights, "optimizer": moments, "step": 0}
    with checkpoint.as_directory() as folder:
        dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return int(state["step"])


def save(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, loss: float) -> None:
    weights, moments = get_state_dict(model, optimizer)
    with tempfile.TemporaryDirectory() as folder:
        dcp.save({"model": weights, "optimizer": moments, "step": step}, checkpoint_id=folder)
        ray.train.report({"step": step, "loss": loss}, checkpoint=Checkpoint.from_directory(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    TorchTrainer(
        train,
        train_loop_config=vars(options),
        scaling_config=ScalingConfig(num_workers=options.workers),
        run_config=RunConfig(
            failure_config=FailureConfig(max_failures=3), checkpoint_config=CheckpointConfig(num_to_keep=2)
        ),
    ).fit()


if __name__ == "__main__":
    main()
