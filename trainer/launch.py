"""Build the TorchTrainer for a configuration, run it, tell how it ended."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.train import CheckpointConfig, FailureConfig, Result, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from trainer.config import TrainerConfig
from trainer.corpus import corpus_directory
from trainer.data import datasets, ingest
from trainer.loop import train

DATA_CPUS = 1

TrainLoop = Callable[[dict[str, Any]], None]


class NotEnoughCpus(RuntimeError):
    """The cluster has fewer CPUs than the workers and the data pipeline need."""


def connect(config: TrainerConfig) -> None:
    """Join the named cluster, or start a local one with room for all the workers and for Ray Data.

    Raises NotEnoughCpus when the job, in its smallest size, could never be placed.
    """
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")  # with the patch, each line of progress comes twice
    address = config.address or os.environ.get("RAY_ADDRESS", "")
    fewest = config.group_sizes[0]
    needed = fewest * config.cpus_per_worker + DATA_CPUS
    quiet = ray.LoggingConfig(log_level="ERROR")
    if address:
        ray.init(address=address, logging_config=quiet)
    else:
        cpus = max(config.workers * config.cpus_per_worker + DATA_CPUS, os.cpu_count() or 1)
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, logging_config=quiet)
    present = ray.cluster_resources().get("CPU", 0)
    if present < needed:
        raise NotEnoughCpus(
            f"{fewest} workers and the data pipeline need {needed} CPUs, the cluster at "
            f"{address or 'this machine'} has {present:g}: use fewer "
            f"{'--min-workers' if config.min_workers else '--workers'} or a larger cluster"
        )


def storage_path(config: TrainerConfig) -> str:
    """Absolute path of the storage; Ray's own default where none is configured."""
    return str(Path(config.storage or "~/ray_results").expanduser().resolve())


def scaling(config: TrainerConfig) -> ScalingConfig:
    """How many workers Ray Train may give the group, and where."""
    size: dict[str, Any] = {"num_workers": config.workers}
    if config.min_workers:
        size["num_workers"] = (config.min_workers, config.workers)
        size["elastic_resize_monitor_interval_s"] = config.resize_interval_s
    claim = {"CPU": float(config.cpus_per_worker)}
    return ScalingConfig(placement_strategy=config.placement, resources_per_worker=claim, **size)


def build_trainer(config: TrainerConfig, loop: TrainLoop = train) -> TorchTrainer:
    """The Ray Train job for a configuration; ``loop`` replaces the training loop."""
    storage = storage_path(config)
    root = corpus_directory(config, storage)
    return TorchTrainer(
        loop,
        train_loop_config=dataclasses.asdict(config),
        torch_config=TorchConfig(timeout_s=config.timeout_s),
        scaling_config=scaling(config),
        run_config=RunConfig(
            name=config.name,
            storage_path=storage,
            failure_config=FailureConfig(max_failures=config.max_failures),
            checkpoint_config=CheckpointConfig(num_to_keep=config.keep),
        ),
        datasets=datasets(config, root, os.path.join(storage, config.name)),
        dataset_config=ingest(),
    )


def run(config: TrainerConfig, loop: TrainLoop = train) -> Result:
    """Train to the end on the cluster that the configuration names; the result holds the last checkpoint."""
    connect(config)
    return build_trainer(config, loop).fit()
