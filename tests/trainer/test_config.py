"""Settings of the trainer: each bad value is refused by name before anything starts."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

from trainer.config import DTYPES, PLACEMENTS, TrainerConfig

SIZES = ("steps", "workers", "micro_batches", "batch_size", "sequence_length", "layers", "width", "heads")
AT_LEAST_ONE = (*SIZES, "checkpoint_every", "keep", "log_every", "corpus_bytes", "timeout_s")

BAD = [
    *((name, value) for name in AT_LEAST_ONE for value in (0, -1)),
    *((name, -1) for name in ("warmup_steps", "evaluate_every", "seed")),
    ("max_failures", -2),
    *(("dropout", value) for value in (1.0, -0.1, math.nan)),
    *((name, value) for name in ("learning_rate", "clip_norm") for value in (0.0, -1.0, math.nan)),
    ("dtype", "float16"),
    ("placement", "spread"),
    ("width", 65),
    ("heads", 3),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"\b{name}={re.escape(str(value))}\b|width=64 .*heads=3"):
        TrainerConfig(**{name: value})


@pytest.mark.parametrize("value", [-0.1, math.nan])
def test_a_bad_weight_decay_is_refused_by_name(value):
    with pytest.raises(ValueError, match="weight_decay="):
        TrainerConfig(weight_decay=value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, 1) for name in AT_LEAST_ONE if name not in ("width", "heads")),
        *((name, 0) for name in ("warmup_steps", "evaluate_every", "seed", "max_failures")),
        ("max_failures", -1),
        ("dropout", 0.0),
        *(("dtype", value) for value in DTYPES),
        *(("placement", value) for value in PLACEMENTS),
    ],
)
def test_a_value_at_the_edge_is_accepted(name, value):
    assert getattr(TrainerConfig(**{name: value, "workers": 1} | {name: value}), name) == value


@pytest.mark.parametrize(("workers", "micro_batches"), [(1, 6), (2, 6), (3, 6), (6, 6), (1, 1), (4, 8)])
def test_workers_that_divide_the_micro_batches_are_accepted(workers, micro_batches):
    assert TrainerConfig(workers=workers, micro_batches=micro_batches).workers == workers


def test_workers_that_do_not_divide_are_refused_with_those_that_would():
    with pytest.raises(ValueError, match=r"workers=5 does not divide micro_batches=6: use one of 1, 2, 3, 6 workers"):
        TrainerConfig(workers=5)


def test_the_global_batch_does_not_depend_on_the_workers():
    batches = {TrainerConfig(workers=n, micro_batches=6, batch_size=4).global_batch for n in (1, 2, 3, 6)}
    assert batches == {24}


def test_a_configuration_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainerConfig().steps = 1


@pytest.mark.parametrize("field", dataclasses.fields(TrainerConfig), ids=lambda field: field.name)
def test_every_field_is_documented(field):
    assert len(field.metadata["help"].split()) >= 2
