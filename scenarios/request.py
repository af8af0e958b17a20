"""What a user asks for, validated before anything is started."""

from __future__ import annotations

import dataclasses
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

SHARED = ("workers", "steps", "checkpoint_every", "keep", "max_failures", "timeout_s")
"""Numbers that are both the scenario's and the trainer's."""

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
    control run serves for this one too. ``asked``: the name that the user gave, a suite's for each of its members.
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
    asked: str = ""
    began_s: float | None = None

    @property
    def deadline_s(self) -> float:
        """Longest life of a training script, seconds: as asked, else 300, and 60 for each restart beyond the first."""
        known = all_faults()
        breaking = sum(known[injection.fault].breaks for injection in self.injections)
        return self.options.deadline or 300.0 + 60.0 * max(0, breaking - 1)

    @property
    def control(self) -> bool:
        """Whether a run without a fault is made to compare with: as asked, else as the scenario says."""
        return self.scenario.control if self.options.control is None else self.options.control

    @property
    def workload_key(self) -> str:
        """The same for two requests whose runs without a fault are the same."""
        config = dataclasses.replace(self.config, name="", data="")
        return repr((config, sorted(self.shape.timeouts.items()), self.shape.world))

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        name = self.scenario.name
        words = [name if word == self.asked else word for word in sys.argv[1:]]
        return shlex.join(["aftershock", *words]) if _is_command() else f"aftershock run {name}"


def _is_command() -> bool:
    return Path(sys.argv[0]).stem == "aftershock"


def resolve(scenario: Scenario, options: Options) -> Request:
    """Settle every value of a run of a scenario.

    Raises UsageError for whatever cannot be run, naming the value and the way out, and NoTarget when a fault has none.
    """
    try:
        shape, settings = _split(scenario, options)
        injections = plan(scenario.inject(shape), shape.world, options.seed)
        check_injections(injections, shape)
        expects = scenario.expectation(shape)
        chosen = {field: getattr(shape, field) for field in SHARED}
        name = {"seed": options.seed, "name": scenario.name}
        config = TrainerConfig(**{**scenario.settings, **settings, **chosen, **name})
    except ValueError as error:
        raise UsageError(str(error)) from error
    if options.expect:
        expects = expects.but(parse(options.expect))
    return Request(scenario, shape, injections, expects, config, options)


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
    workers = int(changes.get("workers", shape.workers))
    dataclasses.replace(shape, workers=workers)  # refuses a number of workers that has no ranks
    if workers <= shape.rank and "rank" not in changes:
        changes["rank"] = workers - 1
    Rank(int(changes.get("rank", shape.rank))).resolve(Inventory(workers), random.Random())
    return dataclasses.replace(shape, **changes), settings


def _typed(key: str, text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"--set {key}={text}: {key} is of type {kind.__name__}") from None
