"""Epochs over a data set of Ray Data, a checkpoint after each; what it consumes it tells through observe.

aftershock run kill-worker -- python examples/epoch_loop.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray.data
import ray.train
import ray.train.torch
import torch
from ray.data import ExecutionOptions
from ray.train import Checkpoint, CheckpointConfig, DataConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn

from chaos import observe

EPOCHS, SAMPLES, BATCH = 6, 256, 16


def with_features(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The features of a sample follow from its id."""
    angles = batch["id"][:, None] * np.arange(1, 9)
    return {"id": batch["id"], "features": np.sin(angles).astype(np.float32)}


def train(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    begin = 0
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder, "state.pt"), weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin = saved["epoch"]
    shard = ray.train.get_dataset_shard("train")
    for epoch in range(begin, EPOCHS):
        for batch in shard.iter_torch_batches(batch_size=BATCH):
            observe.samples((batch["id"] + epoch * SAMPLES).tolist())
            loss = nn.functional.mse_loss(model(batch["features"]), batch["features"].sum(dim=1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            observe.loss(loss.item())
            optimizer.step()
        save(model, optimizer, epoch + 1)


def save(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, Path(folder, "state.pt"))
            checkpoint = Checkpoint.from_directory(folder)
        ray.train.report({"epoch": epoch}, checkpoint=checkpoint)


if __name__ == "__main__":
    TorchTrainer(
        train,
        # In one order every time, so that two runs train alike and can be compared.
        dataset_config=DataConfig(execution_options=ExecutionOptions(preserve_order=True), enable_shard_locality=False),
        datasets={"train": ray.data.range(SAMPLES, override_num_blocks=4).map_batches(with_features)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            failure_config=FailureConfig(max_failures=2), checkpoint_config=CheckpointConfig(num_to_keep=2)
        ),
    ).fit()
