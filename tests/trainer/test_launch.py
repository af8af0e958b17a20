"""The job that Ray Train is given: fixed or elastic, and refused where it could never be placed."""

from __future__ import annotations

import pytest
import ray

from trainer import launch
from trainer.config import TrainerConfig
from trainer.launch import NotEnoughCpus, connect, scaling

ELASTIC = {"min_workers": 2, "workers": 3}


def test_without_a_minimum_the_group_has_a_fixed_size():
    made = scaling(TrainerConfig(workers=3, placement="PACK"))
    assert (made.num_workers, made.placement_strategy, made.elasticity_enabled) == (3, "PACK", False)


def test_with_a_minimum_the_group_is_elastic():
    made = scaling(TrainerConfig(**ELASTIC, resize_interval_s=5.0, cpus_per_worker=2))
    assert (made.num_workers, made.elastic_resize_monitor_interval_s) == ((2, 3), 5.0)
    assert (made.elasticity_enabled, made.resources_per_worker) == (True, {"CPU": 2.0})


@pytest.fixture
def cluster(monkeypatch):
    """A cluster of so many CPUs; what it was asked to start with."""
    asked = {}
    monkeypatch.setattr(ray, "init", lambda **options: asked.update(options))
    monkeypatch.setattr(launch.os, "cpu_count", lambda: 1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")

    def has(cpus):
        monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": cpus})
        return asked

    return has


@pytest.mark.parametrize(
    ("options", "cpus", "message"),
    [
        ({"workers": 3}, 3.0, "3 workers and the data pipeline need 4 CPUs, .* has 3: use fewer --workers"),
        (ELASTIC, 2.0, "2 workers and the data pipeline need 3 CPUs, .* has 2: use fewer --min-workers"),
        ({"cpus_per_worker": 2}, 4.0, "2 workers and the data pipeline need 5 CPUs, .* has 4: use fewer --workers"),
    ],
    ids=["fixed", "elastic", "two CPUs a worker"],
)
def test_a_cluster_too_small_is_refused_with_the_way_out(cluster, options, cpus, message):
    cluster(cpus)
    with pytest.raises(NotEnoughCpus, match=message):
        connect(TrainerConfig(**options, address="here:1"))


def test_an_elastic_job_needs_room_for_its_fewest_workers_only(cluster):
    cluster(3.0)
    connect(TrainerConfig(**ELASTIC, address="here:1"))


def test_a_local_cluster_has_room_for_all_the_workers(cluster):
    asked = cluster(4.0)
    connect(TrainerConfig(**ELASTIC))
    assert asked["num_cpus"] == 4
