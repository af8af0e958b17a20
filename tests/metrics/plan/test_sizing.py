"""Bytes, seconds and tokens of a training step, against worked examples."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.plan.quantities import GB, PlanError
from metrics.plan.sizing import (
    Bound,
    Sizing,
    Strategy,
    Training,
    all_reduce_bytes,
    bound,
    parameters,
    scaling_efficiency,
    size,
)

SEVEN = Training(parameters=7e9, gpus=32)


def strategies(training: Training) -> dict[str, Strategy]:
    return {found.name: found for found in size(training).strategies}


@pytest.mark.parametrize(("model", "state"), [("7b", 112e9), ("70B", 1.12e12)])
def test_the_state_of_a_model(model, state):
    assert Training(parameters=parameters(model), gpus=8).state_bytes == pytest.approx(state)


def test_seven_billion_parameters_on_32_gpus_are_compute_bound():
    fsdp = strategies(SEVEN)["fsdp"]
    assert (fsdp.nic_bytes, fsdp.nic_s) == pytest.approx((42e9, 0.84))
    assert SEVEN.compute_s == pytest.approx(3.44, abs=0.005)
    assert fsdp.bound is Bound.COMPUTE
    assert fsdp.tokens_s == pytest.approx(310_000, rel=0.02)
    assert fsdp.state_bytes == pytest.approx(3.5e9)


def test_half_the_micro_batch_is_tight():
    half = msgspec.structs.replace(SEVEN, tokens_per_gpu=16384)
    assert half.compute_s == pytest.approx(1.7, abs=0.03)
    assert strategies(half)["fsdp"].bound is Bound.TIGHT


def test_one_slow_port_for_a_machine_takes_32_times_as_long():
    slow = msgspec.structs.replace(SEVEN, nic_gbps=100, nics=1)
    assert strategies(slow)["fsdp"].nic_s == pytest.approx(32 * 0.84)
    assert strategies(slow)["fsdp"].bound is Bound.NETWORK


def test_a_checkpoint_takes_as_long_as_the_storage_needs():
    assert SEVEN.checkpoint_s == pytest.approx(56)


@pytest.mark.parametrize(
    ("compute_s", "bytes_s", "network_s", "told"),
    [(0.2, 300e9, 0.007, 0.97), (0.2, 1.25e9, 1.6, 0.11), (0.8, 1.25e9, 1.6, 0.33)],
    ids=["NVLink", "10 GbE", "10 GbE, four times the computing"],
)
def test_the_scaling_of_a_gigabyte_of_gradients(compute_s, bytes_s, network_s, told):
    found = all_reduce_bytes(10_000, 1e9) / bytes_s
    assert found == pytest.approx(network_s, rel=0.06)
    assert scaling_efficiency(compute_s, found) == pytest.approx(told, abs=0.005)


def test_a_ring_of_two_moves_each_byte_once_and_of_one_none():
    assert (all_reduce_bytes(2, 100), all_reduce_bytes(1, 100)) == (100, 0)


def test_what_fits_is_told_for_each_strategy():
    found = strategies(SEVEN)
    assert {name: strategy.fits for name, strategy in found.items()} == {"ddp": False, "fsdp": True, "hsdp": True}
    assert found["ddp"].left_bytes == pytest.approx(80 * GB - 112 * GB)
    assert found["hsdp"].state_bytes == pytest.approx(14 * GB)


def test_hybrid_sharding_moves_only_shards_between_machines():
    found = strategies(SEVEN)
    assert found["hsdp"].nic_bytes == pytest.approx(2 * 3 / 4 * 14e9 / 8)
    assert found["hsdp"].nic_bytes < found["ddp"].nic_bytes < found["fsdp"].nic_bytes


def test_nothing_leaves_a_single_machine():
    assert all(s.nic_bytes == 0 and s.efficiency == 1 for s in size(Training(parameters=7e9, gpus=8)).strategies)


@settings(max_examples=50)
@given(st.floats(1e8, 1e12), st.integers(2, 64), st.floats(1024, 1e6), st.floats(10, 3200))
def test_the_knee_is_the_last_size_at_which_the_network_takes_half_of_the_computing(model, machines, tokens, gbps):
    training = Training(parameters=model, gpus=8 * machines, tokens_per_gpu=tokens, nic_gbps=gbps)
    for strategy in size(training).strategies:
        if strategy.knee is None:
            continue

        def share(gpus: int, name: str = strategy.name) -> float:
            fewer = tokens * training.gpus / gpus
            there = msgspec.structs.replace(training, gpus=gpus, tokens_per_gpu=fewer)
            return strategies(there)[name].nic_s / there.compute_s

        assert share(strategy.knee) <= 1 / 2 * (1 + 1e-9)
        assert share(strategy.knee + 8) >= 1 / 2 * (1 - 1e-9)


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_efficiency_is_a_share_and_two_thirds_where_the_network_begins_to_bind(compute_s, network_s):
    found = scaling_efficiency(compute_s, network_s)
    assert 0 < found < 1
    assert (bound(compute_s, network_s) is Bound.NETWORK) == (network_s / compute_s > 1 / 2)


def test_a_sizing_can_be_stored_and_read():
    assert msgspec.json.decode(msgspec.json.encode(size(SEVEN)), type=Sizing) == size(SEVEN)


@pytest.mark.parametrize(("text", "number"), [("7b", 7e9), ("350M", 350e6), ("1.8t", 1.8e12), ("7e9", 7e9)])
def test_a_model_is_a_number_with_its_unit(text, number):
    assert parameters(text) == number


@pytest.mark.parametrize("text", ["", "seven", "-7b", "7bb", "b"])
def test_what_is_no_model_is_refused(text):
    with pytest.raises(PlanError, match="write for example 7b"):
        parameters(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameters": 7}, "parameters=7 is outside .* such as 7b"),
        ({"gpus": 0}, "gpus=0"),
        ({"flops_per_gpu": 400}, "TFLOP/s that one GPU really does"),
        ({"nic_gbps": 400e9}, "Gbit/s of one card, such as 400"),
        ({"gpu_memory_bytes": 80}, "GB of one GPU, such as 80"),
        ({"storage_bytes_s": 0}, "storage_gb_s=0 must be above 0"),
        ({"tokens_per_gpu": 0}, "tokens_per_gpu=0"),
    ],
)
def test_a_number_in_a_wrong_unit_is_named(change, message):
    with pytest.raises(PlanError, match=message):
        Training(**{**msgspec.structs.asdict(SEVEN), **change})
