"""The model, its loss and its schedule: finite, causal, and given by the seed alone."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from trainer.config import TrainerConfig
from trainer.loop import FLOOR, schedule
from trainer.model import VOCABULARY, Decoder, build_model, next_token_loss

SMALL = {"workers": 1, "layers": 1, "width": 16, "heads": 2, "sequence_length": 8}


def config(**options):
    return TrainerConfig(**SMALL, **options)


def sequences(count=3):
    return torch.randint(0, VOCABULARY, (count, 9), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def mesh():
    """The mesh of a world of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def weights(mesh, **options):
    model = build_model(config(**options), torch.device("cpu"), mesh)
    return {name: weight.full_tensor() for name, weight in model.state_dict().items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(mesh):
    assert equal(weights(mesh, seed=3), weights(mesh, seed=3))
    assert not equal(weights(mesh, seed=3), weights(mesh, seed=4))


def test_weights_do_not_depend_on_what_was_drawn_before(mesh):
    first = weights(mesh)
    torch.rand(7)
    assert equal(weights(mesh), first)


@pytest.mark.parametrize(
    ("dtype", "master"), [("float32", torch.float32), ("float64", torch.float64), ("bfloat16", torch.float32)]
)
def test_the_loss_is_finite_and_near_that_of_a_guess(mesh, dtype, master):
    model = build_model(config(dtype=dtype), torch.device("cpu"), mesh)
    assert {parameter.dtype for parameter in model.parameters()} == {master}
    loss = next_token_loss(model, sequences())
    loss.backward()
    assert loss.dtype in (torch.float32, torch.float64)
    assert abs(loss.item() - math.log(VOCABULARY)) < 1.0
    assert all(torch.isfinite(parameter.grad.full_tensor()).all() for parameter in model.parameters())


def test_a_prediction_sees_nothing_of_what_comes_later():
    torch.manual_seed(0)
    model = Decoder(config()).eval()
    one = sequences(1)[:, :8]
    other = one.clone()
    other[0, 5:] = (other[0, 5:] + 1) % VOCABULARY
    before, after = model(one), model(other)
    assert torch.equal(before[0, :5], after[0, :5])
    assert not torch.equal(before[0, 5:], after[0, 5:])


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    model = Decoder(config(dropout=0.5))
    tokens = sequences()[:, :8]
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


def test_the_learning_rate_warms_up_to_its_peak_and_falls_to_a_tenth():
    rates = [schedule(config(steps=40, warmup_steps=5), step) for step in range(41)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5] == 1.0
    assert all(earlier > later for earlier, later in pairwise(rates[5:]))
    assert rates[40] == pytest.approx(FLOOR)


@pytest.mark.parametrize(
    ("steps", "warmup", "step", "rate"),
    [(10, 0, 0, 1.0), (10, 0, 5, 0.55), (10, 0, 99, 0.1), (4, 4, 4, 1.0), (4, 9, 3, 4 / 9), (1, 0, 0, 1.0)],
)
def test_the_schedule_at_its_edges(steps, warmup, step, rate):
    assert schedule(config(steps=steps, warmup_steps=warmup), step) == pytest.approx(rate)
