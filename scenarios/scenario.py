"""What a scenario is: a workload, faults at exact points, and what is expected of the recovery."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from chaos.agent.plan import Injection
from chaos.exits import UsageError
from chaos.faults.base import find_fault
from chaos.schedule import Arming
from chaos.targets import Inventory
from chaos.triggers import NeverFires, check
from metrics.expectations import HEALTHY, Expectation


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The numbers of a run that a scenario sets and the user may change.

    ``rank`` and ``step``: whom the fault hits, and right after which step. ``seconds``: how long a disturbance lasts.
    ``per_node``: workers on one node. ``spare_cpus``: CPUs of a node beyond its workers'. ``poll_s``: how often Ray
    Train's controller polls its workers; Ray's own default is 2 s, which is many of the reference trainer's short
    steps. ``timeout_s``, ``health_s``, ``report_s`` and ``shutdown_s``: time-outs of the process group, of a worker
    that answers no poll, of the report barrier (0 for none) and of leaving the process group, seconds; by default
    Ray's own.
    """

    workers: int = 2
    per_node: int = 1
    spare_cpus: int = 1
    steps: int = 40
    checkpoint_every: int = 10
    keep: int = 2
    rank: int = 1
    step: int = 25
    seconds: float = 5.0
    max_failures: int = 3
    poll_s: float = 0.5
    timeout_s: int = 1800
    health_s: float = 600.0
    report_s: float = 0.0
    shutdown_s: int = 30

    def __post_init__(self) -> None:
        for name in ("workers", "per_node", "spare_cpus", "steps", "checkpoint_every", "keep", "step", "timeout_s"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("poll_s", "seconds", "health_s", "shutdown_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} must be a positive number of seconds")
        if not 0 <= self.report_s < math.inf:
            raise ValueError(f"report_s={self.report_s} must be a number of seconds, or 0 for no time-out")

    @property
    def world(self) -> Inventory:
        """The workers and their nodes."""
        return Inventory(self.workers, self.per_node)

    @property
    def timeouts(self) -> dict[str, float | None]:
        """The time-outs by the names of ``chaos.timeouts``, seconds; None for none."""
        return {
            "process_group": float(self.timeout_s),
            "worker_health": self.health_s,
            "report": self.report_s or None,
            "shutdown": float(self.shutdown_s),
            "poll": self.poll_s,
        }


Inject = Callable[[Shape], tuple[Arming, ...]]
"""Arms the faults of a scenario for a shape."""


def _nothing(shape: Shape) -> dict[str, dict[str, str]]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A named way to break the workload. ``inject`` arms its faults for a shape.

    ``title``: one line for lists. ``expects``: what the recovery must keep. ``settings``: the trainer's, beyond the
    shape's. ``recovers``: whether training is expected to go on after the last fault. ``control``: whether a run
    without a fault is made to compare with. ``node_environment``: what nodes have in their environment, by name.
    ``needs``: what the machine must permit, by the names of ``aftershock doctor``. ``known_issue``: what Ray or torch
    is known to do wrong here, and why more than one outcome is accepted.
    """

    name: str
    title: str
    inject: Inject
    expects: Expectation | Callable[[Shape], Expectation] = HEALTHY
    shape: Shape = Shape()
    settings: Mapping[str, Any] = field(default_factory=dict)
    recovers: bool = True
    control: bool = True
    node_environment: Callable[[Shape], Mapping[str, Mapping[str, str]]] = _nothing
    needs: tuple[str, ...] = ()
    known_issue: str = ""

    def expectation(self, shape: Shape) -> Expectation:
        """What is expected of a run of that shape."""
        return self.expects if isinstance(self.expects, Expectation) else self.expects(shape)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Scenarios that are run one after the other, by name, with one table and one exit code."""

    name: str
    title: str
    members: tuple[str, ...]


S = TypeVar("S", Scenario, Suite)

_REGISTER: dict[str, Scenario | Suite] = {}


def register(found: S) -> S:
    """Make a scenario, or a suite of them, known by its name."""
    _REGISTER[found.name] = found
    return found


def all_scenarios() -> dict[str, Scenario | Suite]:
    """Every scenario and suite of the library, by name."""
    import importlib
    import pkgutil

    import scenarios.library

    for module in pkgutil.iter_modules(scenarios.library.__path__):
        importlib.import_module(f"scenarios.library.{module.name}")
    return dict(sorted(_REGISTER.items()))


def find(name: str) -> Scenario | Suite:
    """The scenario or suite of that name.

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
    attempts = math.inf if shape.max_failures < 0 else shape.max_failures + 1
    for injection in injections:
        fault, trigger = find_fault(injection.fault, injection.values), injection.trigger
        if fault.points and trigger.point not in fault.points:
            raise UsageError(f"{fault.name} makes no sense in {trigger.point}: use in_phase('{fault.points[0]}')")
        if fault.with_peers and (injection.rank is None or trigger.seconds is not None):
            raise UsageError(
                f"{fault.name} needs every rank at one point: use a rank and a step, not {injection.where} {trigger}"
            )
        try:
            check(injection.trigger, steps=shape.steps, checkpoint_every=shape.checkpoint_every, attempts=attempts)
        except NeverFires as error:
            raise UsageError(str(error)) from error
