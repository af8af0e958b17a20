"""A job that never stores a checkpoint: after a failure it starts over.

aftershock run kill-worker -- python examples/no_checkpoint.py
"""

from __future__ import annotations

from typing import Any

import ray.train
import ray.train.torch
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn

STEPS = 40


def train(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rank = ray.train.get_context().get_world_rank()
    for step in range(1, STEPS + 1):
        inputs = torch.randn(32, 16, generator=torch.Generator().manual_seed(step * 1000 + rank))
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            ray.train.report({"step": step, "loss": loss.item()})


if __name__ == "__main__":
    TorchTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=2)),
    ).fit()
