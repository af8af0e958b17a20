"""What two requests share: a run without a fault, a cluster, both, or nothing."""

from __future__ import annotations

import dataclasses

import pytest

from scenarios.program import Reference
from scenarios.request import Options, resolve
from scenarios.scenario import Shape, find
from trainer.config import TrainerConfig


def resolved(name="kill-worker", settings=None, **options):
    return resolve(find(name), Options(settings=settings or {}, **options))


# A run without a fault

TRAINS_ALIKE = [
    {"name": "kill-rank-zero"},
    {"name": "kill-during-recovery"},
    {"name": "hang-frozen"},
    {"name": "hang-watchdog"},
    {"name": "drop-node"},
    {"name": "freeze-node-long"},
    {"name": "long-evaluation"},
    {"step": 7, "rank": 0, "expect": "recovers()", "deadline": 9.0, "control": False},
    *({"settings": {key: value}} for key, value in {
        "timeout_s": "9", "health_s": "10", "report_s": "11", "shutdown_s": "12", "poll_s": "0.25",
        "preemption_poll_s": "1", "start_s": "9", "watchdog_s": "8", "max_failures": "9", "pace": "0.5", "seconds": "1",
        "cpus_per_worker": "2", "spare_cpus": "3", "nodes": "4", "preemption_check_every": "1",
        "resize_interval_s": "5", "min_workers": "1", "rank": "0", "step": "3",
        "evaluate_every": "20", "save": "asynchronous",
    }.items()),
]  # fmt: skip
"""What changes nothing of a run without a fault, but how long it would take to notice or survive one."""

TRAINS_OTHERWISE = [
    {"name": "straggler"},
    {"name": "kill-two-at-once"},
    {"name": "drop-node-elastic"},
    {"seed": 1},
    {"workers": 3},
    *({"settings": {key: value}} for key, value in {
        "steps": "41", "checkpoint_every": "4", "keep": "3", "per_node": "2", "dropout": "0", "dtype": "float64",
        "learning_rate": "0.1", "warmup_steps": "1", "weight_decay": "0", "clip_norm": "2", "micro_batches": "2",
        "batch_size": "4", "sequence_length": "32", "layers": "1", "width": "32", "heads": "2",
        "corpus_bytes": "300000", "resize": "rescale", "placement": "PACK", "log_every": "1",
    }.items()),
]  # fmt: skip


@pytest.mark.parametrize("changes", TRAINS_ALIKE, ids=str)
def test_requests_that_train_alike_without_a_fault_share_a_workload(changes):
    assert resolved(**changes).workload_key == resolved().workload_key


@pytest.mark.parametrize("changes", TRAINS_OTHERWISE, ids=str)
def test_requests_whose_training_differs_do_not(changes):
    assert resolved(**changes).workload_key != resolved().workload_key


def test_every_setting_of_the_trainer_either_changes_the_workload_or_not():
    told = {key for changes in (*TRAINS_ALIKE, *TRAINS_OTHERWISE) for key in changes.get("settings", ())}
    ours = {"name", "storage", "observer", "address", "seed", "workers", "data"}
    assert {field.name for field in dataclasses.fields(TrainerConfig)} - ours <= told
    assert {field.name for field in dataclasses.fields(Shape)} - ours <= told


def test_where_the_data_lie_does_not_make_another_workload_of_one_suite(tmp_path):
    request = resolved()
    moved = dataclasses.replace(request, program=Reference(dataclasses.replace(request.config, data=str(tmp_path))))
    assert moved.workload_key == request.workload_key


# A cluster

SAME_CLUSTER = [
    {"name": "kill-rank-zero"},
    {"name": "straggler", "settings": {"timeout_s": "1800", "health_s": "600", "report_s": "0", "shutdown_s": "30"}},
    {"name": "hang-watchdog"},
    {"seed": 1, "step": 7, "rank": 0},
    *({"settings": {key: value}} for key, value in {"steps": "41", "pace": "1", "watchdog_s": "8"}.items()),
]

OTHER_CLUSTER = [
    {"name": "hang-frozen"},
    {"name": "kill-two-at-once"},
    {"name": "kill-in-rendezvous"},
    {"name": "drop-node"},
    {"name": "freeze-node-long"},
    {"name": "long-evaluation"},
    {"name": "oom-worker"},
    {"workers": 3},
    *({"settings": {key: value}} for key, value in {
        "nodes": "3", "per_node": "2", "cpus_per_worker": "2", "spare_cpus": "2", "timeout_s": "9", "health_s": "10",
        "report_s": "11", "shutdown_s": "12", "poll_s": "0.25", "preemption_poll_s": "1", "start_s": "9",
    }.items()),
]  # fmt: skip


@pytest.mark.parametrize("changes", SAME_CLUSTER, ids=str)
def test_requests_that_need_the_same_nodes_and_time_outs_share_a_cluster(changes):
    assert resolved(**changes).cluster_key == resolved().cluster_key


@pytest.mark.parametrize("changes", OTHER_CLUSTER, ids=str)
def test_requests_that_need_others_do_not(changes):
    assert resolved(**changes).cluster_key != resolved().cluster_key


def test_the_key_of_a_cluster_counts_its_cpus_whatever_they_are_for():
    two_claimed = resolved(settings={"cpus_per_worker": "2", "spare_cpus": "1"})
    two_spare = resolved(settings={"cpus_per_worker": "1", "spare_cpus": "2"})
    assert two_claimed.shape.cpus_per_node == two_spare.shape.cpus_per_node == 3
    assert two_claimed.cluster_key == two_spare.cluster_key


def test_labels_and_environments_of_nodes_make_another_cluster(armed):
    plain, labelled = armed(), armed(labels={"w1": {"zone": "b"}})
    other = armed(node_environment=lambda shape: {"head": {"A": "1"}})
    keys = {resolve(scenario, Options()).cluster_key for scenario in (plain, labelled, other)}
    assert len(keys) == 3
    assert resolve(armed(labels={"w1": {"zone": "b"}}), Options()).cluster_key in keys


def test_keys_are_short_and_the_same_each_time():
    for key in ("workload_key", "cluster_key"):
        first, second = getattr(resolved(), key), getattr(resolved(), key)
        assert first == second
        assert len(first) == 16


def test_without_a_disturbance_there_is_nothing_to_wait_for_and_no_watchdog():
    request = resolved(settings={"pace": "0.5", "watchdog_s": "8", "dropout": "0"})
    calm = request.undisturbed
    assert (calm.config.pace, calm.shape.watchdog_s) == (0.0, 0.0)
    assert calm.workload_key == request.workload_key
    back = dataclasses.replace(calm, program=request.program, shape=request.shape)
    assert back == request
