"""Every setting of the reference trainer: one documented field each, validated when the object is made."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

PLACEMENTS = ("SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK")
DTYPES = ("float32", "float64", "bfloat16")
RESIZES = ("accumulate", "rescale")
SAVES = ("blocking", "asynchronous")


def setting(default: Any, help: str) -> Any:
    """A dataclass field that carries its own documentation, which the command line shows as ``--help``."""
    return dataclasses.field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """What to train, on what, with how many workers, and how often to save.

    Raises ValueError when a value is out of range or two values contradict each other; the message names both.
    """

    steps: int = setting(40, "optimizer steps to train in all")
    workers: int = setting(2, "training workers (ranks), or the most of them; must divide --micro-batches")
    min_workers: int = setting(0, "fewest workers of an elastic group, of any size in between; 0 for a fixed size")
    resize: str = setting("accumulate", "smaller groups: accumulate (same batch) or rescale (batch and rate shrink)")
    resize_interval_s: float = setting(60.0, "seconds between two looks at whether to resize an elastic group")
    cpus_per_worker: int = setting(1, "CPUs that each worker claims from Ray")
    placement: str = setting("SPREAD", "placement of the workers on nodes: SPREAD, PACK, STRICT_SPREAD or STRICT_PACK")
    micro_batches: int = setting(6, "micro-batches in one global step of a full group")
    batch_size: int = setting(8, "sequences in one micro-batch")
    sequence_length: int = setting(64, "tokens the model sees in one sequence")
    pace: float = setting(0.0, "least seconds that one step takes, to stand for a larger model")

    layers: int = setting(2, "transformer blocks")
    width: int = setting(64, "model width; must be a multiple of --heads")
    heads: int = setting(4, "attention heads")
    dropout: float = setting(0.1, "dropout probability")
    dtype: str = setting("float32", "float32, float64 or bfloat16 (bfloat16 compute, float32 weights)")

    learning_rate: float = setting(3e-3, "peak learning rate of AdamW")
    warmup_steps: int = setting(5, "steps of linear warm-up before the cosine decay")
    weight_decay: float = setting(0.1, "decoupled weight decay of AdamW")
    clip_norm: float = setting(1.0, "largest global gradient norm")
    seed: int = setting(0, "seed of weights, data order and dropout")

    data: str = setting("", "directory of Parquet files with columns id and tokens (default: a corpus made here)")
    corpus_bytes: int = setting(250_000, "size of the corpus made when --data is absent, in bytes")
    storage: str = setting("", "where runs and checkpoints live, a path all nodes see (default: ~/ray_results)")
    name: str = setting("reference", "name of the run; the same name and storage resume it")

    checkpoint_every: int = setting(10, "steps between checkpoints; the last step is always saved")
    save: str = setting("blocking", "how to save: blocking, or asynchronous (written beside the training)")
    keep: int = setting(2, "checkpoints to keep")
    preemption_check_every: int = setting(0, "steps between two looks for nodes about to be taken away; 0 for never")
    evaluate_every: int = setting(0, "steps between evaluations on the held-out split; 0 for none")
    log_every: int = setting(5, "steps between lines of progress")

    max_failures: int = setting(0, "worker failures to survive before the run ends in error")
    timeout_s: int = setting(1800, "process-group time-out of torch.distributed, in seconds")
    address: str = setting("", "Ray cluster to join (default: RAY_ADDRESS, else a local one is started)")
    observer: str = setting("", "module told of samples, losses and saved state (see trainer.observer)")

    def __post_init__(self) -> None:
        self._check_ranges()
        self._check_choices()
        self._check_group()

    def _check_ranges(self) -> None:
        model = ("batch_size", "sequence_length", "layers", "width", "heads")
        group = ("workers", "cpus_per_worker", "micro_batches", "timeout_s")
        for name in (*model, *group, "steps", "checkpoint_every", "keep", "log_every", "corpus_bytes"):
            self._require(getattr(self, name) >= 1, name, "must be at least 1")
        for name in ("min_workers", "warmup_steps", "evaluate_every", "preemption_check_every", "seed"):
            self._require(getattr(self, name) >= 0, name, "must not be negative")
        for name in ("weight_decay", "pace", "resize_interval_s"):
            self._require(0 <= getattr(self, name) < math.inf, name, "must be a number, and not negative")
        self._require(self.max_failures >= -1, "max_failures", "must be -1 (no limit) or more")
        self._require(0 <= self.dropout < 1, "dropout", "must be in [0, 1)")
        self._require(self.learning_rate > 0, "learning_rate", "must be positive")
        self._require(self.seed < 2**63, "seed", "must be less than 2**63")
        self._require(self.clip_norm > 0, "clip_norm", "must be positive")

    def _check_choices(self) -> None:
        for name, known in (("dtype", DTYPES), ("placement", PLACEMENTS), ("resize", RESIZES), ("save", SAVES)):
            self._require(getattr(self, name) in known, name, f"must be one of {', '.join(known)}")
        self._require(self.width % self.heads == 0, "width", f"must be a multiple of heads={self.heads}")

    def _check_group(self) -> None:
        most = f"is more than workers={self.workers}: use at most {self.workers}, or more workers"
        self._require(self.min_workers <= self.workers, "min_workers", most)
        odd = [size for size in self.group_sizes if self.micro_batches % size]
        if odd and self.min_workers:
            whole = math.lcm(*self.group_sizes)
            raise ValueError(
                f"micro_batches={self.micro_batches} is no multiple of {', '.join(map(str, odd))}, and a group of "
                f"min_workers={self.min_workers} to workers={self.workers} may have any size between: use "
                f"micro_batches={math.ceil(self.micro_batches / whole) * whole}, or a narrower range"
            )
        if odd:
            fitting = [n for n in range(1, self.micro_batches + 1) if self.micro_batches % n == 0]
            raise ValueError(
                f"workers={self.workers} does not divide micro_batches={self.micro_batches}: use one of "
                f"{', '.join(map(str, fitting))} workers, or change micro_batches"
            )

    def _require(self, condition: bool, name: str, rule: str) -> None:
        if not condition:
            raise ValueError(f"{name}={getattr(self, name)} {rule}")

    @property
    def group_sizes(self) -> range:
        """Every world size that the worker group may have."""
        return range(self.min_workers or self.workers, self.workers + 1)

    @property
    def global_batch(self) -> int:
        """Sequences in one optimizer step of a full group; of every group, unless ``resize`` is rescale."""
        return self.micro_batches * self.batch_size
