"""Mistakes that show when the number of workers changes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from tests.mutants.catalogue.position import Anew
from tests.mutants.patches import Before, after_restore, local, reading, take_back_weights
from tests.mutants.program import DIFFERS, Mutant
from tests.mutants.trials import GROW, SHRINK
from trainer import data, dealing, loop, state
from trainer.config import TrainerConfig
from trainer.state import TrainState


def saved_by(before: Before) -> int:
    """How many ranks saved what was loaded."""
    return len(state._stamps(before.folder))


def keep_batch_of_a_rank() -> None:
    """Each rank does as many micro-batches as in a full group, so a smaller one takes a smaller step."""
    dealing.micro_batches_per_rank = lambda config, world: config.micro_batches // config.workers


def average_over_ranks_of_launch() -> None:
    """The gradient is scaled by the number of ranks that the job was launched with."""
    original = loop.new_state

    def new_state(config: TrainerConfig) -> TrainState:
        made, share = original(config), dist.get_world_size() / config.workers

        def scale(optimizer: Optimizer, *_: Any) -> None:
            for parameter in made.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(share)

        made.optimizer.register_step_pre_hook(scale)
        return made

    loop.new_state = new_state


def lose_random_state(made: TrainState, before: Before) -> None:
    """Random states are restored only where there are as many ranks as saved them."""
    if saved_by(before) != dist.get_world_size():
        made.randomness.states = before.random


def cut_as_before(made: TrainState, before: Before) -> None:
    """Each rank takes its rows from where its shard began in the group that saved."""
    ranks = saved_by(before)
    if ranks == dist.get_world_size():
        return
    with torch.no_grad():
        for parameter in made.model.parameters():
            whole, mine = parameter.full_tensor(), local(parameter)  # type: ignore[attr-defined]
            begin = dist.get_rank() * -(-len(whole) // ranks)
            mine.copy_(whole[begin : begin + len(mine)])


def count_batches_of_a_rank() -> None:
    """The position is how many micro-batches each rank has read, whatever the number of ranks."""

    def micro_batches(config: TrainerConfig, samples: int) -> Iterator[data.MicroBatch]:
        done = samples // config.batch_size // config.workers
        return islice(data._dealt(config), done, None)

    loop.micro_batches = micro_batches


def leave_smaller_group() -> None:
    """A program for a fixed number of ranks has nothing to do in another one, and says so to nobody."""
    original = loop.train

    def train(settings: dict[str, Any]) -> None:
        if dist.get_world_size() == settings["workers"]:
            original(settings)

    loop.train = train


def start_new_rank_from_seed(made: TrainState, before: Before) -> None:
    """A rank that has joined finds no shard of its number, and keeps the weights that it was made with."""
    if dist.get_rank() >= saved_by(before):
        take_back_weights(made, before)


MUTANTS = (
    Mutant(
        name="keeps-the-batch-of-a-rank",
        caught_by="global-batch",
        also=DIFFERS,
        trial=SHRINK,
        worker=keep_batch_of_a_rank,
    ),
    Mutant(
        name="averages-over-ranks-of-launch",
        caught_by="trajectory",
        also=frozenset({"control-state"}),
        trial=SHRINK,
        worker=average_over_ranks_of_launch,
    ),
    Mutant(
        name="random-state-lost-in-resize",
        caught_by="restored-state",
        also=DIFFERS,
        trial=SHRINK,
        worker=after_restore(lose_random_state),
    ),
    Mutant(
        name="shards-cut-as-before",
        caught_by="restored-state",
        also=DIFFERS,
        trial=SHRINK,
        worker=after_restore(cut_as_before),
    ),
    Mutant(
        name="position-in-batches-of-a-rank",
        caught_by="samples",
        also=DIFFERS,
        trial=SHRINK,
        worker=count_batches_of_a_rank,
        driver=reading(Anew.of),
    ),
    Mutant(
        name="leaves-a-smaller-group",
        caught_by="completed",
        also=frozenset({"recovered", "resume-step", "trajectory"}),
        trial=SHRINK,
        worker=leave_smaller_group,
    ),
    Mutant(
        name="new-rank-starts-from-seed",
        caught_by="restored-state",
        also=DIFFERS,
        trial=GROW,
        worker=after_restore(start_new_rank_from_seed),
    ),
)
