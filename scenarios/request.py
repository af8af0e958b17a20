"""What a user asks for, validated before anything is started."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import shlex
import sys
from pathlib import Path
from typing import Any

import pydantic

from chaos.agent.plan import Injection
from chaos.exits import UsageError
from chaos.faults.base import all_faults
from chaos.schedule import plan
from chaos.targets import Inventory, Rank
from metrics.expectations import Expectation, parse
from scenarios.scenario import Scenario, Shape, check_injections
from trainer.config import TrainerConfig

SHARED = (
    "workers", "min_workers", "cpus_per_worker", "steps", "checkpoint_every", "keep", "max_failures", "timeout_s",
)  # fmt: skip
"""Numbers that are both the scenario's and the trainer's."""

HARMLESS = {
    "name", "data", "timeout_s", "max_failures", "min_workers", "cpus_per_worker", "pace", "preemption_check_every",
    "resize_interval_s", "evaluate_every", "save",
}  # fmt: skip
"""Trainer settings that change nothing in a training that nothing disturbs."""

FLAGS = {
    "--json", "--control", "--no-control", "--dry-run", "--resume", "--share", "--no-share", "--quiet",
}  # fmt: skip
"""Options of ``aftershock run`` that no value follows."""

OWNED = {*SHARED, "seed", "storage", "name", "observer", "address"}
"""Trainer settings that an option of ours, or the harness itself, decides."""


class Options(pydantic.BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """The options of ``aftershock run``; None leaves the scenario's own value."""

    workers: pydantic.PositiveInt | None = None
    rank: pydantic.NonNegativeInt | None = None
    step: pydantic.PositiveInt | None = None
    seed: pydantic.NonNegativeInt = 0
    control: bool | None = None
    expect: str = ""
    deadline: pydantic.PositiveFloat | None = None
    out: Path = Path("runs")
    settings: dict[str, str] = {}


@dataclasses.dataclass(frozen=True)
class Request:
    """A resolved scenario: its shape, its injections, what is expected, the trainer's configuration, how to run it.

    ``epoch_samples``: samples in one epoch, known once the data are there. ``control_from``: a run directory whose
    control run serves for this one too. ``asked``: the names that the user gave, a suite's for each of its members.
    ``began_s``: from when its time is counted, seconds since the epoch; None for the start of this process.
    """

    scenario: Scenario
    shape: Shape
    injections: tuple[Injection, ...]
    expects: Expectation
    config: TrainerConfig
    options: Options
    epoch_samples: int | None = None
    control_from: Path | None = None
    asked: tuple[str, ...] = ()
    began_s: float | None = None

    @property
    def deadline_s(self) -> float:
        """Longest life of a training script, seconds.

        As asked, else 300, 60 more for each restart beyond the first, twice the least time of all steps, and what the
        scenario waits.
        """
        known = all_faults()
        breaking = sum(known[injection.fault].breaks for injection in self.injections)
        least = 2 * self.config.pace * self.config.steps + self.scenario.waits_s
        return self.options.deadline or 300.0 + 60.0 * max(0, breaking - 1) + least

    @property
    def control(self) -> bool:
        """Whether a run without a fault is made to compare with: as asked, else as the scenario says."""
        return self.scenario.control if self.options.control is None else self.options.control

    @property
    def undisturbed(self) -> Request:
        """The same for the control run: nothing to wait for, no watchdog, and a group of the full size from the start.

        An elastic one may begin smaller, where Ray has not heard of a node that has just come back.
        """
        config = dataclasses.replace(self.config, pace=0.0, min_workers=0)
        return dataclasses.replace(self, config=config, shape=dataclasses.replace(self.shape, watchdog_s=0.0))

    @property
    def workload_key(self) -> str:
        """The same for two requests whose runs without a fault train alike, whatever their time-outs and budgets."""
        told = dataclasses.asdict(self.config)
        return _digest([(name, value) for name, value in told.items() if name not in HARMLESS], self.shape.per_node)

    @property
    def cluster_key(self) -> str:
        """The same for two requests that can run on the same cluster."""
        shape, scenario = self.shape, self.scenario
        nodes = shape.node_count, shape.cpus_per_node, scenario.node_environment(shape), scenario.labels
        return _digest(nodes, sorted(shape.timeouts.items()))

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        name, words = self.scenario.name, sys.argv[1:]
        if not _is_command():
            return f"aftershock run {name}"
        places = [i for i, word in enumerate(words) if word in self.asked and not _takes_value(words[i - 1])]
        mine, *others = places or [-1]
        kept = [name if i == mine else word for i, word in enumerate(words) if i not in others and word != "--resume"]
        return shlex.join(["aftershock", *kept])


def _takes_value(word: str) -> bool:
    """Whether the next word on the command line is the value of this one."""
    return word.startswith("--") and "=" not in word and word not in FLAGS


def _digest(*parts: object) -> str:
    """A short name for what these parts say."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _is_command() -> bool:
    return Path(sys.argv[0]).stem == "aftershock"


def resolve(scenario: Scenario, options: Options) -> Request:
    """Settle every value of a run of a scenario.

    Raises UsageError for whatever cannot be run, naming the value and the way out, and NoTarget when a fault has none.
    """
    try:
        shape, settings = _split(scenario, options)
        injections = plan(scenario.inject(shape), scenario.world(shape), options.seed)
        check_injections(injections, shape)
        expects = scenario.expectation(shape)
        chosen = {field: getattr(shape, field) for field in SHARED}
        name = {"seed": options.seed, "name": scenario.name}
        config = TrainerConfig(**{**scenario.settings, **settings, **chosen, **name})
    except ValueError as error:
        raise UsageError(str(error)) from error
    if options.expect:
        expects = expects.but(parse(options.expect))
    request = Request(scenario, shape, injections, expects, config, options)
    for injection in injections:
        if (notice := injection.values.get("notice_s", 0.0)) >= request.deadline_s:
            raise UsageError(
                f"--deadline {request.deadline_s:g} is over before the notice of {injection.id}, {notice:g} s: "
                f"allow more than {notice:g} s"
            )
    return request


def with_data(request: Request, directory: Path) -> Request:
    """Make the training data, once for all runs of a workload, below a run directory; the user's own are checked.

    Raises UsageError when they cannot be trained on.
    """
    from trainer.corpus import corpus_directory, epoch_rows  # pyarrow, which a mistake in the command need not wait for

    try:
        root = corpus_directory(request.config, str(directory))
    except ValueError as error:
        raise UsageError(str(error)) from error
    config = dataclasses.replace(request.config, data=str(root))
    return dataclasses.replace(request, config=config, epoch_samples=epoch_rows(config, root))


def _split(scenario: Scenario, options: Options) -> tuple[Shape, dict[str, Any]]:
    """Deal ``--set`` values to the scenario's shape and to the trainer's configuration."""
    shape = scenario.shape
    own = {field.name: type(field.default) for field in dataclasses.fields(Shape)}
    trainers = {f.name: type(f.default) for f in dataclasses.fields(TrainerConfig) if f.name not in OWNED}
    changes: dict[str, Any] = {k: v for k in ("workers", "rank", "step") if (v := getattr(options, k)) is not None}
    settings: dict[str, Any] = {}
    for key, text in options.settings.items():
        if key in own:
            changes[key] = _typed(key, text, own[key])
        elif key in trainers:
            settings[key] = _typed(key, text, trainers[key])
        else:
            raise UsageError(f"--set {key}={text}: unknown setting; known are {', '.join(sorted({*own, *trainers}))}")
    shape = dataclasses.replace(shape, **changes)
    if shape.workers <= shape.rank and "rank" not in changes:
        shape = dataclasses.replace(shape, rank=shape.workers - 1)
    Rank(shape.rank).resolve(Inventory(shape.workers), random.Random())
    return shape, settings


def _typed(key: str, text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"--set {key}={text}: {key} is of type {kind.__name__}") from None
