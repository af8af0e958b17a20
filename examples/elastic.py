"""An elastic job: two to three workers, the same global batch whatever their number.

aftershock run drop-node-elastic -- python examples/elastic.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn

STEPS, EVERY, MICRO_BATCHES = 40, 10, 6


def train(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    done = 0
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder, "state.pt"), weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["step"]
    for step in range(done + 1, STEPS + 1):
        mine = range(rank, MICRO_BATCHES, world)
        for number in mine:
            inputs = torch.randn(8, 16, generator=torch.Generator().manual_seed(step * MICRO_BATCHES + number))
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
            (loss / len(mine)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % EVERY == 0:
            save(model, optimizer, step, rank)


def save(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, Path(folder, "state.pt"))
            checkpoint = Checkpoint.from_directory(folder)
        ray.train.report({"step": step}, checkpoint=checkpoint)


if __name__ == "__main__":
    TorchTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=(2, 3), resources_per_worker={"CPU": 2}),
        run_config=RunConfig(
            failure_config=FailureConfig(max_failures=2), checkpoint_config=CheckpointConfig(num_to_keep=2)
        ),
    ).fit()
