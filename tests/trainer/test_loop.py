"""The loop in a world of one: what it saves and when, at which pace, and what a smaller group does of a step."""

from __future__ import annotations

import dataclasses
import time

import pytest
import ray.train
import ray.train.torch
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from chaos.digest import tree_digests
from trainer import loop
from trainer.config import TrainerConfig
from trainer.data import MicroBatch
from trainer.observer import Silent

pytestmark = pytest.mark.filterwarnings("ignore")

SIZES = {"workers": 1, "micro_batches": 4, "batch_size": 2, "sequence_length": 8, "warmup_steps": 2, "steps": 8}
SMALL = {**SIZES, "layers": 1, "width": 16, "heads": 2}


@pytest.fixture(scope="module", autouse=True)
def world_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def batches(config, samples=0):
    """The micro-batches of a run from that position on."""
    for number in range(samples // config.batch_size, 100):
        generator = torch.Generator().manual_seed(number)
        yield MicroBatch([2 * number, 2 * number + 1], torch.randint(0, 256, (2, 9), generator=generator))


class Reports(list):
    """Every report of a run, with the steps that held a checkpoint."""

    def take(self, metrics, checkpoint=None):
        assert checkpoint is not None
        self.append(metrics)

    @property
    def steps(self):
        return [metrics["step"] for metrics in self]


@pytest.fixture
def reports(monkeypatch):
    """Stand in for Ray Train: data without a cluster, no checkpoint to resume from, reports kept."""
    monkeypatch.setattr(ray.train.torch, "get_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(ray.train, "get_checkpoint", lambda: None)
    monkeypatch.setattr(loop, "micro_batches", batches)
    made = Reports()
    monkeypatch.setattr(ray.train, "report", made.take)
    return made


def config(**options):
    return TrainerConfig(**{**SMALL, **options})


def train(**options):
    loop.train(dataclasses.asdict(config(**options)))


@pytest.fixture
def preempted(monkeypatch):
    """Announce a preemption from the n-th question on."""
    info = ray.train.PreemptionInfo(deadline_ms=9_000, preempted_node_to_ranks={"n": [0]})

    def announce(question):
        answers = iter([None] * (question - 1) + [info] * 100)
        monkeypatch.setattr(ray.train, "get_preemption_info", lambda: next(answers))

    return announce


def test_every_report_tells_step_samples_and_world_size(reports):
    train(checkpoint_every=3)
    told = [(metrics["step"], metrics["samples"], metrics["world_size"]) for metrics in reports]
    assert told == [(3, 24, 1), (6, 48, 1), (8, 64, 1)]
    assert all(set(metrics) == {"step", "samples", "loss", "learning_rate", "world_size"} for metrics in reports)


def test_a_smaller_group_that_rescales_reports_the_samples_it_took(reports):
    train(checkpoint_every=5, workers=2, resize="rescale")
    assert [metrics["samples"] for metrics in reports] == [20, 32]


@pytest.mark.parametrize(
    ("question", "steps"),
    [(1, [2, 3, 4, 6, 8, 9]), (2, [3, 4, 6, 8, 9]), (3, [3, 6, 8, 9]), (4, [3, 6, 8, 9]), (5, [3, 6, 9])],
    ids=["at once", "later", "at a step that saves anyway", "near the end", "never"],
)
def test_from_the_notice_of_a_preemption_on_every_look_saves_and_no_step_twice(reports, preempted, question, steps):
    preempted(question)
    train(steps=9, checkpoint_every=3, preemption_check_every=2)
    assert reports.steps == steps


def test_ray_is_not_asked_for_preemptions_unless_configured(reports, preempted):
    preempted(1)
    train(checkpoint_every=3)
    assert reports.steps == [3, 6, 8]


def test_the_checkpoint_of_a_preemption_does_not_wait_for_an_evaluation(reports, preempted, monkeypatch):
    preempted(1)
    order = []
    monkeypatch.setattr(loop, "evaluate", lambda config, model: order.append("evaluated"))
    monkeypatch.setattr(ray.train, "report", lambda metrics, checkpoint: order.append(metrics["step"]))
    train(steps=3, preemption_check_every=2, evaluate_every=2)
    assert order == [2, "evaluated", 3]


def test_a_step_takes_at_least_its_pace(reports):
    began = time.monotonic()
    train(steps=4, pace=0.1)
    assert time.monotonic() - began >= 0.4


def test_a_step_that_takes_longer_than_its_pace_is_not_held_up(monkeypatch):
    slept = []
    monkeypatch.setattr(loop.time, "sleep", slept.append)
    monkeypatch.setattr(loop.time, "monotonic", lambda: 12.0)
    for begun in (9.0, 10.0, 11.5):
        loop.keep_pace(config(pace=2.0), begun)
    assert slept == [0.0, 0.0, 1.5]


# A smaller group that rescales: a world of one where two workers are a full group


HALF = {"workers": 2, "resize": "rescale", "dropout": 0.0}


def steps(state, config, count):
    left = batches(config, state.samples)
    return [loop.train_step(config, state, left, Silent()).item() for _ in range(count)]


def weights(state):
    return tree_digests(state.tree()["model"])


def test_half_a_group_takes_half_the_batch_at_half_the_rate(reports):
    half, whole = config(**HALF), config(micro_batches=2, learning_rate=config().learning_rate / 2, dropout=0.0)
    one, other = loop.new_state(half), loop.new_state(whole)
    assert steps(one, half, 5) == steps(other, whole, 5)
    assert weights(one) == weights(other)
    assert (one.step, one.samples) == (5, 5 * 2 * half.batch_size)


def test_the_rate_of_half_a_group_is_half_that_of_the_schedule(reports):
    half = config(**HALF)
    state, rates = loop.new_state(half), []
    for step in range(5):
        rates.append(state.optimizer.param_groups[0]["lr"])
        assert rates[-1] == half.learning_rate * loop.schedule(half, step) * 0.5
        steps(state, half, 1)
    assert len(set(rates)) > 2


@pytest.fixture
def resumed(reports, monkeypatch, tmp_path):
    """Train so many steps with one configuration, save, and resume with another."""

    def make(before, count, after):
        state = loop.new_state(before)
        steps(state, before, count)
        save_sharded(state.tree(), checkpoint_id=tmp_path)
        monkeypatch.setattr(ray.train, "get_checkpoint", lambda: ray.train.Checkpoint.from_directory(tmp_path))
        new = loop.new_state(after)
        loop.resume(new, Silent())
        return state, new

    return make


@pytest.mark.parametrize(("before", "after"), [({}, HALF), (HALF, {}), (HALF, HALF), ({}, {})])
def test_a_resume_takes_the_rate_of_its_own_size_from_the_first_step_on(resumed, before, after):
    old, new = resumed(config(**before), 3, config(**after))
    scale = 0.5 if after else 1.0
    assert new.optimizer.param_groups[0]["lr"] == config().learning_rate * loop.schedule(config(), 3) * scale
    assert (new.step, new.samples) == (old.step, old.samples) == (3, 12 if before else 24)
    steps(new, config(**after), 1)
    assert new.scheduler.get_last_lr() == [config().learning_rate * loop.schedule(config(), 4) * scale]


def test_a_resume_at_the_same_size_changes_nothing(resumed):
    old, new = resumed(config(dropout=0.3), 3, config(dropout=0.3))
    assert tree_digests(new.tree()) == tree_digests(old.tree())
    assert steps(new, config(dropout=0.3), 2) == steps(old, config(dropout=0.3), 2)


def test_the_observer_is_told_the_state_as_it_was_saved(resumed, monkeypatch):
    told = []

    class Told(Silent):
        def state(self, name, tree):
            told.append((name, tree_digests(tree)))

    old, _ = resumed(config(), 2, config())
    loop.resume(loop.new_state(config(**HALF)), Told())
    assert told == [("restored", tree_digests(old.tree()))]


def test_every_slot_is_saved_and_the_unused_ones_wait_where_they_stood(reports):
    half = config(**{**HALF, "dropout": 0.3})
    state = loop.new_state(half)
    first = {slot: random.clone() for slot, random in state.randomness.states.items()}
    steps(state, half, 1)
    after = state.tree()["random"]
    assert list(after) == ["slot0", "slot1", "slot2", "slot3"]
    assert [not torch.equal(first[slot], after[f"slot{slot}"]) for slot in range(4)] == [True, True, False, False]
