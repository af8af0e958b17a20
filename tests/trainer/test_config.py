"""Settings of the trainer: each bad value is refused by name before anything starts."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import DTYPES, PLACEMENTS, RESIZES, TrainerConfig

SIZES = ("steps", "workers", "micro_batches", "batch_size", "sequence_length", "layers", "width", "heads")
AT_LEAST_ONE = (*SIZES, "cpus_per_worker", "checkpoint_every", "keep", "log_every", "corpus_bytes", "timeout_s")
NOT_NEGATIVE = ("min_workers", "warmup_steps", "evaluate_every", "preemption_check_every", "seed")

BAD = [
    *((name, value) for name in AT_LEAST_ONE for value in (0, -1)),
    *((name, -1) for name in NOT_NEGATIVE),
    *((name, value) for name in ("pace", "resize_interval_s") for value in (-0.1, math.nan, math.inf)),
    ("max_failures", -2),
    *(("dropout", value) for value in (1.0, -0.1, math.nan)),
    *((name, value) for name in ("learning_rate", "clip_norm") for value in (0.0, -1.0, math.nan)),
    ("dtype", "float16"),
    ("placement", "spread"),
    ("resize", "grow"),
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
        *((name, 0) for name in (*NOT_NEGATIVE, "max_failures", "pace", "resize_interval_s")),
        ("min_workers", 1),
        ("max_failures", -1),
        ("dropout", 0.0),
        *(("dtype", value) for value in DTYPES),
        *(("placement", value) for value in PLACEMENTS),
        *(("resize", value) for value in RESIZES),
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


def test_more_workers_at_least_than_at_most_are_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"min_workers=4 is more than workers=2: use at most 2, or more workers"):
        TrainerConfig(min_workers=4)


def test_every_size_of_an_elastic_group_must_divide_and_those_that_do_not_are_named():
    expected = (
        r"micro_batches=6 is no multiple of 4, 5, and a group of min_workers=2 to workers=6 may have any size between: "
        r"use micro_batches=60, or a narrower range"
    )
    with pytest.raises(ValueError, match=expected):
        TrainerConfig(min_workers=2, workers=6)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 100))
def test_the_micro_batches_that_a_refusal_proposes_are_accepted(one, other, micro_batches):
    group = {"min_workers": min(one, other), "workers": max(one, other)}
    try:
        TrainerConfig(**group, micro_batches=micro_batches)
    except ValueError as error:
        proposed = int(re.search(r"use micro_batches=(\d+)", str(error))[1])
        assert TrainerConfig(**group, micro_batches=proposed).micro_batches > micro_batches


@pytest.mark.parametrize(("least", "most", "sizes"), [(0, 3, [3]), (1, 3, [1, 2, 3]), (2, 2, [2])])
def test_a_group_has_any_size_from_the_least_to_the_most_workers(least, most, sizes):
    assert list(TrainerConfig(min_workers=least, workers=most).group_sizes) == sizes


def test_the_global_batch_does_not_depend_on_the_workers():
    batches = {TrainerConfig(workers=n, micro_batches=6, batch_size=4).global_batch for n in (1, 2, 3, 6)}
    assert batches == {24}


def test_a_configuration_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainerConfig().steps = 1


@pytest.mark.parametrize("field", dataclasses.fields(TrainerConfig), ids=lambda field: field.name)
def test_every_field_is_documented(field):
    assert len(field.metadata["help"].split()) >= 2
