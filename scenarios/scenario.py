"""What a scenario is: a workload, faults at exact points, and the bounds that its recovery must keep."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from chaos.agent.plan import Injection
from chaos.exits import UsageError


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The numbers of a run that a scenario sets and the user may change.

    ``rank`` and ``step``: whom the fault hits, and right after which step. ``poll_s``: how often Ray Train's
    controller polls its workers; Ray's own default is 2 s, which is many of the reference trainer's short steps.
    """

    workers: int = 2
    steps: int = 40
    checkpoint_every: int = 10
    keep: int = 2
    rank: int = 1
    step: int = 25
    max_failures: int = 3
    poll_s: float = 0.5
    recover_within_s: float = 120.0

    def __post_init__(self) -> None:
        for name in ("workers", "steps", "checkpoint_every", "keep", "step"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("poll_s", "recover_within_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} must be a positive number of seconds")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A named way to break the workload. ``inject`` makes its injections for a shape.

    ``title``: one line for lists. ``expects``: what a healthy recovery keeps, in words.
    """

    name: str
    title: str
    expects: str
    inject: Callable[[Shape], tuple[Injection, ...]]
    shape: Shape = Shape()


_REGISTER: dict[str, Scenario] = {}


def register(scenario: Scenario) -> Scenario:
    """Make a scenario known by its name."""
    _REGISTER[scenario.name] = scenario
    return scenario


def all_scenarios() -> dict[str, Scenario]:
    """Every scenario of the library, by name."""
    import importlib
    import pkgutil

    import scenarios.library

    for module in pkgutil.iter_modules(scenarios.library.__path__):
        importlib.import_module(f"scenarios.library.{module.name}")
    return dict(sorted(_REGISTER.items()))


def find_scenario(name: str) -> Scenario:
    """The scenario of that name.

    Raises UsageError, suggesting the nearest name, when there is none.
    """
    import difflib

    known = all_scenarios()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'?" if near else "`aftershock list` shows them all"
    raise UsageError(f"unknown scenario '{name}': {hint}")


def check_injections(injections: tuple[Injection, ...], shape: Shape) -> None:
    """Refuse injections that could never fire.

    Raises UsageError naming the value and the way out.
    """
    if not injections:
        raise UsageError(f"nothing would be injected with max_failures={shape.max_failures}: use 1 or more")
    for rank in (shape.rank, *(injection.rank for injection in injections)):
        if not 0 <= rank < shape.workers:
            raise UsageError(
                f"rank={rank} is outside the world of {shape.workers} workers: "
                f"use 0 to {shape.workers - 1}, or more --workers"
            )
    for injection in injections:
        if not 1 <= injection.step <= shape.steps:
            raise UsageError(
                f"step={injection.step} never comes in a run of {shape.steps} steps: "
                f"use 1 to {shape.steps}, or --set steps=N"
            )
