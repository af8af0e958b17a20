"""Plain DDP: rank 0 saves with torch.save, and every setting is Ray Train's default but for what the options say.

python examples/ddp_torch_save.py
aftershock run kill-worker -- python examples/ddp_torch_save.py --max-failures 2
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def dataset(samples: int) -> TensorDataset:
    """Points and the class of each, always the same ones."""
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(samples, 16, generator=generator)
    return TensorDataset(points, (points.sum(dim=1) > 0).long())


def train(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=config["epochs"])
    loader = ray.train.torch.prepare_data_loader(DataLoader(dataset(config["samples"]), batch_size=16, shuffle=True))
    begin = 0
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(os.path.join(folder, "state.pt"), weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])
        begin = saved["epoch"] + 1
    for epoch in range(begin, config["epochs"]):
        if ray.train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        for points, classes in loader:
            loss = nn.functional.cross_entropy(model(points), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        report(model, optimizer, scheduler, epoch, loss.item())


def report(model: nn.Module, optimizer: Any, scheduler: Any, epoch: int, loss: float) -> None:
    """Rank 0 hands over the state; the others only their number."""
    metrics = {"epoch": epoch, "loss": loss}
    if ray.train.get_context().get_world_rank() != 0:
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "epoch": epoch,
        }
        torch.save(state, os.path.join(folder, "state.pt"))
        ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=320)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--max-failures", type=int, default=0)
    options = parser.parse_args()
    TorchTrainer(
        train,
        train_loop_config=vars(options),
        scaling_config=ScalingConfig(num_workers=options.workers),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=options.max_failures)),
    ).fit()


if __name__ == "__main__":
    main()
