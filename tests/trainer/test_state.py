"""Saving and restoring in a world of one: a resumed run is the uninterrupted one, bit for bit."""

from __future__ import annotations

import warnings

import pytest
import ray.train.torch
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import save

from chaos.digest import tree_digests
from trainer import loop
from trainer.config import TrainerConfig
from trainer.data import MicroBatch
from trainer.observer import Silent
from trainer.state import STAMP, SlotRandomness, TornCheckpoint

CPU = torch.device("cpu")
SIZES = {"steps": 4, "workers": 1, "micro_batches": 2, "batch_size": 2, "sequence_length": 8, "warmup_steps": 2}
SMALL = {**SIZES, "layers": 1, "width": 16, "heads": 2, "dropout": 0.3}


@pytest.fixture(scope="module", autouse=True)
def world_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def fresh(monkeypatch):
    """Make the state that a run begins with."""
    monkeypatch.setattr(ray.train.torch, "get_device", lambda: CPU)
    return lambda **options: loop.new_state(TrainerConfig(**{**SMALL, **options}))


def batches(first=0):
    """The micro-batches of a run, from the one with that number on."""
    for number in range(first, 100):
        generator = torch.Generator().manual_seed(number)
        yield MicroBatch([2 * number, 2 * number + 1], torch.randint(0, 256, (2, 9), generator=generator))


def train(state, steps, observer=None):
    config, left = TrainerConfig(**SMALL), batches(2 * state.step)
    return [loop.train_step(config, state, left, observer or Silent()).item() for _ in range(steps)]


def stored(tree, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(tree, checkpoint_id=folder)
    return folder


class Told(Silent):
    def __init__(self):
        self.ids, self.losses = [], []

    def samples(self, ids):
        self.ids += ids

    def loss(self, value):
        self.losses.append(value)


def test_the_same_seed_trains_the_same(fresh):
    one, other = fresh(), fresh()
    losses = train(one, 2)
    assert train(other, 2) == losses
    assert tree_digests(one.tree()) == tree_digests(other.tree())
    assert all(0 < loss < 10 for loss in losses)


def test_a_resumed_run_is_the_uninterrupted_one(fresh, tmp_path):
    state = fresh()
    train(state, 2)
    stored(state.tree(), tmp_path)
    losses = train(state, 2)
    resumed = fresh(seed=99)
    assert tree_digests(resumed.tree()) != tree_digests(state.tree())
    resumed.restore(tmp_path)
    assert (resumed.step, resumed.samples) == (2, 8)
    assert train(resumed, 2) == losses
    assert tree_digests(resumed.tree()) == tree_digests(state.tree())


def test_what_is_restored_is_what_was_saved(fresh, tmp_path):
    state = fresh()
    train(state, 1)
    saved = tree_digests(state.tree())
    stored(state.tree(), tmp_path)
    resumed = fresh(seed=5)
    resumed.restore(str(tmp_path))
    assert tree_digests(resumed.tree()) == saved


def test_restoring_leaves_the_checkpoint_as_it_is(fresh, tmp_path):
    stored(fresh().tree(), tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    fresh(seed=1).restore(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_the_tree_holds_everything_a_resume_needs(fresh):
    state = fresh()
    train(state, 3)
    tree = state.tree()
    assert list(tree) == ["model", "optimizer", "scheduler", "random", "progress", STAMP]
    assert list(tree["random"]) == ["slot0", "slot1"]
    assert tree["progress"] == {"step": 3, "samples": 12}
    assert tree[STAMP] == {"rank0": torch.tensor([3])}
    assert tree["scheduler"]["last_epoch"] == 3


@pytest.mark.parametrize("stamps", [{"rank1": 1}, {"rank0": 1}, {"rank1": 3}])
def test_a_checkpoint_of_two_saves_is_torn(fresh, tmp_path, stamps):
    state = fresh()
    state.step = 2
    tree = state.tree()
    tree[STAMP].update({rank: torch.tensor([step]) for rank, step in stamps.items()})
    stored(tree, tmp_path)
    with pytest.raises(TornCheckpoint, match="metadata say step 2, the shards say"):
        fresh().restore(tmp_path)


def test_a_step_tells_its_samples_and_its_loss(fresh):
    told = Told()
    losses = train(fresh(), 2, told)
    assert told.ids == list(range(8))
    assert told.losses == losses


def test_data_that_end_within_a_step_are_an_error(fresh):
    with pytest.raises(ValueError, match="zip"):
        loop.train_step(TrainerConfig(**SMALL), fresh(), iter([next(batches())]), Silent())


def drawn(randomness, slots):
    found = []
    for slot in slots:
        randomness.enter(slot)
        found.append(torch.rand(2).tolist())
        randomness.leave(slot)
    return found


def test_a_slot_draws_the_same_whoever_owns_it_and_whatever_comes_between():
    alone = SlotRandomness.seeded(7, range(4), CPU)
    first, second = SlotRandomness.seeded(7, range(0, 4, 2), CPU), SlotRandomness.seeded(7, range(1, 4, 2), CPU)
    for _ in range(3):
        one, three = drawn(second, (1, 3))
        torch.manual_seed(0)
        zero, two = drawn(first, (0, 2))
        assert drawn(alone, range(4)) == [zero, one, two, three]


def test_no_two_slots_draw_the_same():
    found = drawn(SlotRandomness.seeded(7, range(6), CPU), range(6))
    assert len({tuple(numbers) for numbers in found}) == 6
    assert found != drawn(SlotRandomness.seeded(8, range(6), CPU), range(6))


@pytest.mark.parametrize(
    "seed",
    [2**32, 20250101120000],
)
def test_every_seed_that_the_configuration_accepts_seeds_the_slots(seed):
    assert TrainerConfig(seed=seed).seed == seed
    assert list(SlotRandomness.seeded(seed, range(2), CPU).states) == [0, 1]
