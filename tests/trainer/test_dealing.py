"""How micro-batches are dealt: every sample once and in order, through any world sizes and resume points."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import ray.train
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer import data
from trainer.config import RESIZES, TrainerConfig
from trainer.data import EPOCH, REST, Epoch, micro_batches
from trainer.dealing import (
    dealing_begin,
    dealt_before,
    learning_rate_scale,
    micro_batches_per_rank,
    samples_per_step,
    slots_of_step,
)

MOST = 3 * 12
"""Micro-batches that one rank takes in one life at the most."""


class Shard:
    """What Ray Data gives one rank of a group: every W-th block, the same at each reading."""

    def __init__(self, ids, batch_size, rank, world):
        blocks = [ids[start : start + batch_size] for start in range(0, len(ids), batch_size)]
        assert all(len(block) == batch_size for block in blocks), "a block that is no whole micro-batch"
        assert len(blocks) % world == 0, "streaming_split(equal=True) would cut the last blocks"
        self.blocks = blocks[rank::world]

    def iter_batches(self, batch_size, prefetch_batches):
        for block in self.blocks:
            yield {"id": np.array(block), "tokens": [np.zeros(2)] * batch_size}


class Group:
    """A worker group of one size that resumes after so many samples; what its ranks are dealt, step by step."""

    def __init__(self, patch, config, rows, world, samples):
        patch.setattr(data, "in_micro_batches", lambda folder, batch_size, ids=None: ids)
        patch.setattr(data, "committed_samples", lambda run_path: samples if run_path else 0)
        patch.setattr(dist, "get_world_size", lambda: world)
        read = {
            name: Epoch("folder", rows, config.batch_size, config.global_batch, path)()
            for name, path in {REST: "run", EPOCH: ""}.items()
        }
        self.config, self.world, self.samples, self.dealt = config, world, samples, []
        for rank in range(world):
            shards = {name: Shard(ids, config.batch_size, rank, world) for name, ids in read.items()}
            patch.setattr(dist, "get_rank", lambda rank=rank: rank)
            patch.setattr(ray.train, "get_dataset_shard", shards.get)
            self.dealt.append(list(islice(micro_batches(config, samples), MOST)))

    def step(self):
        """One step: for each rank, its (slot, ids) in order."""
        taken = []
        for rank, dealt in enumerate(self.dealt):
            slots = slots_of_step(self.config, self.samples, rank, self.world)
            taken.append([(slot, dealt.pop(0).ids) for slot in slots])
        self.samples += samples_per_step(self.config, self.world)
        return taken


@st.composite
def jobs(draw):
    """A configuration, the rows of an epoch, and the lives of its groups: (size, steps made, steps that were saved)."""
    fewest = draw(st.integers(1, 2))
    most = draw(st.integers(fewest, 4))
    whole = int(np.lcm.reduce(range(fewest, most + 1)))
    config = TrainerConfig(
        min_workers=fewest,
        workers=most,
        micro_batches=whole * draw(st.integers(1, 12 // whole)),
        batch_size=draw(st.integers(1, 3)),
        resize=draw(st.sampled_from(RESIZES)),
    )
    saved_and_lost = st.tuples(st.integers(0, 2), st.integers(0, 1))
    lives = draw(st.lists(st.tuples(st.integers(fewest, most), saved_and_lost), min_size=2, max_size=6))
    rows = config.global_batch * draw(st.integers(1, 3))
    return config, rows, [(world, saved + lost, saved) for world, (saved, lost) in lives]


@given(jobs())
@settings(max_examples=100, deadline=None)
def test_every_sample_is_taken_once_and_in_order_whatever_the_sizes_and_resume_points(job):
    config, rows, lives = job
    samples, effective = 0, []
    for world, made, saved in lives:
        with pytest.MonkeyPatch.context() as patch:
            group = Group(patch, config, rows, world, samples)
        steps = [group.step() for _ in range(made)]
        for step in steps:
            assert {len(rank) for rank in step} == {micro_batches_per_rank(config, world)}
        for step in steps[:saved]:
            ids = Counter(i for rank in step for _, block in rank for i in block)
            due = range(samples, samples + samples_per_step(config, world))
            assert ids == Counter(i % rows for i in due)
            effective += due
            samples = due.stop
    assert effective == list(range(samples))


@given(jobs())
@settings(max_examples=100, deadline=None)
def test_a_micro_batch_draws_from_the_slot_of_its_number_and_its_rank_owns_the_slot(job):
    config, rows, lives = job
    samples = 0
    for world, made, saved in lives:
        with pytest.MonkeyPatch.context() as patch:
            group = Group(patch, config, rows, world, samples)
        for _ in range(made):
            for rank, taken in enumerate(group.step()):
                slots = [slot for slot, _ in taken]
                assert set(slots) <= set(range(rank, config.micro_batches, world))
                assert len(set(slots)) == len(slots)
                assert slots == [ids[0] // config.batch_size % config.micro_batches for _, ids in taken]
        samples += saved * samples_per_step(config, world)


@given(jobs(), st.integers(0, 500))
def test_the_micro_batches_passed_over_are_those_from_the_beginning_to_the_position(job, number):
    config, _, lives = job
    samples, world = number * config.batch_size, lives[0][0]
    begin = dealing_begin(samples, config.global_batch)
    assert begin % config.global_batch == 0
    assert 0 <= samples - begin < config.global_batch
    passed = [dealt_before(config, samples, rank, world) for rank in range(world)]
    assert sum(passed) * config.batch_size == samples - begin
    assert max(passed) - min(passed) <= 1


def group(resize, **options):
    return TrainerConfig(workers=4, min_workers=1, micro_batches=12, batch_size=2, resize=resize, **options)


@pytest.mark.parametrize(
    ("resize", "world", "each", "batch", "scale"),
    [
        *(("accumulate", world, 12 // world, 24, 1.0) for world in (1, 2, 3, 4)),
        *(("rescale", world, 3, 6 * world, world / 4) for world in (1, 2, 3, 4)),
    ],
)
def test_a_smaller_group_does_more_each_or_a_smaller_batch_at_a_lower_rate(resize, world, each, batch, scale):
    config = group(resize)
    assert micro_batches_per_rank(config, world) == each
    assert samples_per_step(config, world) == batch
    assert learning_rate_scale(config, world) == scale


def test_in_a_constant_batch_every_step_goes_through_the_slots_in_order():
    config = group("accumulate")
    assert [slots_of_step(config, 24 * step, 1, 3) for step in (0, 5)] == [[1, 4, 7, 10]] * 2


def test_a_smaller_batch_goes_on_with_the_slots_where_the_last_step_stopped():
    config = group("rescale")
    assert [slots_of_step(config, 12 * step, 1, 2) for step in range(3)] == [[1, 3, 5], [7, 9, 11], [1, 3, 5]]
    assert [slots_of_step(config, 6, rank, 2) for rank in (0, 1)] == [[4, 6, 8], [3, 5, 7]]
