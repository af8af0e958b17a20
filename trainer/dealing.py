"""Who trains on what: the arithmetic by which micro-batches are dealt, whatever the world size and however it changes.

The micro-batches of a run are numbered from 0, across epochs. Number b goes to rank b mod W and draws from random slot
b mod M. M is a multiple of every world size W, so slot m is always with rank m mod W; and an epoch is a multiple of M
micro-batches, so all this holds across its end, also in the middle of a step. A step takes the next W times n numbers,
n for each rank: a position in the data is therefore one number, the samples trained on so far.
"""

from __future__ import annotations

from trainer.config import TrainerConfig


def micro_batches_per_rank(config: TrainerConfig, world: int) -> int:
    """Micro-batches of each rank in one step: M / W, or M / ``workers`` where a smaller group takes a smaller batch."""
    return config.micro_batches // (config.workers if config.resize == "rescale" else world)


def samples_per_step(config: TrainerConfig, world: int) -> int:
    """Sequences in one optimizer step of a group of that size."""
    return micro_batches_per_rank(config, world) * world * config.batch_size


def learning_rate_scale(config: TrainerConfig, world: int) -> float:
    """By what to multiply the learning rate: the linear scaling rule of arXiv 1706.02677, 1 for the full batch."""
    return world / config.workers if config.resize == "rescale" else 1.0


def slots_of_step(config: TrainerConfig, samples: int, rank: int, world: int) -> list[int]:
    """The random slot of each of a rank's micro-batches, in the order dealt, of the step after that many samples."""
    first = samples // config.batch_size
    numbers = range(first, first + micro_batches_per_rank(config, world) * world)
    return [number % config.micro_batches for number in numbers if number % world == rank]


def dealing_begin(samples: int, global_batch: int) -> int:
    """The sample from which a group that resumes after that many has its data dealt.

    The data begin at the last multiple of M micro-batches, whatever W is, for number b to go to rank b mod W again.
    """
    return samples // global_batch * global_batch


def dealt_before(config: TrainerConfig, samples: int, rank: int, world: int) -> int:
    """How many of a rank's first micro-batches were trained on before the resume, and must be passed over."""
    done = (samples - dealing_begin(samples, config.global_batch)) // config.batch_size
    return len(range(rank, done, world))
