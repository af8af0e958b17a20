"""What a user asks for, validated before anything is started."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import random
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic

from chaos.agent.plan import Injection
from chaos.exits import UsageError
from chaos.faults.base import all_faults
from chaos.own import lines as lines_of
from chaos.schedule import plan
from chaos.targets import Inventory, NoTarget, Rank
from metrics.expectations import Expectation, parse
from scenarios import extensions
from scenarios.program import Program, Reference, Script
from scenarios.scenario import Scenario, Shape, check_injections
from trainer.config import TrainerConfig

SHARED = (
    "workers", "min_workers", "cpus_per_worker", "steps", "checkpoint_every", "keep", "max_failures", "timeout_s",
)  # fmt: skip
"""Numbers that are both the scenario's and the trainer's."""

FLAGS = {
    "--json", "--control", "--no-control", "--dry-run", "--resume", "--share", "--no-share", "--quiet", "--strict",
    "--no-strict",
}  # fmt: skip
"""Options of ``aftershock run`` that no value follows."""

OWNED = {*SHARED, "seed", "storage", "name", "observer", "address"}
"""Trainer settings that an option of ours, or the harness itself, decides."""


SCRIPT_S = 3600.0
"""Longest life of a user's script in its undisturbed run, seconds."""


class Options(pydantic.BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """The options of ``aftershock run``; None leaves the scenario's own value."""

    workers: pydantic.PositiveInt | None = None
    nodes: pydantic.PositiveInt | None = None
    cpus_per_node: pydantic.PositiveInt | None = None
    rank: pydantic.NonNegativeInt | None = None
    step: pydantic.PositiveInt | None = None
    seed: pydantic.NonNegativeInt = 0
    control: bool | None = None
    expect: str = ""
    deadline: pydantic.PositiveFloat | None = None
    out: Path = Path("runs")
    settings: dict[str, str] = {}
    strict: bool = False
    sources: tuple[Path, ...] = ()
    inject: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Request:
    """A resolved scenario: its shape, its injections, what is expected, the program under test, how to run it.

    ``epoch_samples``: samples in one epoch, known once the data are there. ``control_from``: a run directory whose
    control run serves for this one too. ``asked``: the names that the user gave, a suite's for each of its members.
    ``began_s``: from when its time is counted, seconds since the epoch; None for the start of this process.
    """

    scenario: Scenario
    shape: Shape
    injections: tuple[Injection, ...]
    expects: Expectation
    program: Program
    options: Options
    epoch_samples: int | None = None
    control_from: Path | None = None
    asked: tuple[str, ...] = ()
    began_s: float | None = None

    @property
    def deadline_s(self) -> float:
        """Longest life of a training script, seconds.

        As asked, else 300, 60 more for each restart beyond the first, twice the least time of all steps, and what the
        scenario waits; an hour for a script of which nothing is known yet.
        """
        if self.program.script and not self.injections:
            return self.options.deadline or SCRIPT_S
        known = all_faults()
        breaking = sum(known[injection.fault].breaks for injection in self.injections)
        least = 2 * self.program.least_s + self.scenario.waits_s
        return self.options.deadline or 300.0 + 60.0 * max(0, breaking - 1) + least

    @property
    def known_steps(self) -> int:
        """The steps that are to be done; 0 for a script, whose undisturbed run tells them."""
        return 0 if self.program.script else self.shape.steps

    @property
    def control(self) -> bool:
        """Whether a run without a fault is made to compare with: as asked, else as the scenario says."""
        return self.scenario.control if self.options.control is None else self.options.control

    @property
    def taken(self) -> list[extensions.Taken]:
        """What was loaded of the user's own that it needs."""
        return extensions.needed(self.scenario.name, self.injections, self.expects)

    @property
    def undisturbed(self) -> Request:
        """The same for the control run, without a watchdog."""
        shape = dataclasses.replace(self.shape, watchdog_s=0.0)
        return dataclasses.replace(self, program=self.program.undisturbed(), shape=shape)

    @property
    def config(self) -> TrainerConfig:
        """The configuration of the reference trainer, which must be the program."""
        assert isinstance(self.program, Reference)
        return self.program.config

    @property
    def workload_key(self) -> str:
        """The same for two requests whose runs without a fault train alike, whatever their time-outs and budgets."""
        return _digest(self.program.key, self.shape.per_node)

    @property
    def cluster_key(self) -> str:
        """The same for two requests that can run on the same cluster."""
        shape, scenario = self.shape, self.scenario
        nodes = shape.node_count, shape.cpus_per_node, scenario.node_environment(shape), scenario.labels
        return _digest(nodes, sorted(shape.timeouts.items()))

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        name, words = extensions.word_for(self.scenario.name, self.asked), sys.argv[1:]
        if not _is_command():
            return f"aftershock run {name}"
        before = words.index("--") if "--" in words else len(words)
        words, script = words[:before], words[before:]
        places = [i for i, word in enumerate(words) if word in self.asked and not _takes_value(words[i - 1])]
        mine, *others = places or [-1]
        kept = [name if i == mine else word for i, word in enumerate(words) if i not in others and word != "--resume"]
        return shlex.join(["aftershock", *kept, *script])


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
    if options.cpus_per_node is not None:
        cpus = options.cpus_per_node
        raise UsageError(f"--cpus-per-node {cpus}: for a COMMAND of your own; use --set cpus_per_worker here")
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
    except (UsageError, NoTarget):
        raise
    except Exception as error:
        if not (lines := lines_of(error)):
            raise
        raise UsageError(f"scenario '{scenario.name}': {error!r} at {lines[-1]}") from error
    extensions.check_carried(injections)
    if options.expect:
        expects = expects.but(parse(options.expect))
    request = Request(scenario, shape, injections, expects, Reference(config), options)
    for injection in injections:
        if (notice := injection.values.get("notice_s", 0.0)) >= request.deadline_s:
            raise UsageError(
                f"--deadline {request.deadline_s:g} is over before the notice of {injection.id}, {notice:g} s: "
                f"allow more than {notice:g} s"
            )
    return request


def resolve_script(scenario: Scenario, options: Options, script: Script) -> Request:
    """Settle what can be known of a run of a user's script before its undisturbed run.

    Raises UsageError for options that only the script itself can decide.
    """
    if options.workers is not None:
        raise UsageError(f"--workers {options.workers}: the script's own ScalingConfig decides; leave it out")
    if options.control is False:
        raise UsageError("--no-control: what there is to break in a script, its undisturbed run tells; leave it out")
    own = {field.name for field in dataclasses.fields(Shape)}
    if odd := sorted(options.settings.keys() - own):
        raise UsageError(
            f"--set {odd[0]}: only a scenario's settings can be set for a script: {', '.join(sorted(own))}"
        )
    try:
        shape, _ = _split(scenario, options)
        if (cpus := options.cpus_per_node) is not None:
            shape = dataclasses.replace(shape, per_node=1, cpus_per_worker=1, spare_cpus=max(1, cpus - 1))
    except ValueError as error:
        raise UsageError(str(error)) from error
    return Request(scenario, shape, (), scenario.expectation(shape), script, options)


def resolver(script: tuple[str, ...]) -> Callable[[Scenario, Options], Request]:
    """How to resolve a scenario: for the reference trainer, or for a script where its command is given."""
    return functools.partial(resolve_script, script=Script.of(script)) if script else resolve


def with_data(request: Request, directory: Path) -> Request:
    """Make the training data, once for all runs of a workload, below a run directory; the user's own are checked.

    Raises UsageError when they cannot be trained on.
    """
    if not isinstance(request.program, Reference):
        return request
    from trainer.corpus import corpus_directory, epoch_rows  # pyarrow, which a mistake in the command need not wait for

    try:
        root = corpus_directory(request.config, str(directory))
    except ValueError as error:
        raise UsageError(str(error)) from error
    config = dataclasses.replace(request.config, data=str(root))
    return dataclasses.replace(request, program=Reference(config), epoch_samples=epoch_rows(config, root))


def _split(scenario: Scenario, options: Options) -> tuple[Shape, dict[str, Any]]:
    """Deal ``--set`` values to the scenario's shape and to the trainer's configuration."""
    shape = scenario.shape
    own = {field.name: type(field.default) for field in dataclasses.fields(Shape)}
    trainers = {f.name: type(f.default) for f in dataclasses.fields(TrainerConfig) if f.name not in OWNED}
    changes: dict[str, Any] = {
        k: v for k in ("workers", "nodes", "rank", "step") if (v := getattr(options, k)) is not None
    }
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
