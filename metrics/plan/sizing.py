"""Whether a model fits, and whether the network keeps up with the GPUs: bytes, seconds and tokens of a step.

Mixed precision with AdamW: bf16 weights and gradients, fp32 weights and two fp32 moments. What is moved is an upper
bound for the network cards: it does not count on GPUs of one machine sharing over NVLink what came in.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from metrics.plan.quantities import GB, PlanError, require, require_positive

STATE_BYTES = 16
"""Per parameter: weight 2, gradient 2, master weight 4, moments 4 + 4."""

WEIGHT_BYTES = 2
"""Per parameter, of a weight or a gradient in bf16."""

FSDP_PASSES = 3
"""Times that the weights cross the network in a step of FSDP: two all-gathers and a reduce-scatter."""

FLOPS_PER_TOKEN = 6
"""Per parameter: 2 forward, 4 backward; attention is not counted."""

COMFORTABLE, BEARABLE = 1 / 3, 1 / 2
"""Network time as a share of compute time, up to which a job is compute-bound, and up to which it is tight."""

ADVICE = "plan for hybrid sharding or larger micro-batches"


class Bound(StrEnum):
    """What a step waits for."""

    COMPUTE = "compute-bound"
    TIGHT = "tight"
    NETWORK = "network-bound"


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be sized. ``nic_gbps``: of one network card, in Gbit/s; ``nics``: cards of one machine.

    ``tokens_per_gpu``: in one step. ``flops_per_gpu``: that a GPU really does in a second. ``storage_bytes_s``: what
    all ranks together write. Raises PlanError for numbers in a wrong unit.
    """

    parameters: float
    gpus: int
    gpus_per_machine: int = 8
    tokens_per_gpu: float = 32768
    flops_per_gpu: float = 400e12
    nic_gbps: float = 400
    nics: int = 8
    gpu_memory_bytes: float = 80 * GB
    storage_bytes_s: float = 2 * GB

    def __post_init__(self) -> None:
        require("parameters", self.parameters, 1e6, 1e14, "such as 7b or 405b")
        require("gpus", self.gpus, 1, 1e7, "GPUs of the job")
        require("gpus_per_machine", self.gpus_per_machine, 1, 1024)
        require("tokens_per_gpu", self.tokens_per_gpu, 1, 1e9, "tokens of one GPU in one step")
        require("tflops", self.flops_per_gpu / 1e12, 1, 1e5, "TFLOP/s that one GPU really does, such as 400")
        require("nic_gbps", self.nic_gbps, 0.1, 1e5, "Gbit/s of one card, such as 400")
        require("nics", self.nics, 1, 64, "cards of one machine")
        require("gpu_memory_gb", self.gpu_memory_bytes / GB, 1, 1e4, "GB of one GPU, such as 80")
        require_positive("storage_gb_s", self.storage_bytes_s / GB, 1e6, "GB/s that all ranks together write")

    @property
    def machines(self) -> int:
        """Machines that hold the GPUs, the last one perhaps in part."""
        return -(-self.gpus // self.gpus_per_machine)

    @property
    def nic_bytes_s(self) -> float:
        """A GPU's part of its machine's network cards, in bytes per second."""
        return self.nic_gbps * 1e9 / 8 * self.nics / self.gpus_per_machine

    @property
    def compute_s(self) -> float:
        """The computing of one step: 6 x parameters x tokens / speed."""
        return FLOPS_PER_TOKEN * self.parameters * self.tokens_per_gpu / self.flops_per_gpu

    @property
    def state_bytes(self) -> float:
        """Weights, gradients and optimizer of the whole model."""
        return STATE_BYTES * self.parameters

    @property
    def checkpoint_s(self) -> float:
        """Writing the whole state to the storage while the job waits; a checkpoint without gradients takes less."""
        return self.state_bytes / self.storage_bytes_s


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """How one way of dividing the model fares.

    ``state_bytes``: on each GPU; ``left_bytes``: of its memory for activations and buffers, negative when it does not
    fit. ``nic_bytes``: that each GPU moves in a step, at most. ``efficiency``: compute / (compute + network), nothing
    overlapping. ``tokens_s``: of all GPUs, everything overlapping. ``knee``: the most GPUs among which the same global
    batch can be divided until the network takes more than half of the compute time; None where it never does.
    """

    name: str
    meaning: str
    state_bytes: float
    left_bytes: float
    nic_bytes: float
    nic_s: float
    efficiency: float
    bound: Bound
    tokens_s: float
    knee: int | None

    @property
    def fits(self) -> bool:
        """Whether the state fits into the memory of a GPU."""
        return self.left_bytes > 0


class Sizing(msgspec.Struct, frozen=True, kw_only=True):
    """A sized job: what all ways of dividing the model share, and each of them."""

    training: Training
    state_bytes: float
    compute_s: float
    checkpoint_s: float
    strategies: list[Strategy]


def parameters(text: str) -> float:
    """How many parameters ``7b``, ``1.5t``, ``350m`` or ``7e9`` is.

    Raises PlanError for another text.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)([mbt]?)", text.strip().lower())
    if not found:
        raise PlanError(f"model {text!r} is no number of parameters: write for example 7b, 350m or 1.8t")
    return float(found[1]) * {"": 1, "m": 1e6, "b": 1e9, "t": 1e12}[found[2]]


def all_reduce_bytes(ranks: int, size: float) -> float:
    """What one rank sends in a ring all-reduce of so many bytes: 2 (N-1)/N of them."""
    return 2 * (ranks - 1) / ranks * size


def scaling_efficiency(compute_s: float, network_s: float) -> float:
    """The share of a step that is computing where nothing overlaps."""
    return compute_s / (compute_s + network_s)


def size(training: Training) -> Sizing:
    """Size a job for each strategy."""
    return Sizing(
        training=training,
        state_bytes=training.state_bytes,
        compute_s=training.compute_s,
        checkpoint_s=training.checkpoint_s,
        strategies=[_strategy(training, name) for name in MEANINGS],
    )


MEANINGS = {
    "ddp": "the whole state on every GPU, gradients all-reduced",
    "fsdp": "the state divided among all GPUs",
    "hsdp": "the state divided within a machine, gradient shards all-reduced between machines",
}
"""The strategies, with what each does."""


def _strategy(training: Training, name: str) -> Strategy:
    state, moved = _state_bytes(training, name), _nic_bytes(training, name, training.gpus)
    network_s, compute_s = moved / training.nic_bytes_s, training.compute_s
    return Strategy(
        name=name,
        meaning=MEANINGS[name],
        state_bytes=state,
        left_bytes=training.gpu_memory_bytes - state,
        nic_bytes=moved,
        nic_s=network_s,
        efficiency=scaling_efficiency(compute_s, network_s),
        bound=bound(compute_s, network_s),
        tokens_s=training.gpus * training.tokens_per_gpu / max(compute_s, network_s),
        knee=_knee(training, name),
    )


def bound(compute_s: float, network_s: float) -> Bound:
    """What a step waits for, by the network's time as a share of computing."""
    share = network_s / compute_s
    return Bound.COMPUTE if share <= COMFORTABLE else Bound.TIGHT if share <= BEARABLE else Bound.NETWORK


def _state_bytes(training: Training, name: str) -> float:
    parts = {"ddp": 1, "fsdp": training.gpus, "hsdp": min(training.gpus, training.gpus_per_machine)}
    return training.state_bytes / parts[name]


def _nic_bytes(training: Training, name: str, gpus: int) -> float:
    """What one GPU moves in a step; nothing leaves a single machine."""
    weights, machines = WEIGHT_BYTES * training.parameters, -(-gpus // training.gpus_per_machine)
    if machines == 1:
        return 0.0
    if name == "fsdp":
        return FSDP_PASSES * weights
    if name == "ddp":
        return all_reduce_bytes(gpus, weights)
    return all_reduce_bytes(machines, weights / training.gpus_per_machine)


def _knee(training: Training, name: str) -> int | None:
    """The most GPUs, in whole machines, for the same global batch; network time hardly changes, computing shrinks."""
    work_s = training.compute_s * training.gpus

    def bearable(machines: int) -> bool:
        gpus = machines * training.gpus_per_machine
        return _nic_bytes(training, name, gpus) / training.nic_bytes_s <= BEARABLE * work_s / gpus

    low, high = 1, 2
    while bearable(high):
        low, high = high, 2 * high
        if high * training.gpus_per_machine > training.gpus * training.tokens_per_gpu:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bearable(middle) else (low, middle)
    return low * training.gpus_per_machine
