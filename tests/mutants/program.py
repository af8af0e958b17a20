"""What is put on trial: training programs made of the reference trainer by small patches, and the runs they face."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scenarios.library.workers import KILL_WORKER
from scenarios.request import Options, Request, resolve, with_data
from scenarios.scenario import Scenario
from tests.live.bench import SETTINGS

Patch = Callable[[], None]
"""Changes functions of the reference trainer in the process that calls it."""


def nothing() -> None:
    """The reference trainer as it is."""


@dataclass(frozen=True)
class Trial:
    """A run: how the program is broken and what is expected, with the short run's numbers changed by ``settings``."""

    scenario: Scenario = KILL_WORKER
    settings: Mapping[str, str] = field(default_factory=dict)
    step: int = 7
    rank: int = 1
    seed: int = 0

    def but(self, step: int | None = None, seed: int | None = None, **settings: str) -> Trial:
        """The same with another step, another seed or further settings."""
        changed = {"step": self.step if step is None else step, "seed": self.seed if seed is None else seed}
        return dataclasses.replace(self, **changed, settings={**self.settings, **settings})

    def request(self) -> Request:
        """The request, without its data."""
        settings = {**SETTINGS, **self.settings}
        return resolve(self.scenario, Options(rank=self.rank, step=self.step, seed=self.seed, settings=settings))

    def request_in(self, folder: Path) -> Request:
        """The request, with its data made below a folder."""
        return with_data(self.request(), folder)

    @property
    def cluster(self) -> tuple[object, ...]:
        """The same for two trials that can take place on one cluster."""
        shape, scenario = self.request().shape, self.scenario
        environment = {name: tuple(sorted(told.items())) for name, told in scenario.node_environment(shape).items()}
        return shape.node_count, shape.cpus_per_node, tuple(sorted(environment.items()))


@dataclass(frozen=True, kw_only=True)
class Program:
    """A training program. ``worker``: patches each worker; ``driver``: the process that calls ``fit()``.

    ``own_control``: whether it trains otherwise than the reference trainer also where nothing disturbs it, so that
    only a run of its own can be its control run.
    """

    name: str
    trial: Trial = Trial()
    worker: Patch = nothing
    driver: Patch = nothing
    own_control: bool = False


@dataclass(frozen=True, kw_only=True)
class Variant(Program):
    """A healthy program: every check must pass, or not apply."""


@dataclass(frozen=True, kw_only=True)
class Mutant(Program):
    """A program with one mistake that real training programs have made.

    ``caught_by`` names the check that must turn red; ``also`` are the other checks that the same mistake turns red.
    """

    caught_by: str
    also: frozenset[str] = frozenset()


DIFFERS = frozenset({"trajectory", "control-state"})
"""Red wherever training goes on otherwise than without the fault."""
