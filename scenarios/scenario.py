"""What a scenario is: a workload, faults at exact points, and what is expected of the recovery."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from chaos.agent.plan import Injection
from chaos.exits import UsageError
from chaos.faults.base import find_fault
from chaos.schedule import Arming
from chaos.targets import Inventory
from chaos.triggers import NeverFires, check
from metrics.expectations import HEALTHY, Expectation

COUNTS = (
    "workers", "per_node", "cpus_per_worker", "spare_cpus", "steps", "checkpoint_every", "keep", "step", "timeout_s",
)  # fmt: skip
"""Numbers of a shape that are 1 or more."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The numbers of a run that a scenario sets and the user may change.

    ``rank`` and ``step``: whom the fault hits, and right after which step. ``seconds``: how long a disturbance lasts.
    ``min_workers``: the fewest workers of an elastic job, whose most are ``workers``; 0 for a job of fixed size.
    ``per_node``: workers on one node. ``nodes``: nodes at the start, 0 for as many as the workers need.
    ``cpus_per_worker``: CPUs that a worker claims; ``spare_cpus``: a node's beyond its workers'. ``poll_s``: how often
    Ray Train's controller polls its workers; Ray's own default is 2 s, which is many of the reference trainer's short
    steps. ``timeout_s``, ``health_s``, ``report_s`` and ``shutdown_s``: time-outs of the process group, of a worker
    that answers no poll, of the report barrier (0 for none) and of leaving the process group, seconds; by default
    Ray's own. ``watchdog_s``: seconds without a step after which our agent restarts the group, 0 for never.
    ``start_s``: how long a group may wait for its place, seconds. ``preemption_poll_s``: how often Ray Train looks for
    nodes that are about to be taken away.
    """

    workers: int = 2
    min_workers: int = 0
    per_node: int = 1
    nodes: int = 0
    cpus_per_worker: int = 1
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
    watchdog_s: float = 0.0
    start_s: float = 60.0
    preemption_poll_s: float = 5.0

    def __post_init__(self) -> None:
        for name in COUNTS:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("min_workers", "nodes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be 0 or more")
        self._check_group()
        for name in ("poll_s", "seconds", "health_s", "shutdown_s", "start_s", "preemption_poll_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} must be a positive number of seconds")
        for name in ("report_s", "watchdog_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} must be a number of seconds, or 0 for none")

    def _check_group(self) -> None:
        if self.min_workers > self.workers:
            raise ValueError(
                f"min_workers={self.min_workers} is above workers={self.workers}: use at most {self.workers}"
            )
        if 0 < self.nodes < self.least_nodes:
            raise ValueError(
                f"nodes={self.nodes} cannot hold {self.min_workers or self.workers} workers, {self.per_node} on each: "
                f"use {self.least_nodes} or more, or fewer --workers"
            )

    @property
    def world(self) -> Inventory:
        """The workers, as many as there can be, and their nodes."""
        return Inventory(self.workers, self.per_node)

    @property
    def least_nodes(self) -> int:
        """The fewest nodes that the job can start on."""
        return len(Inventory(self.min_workers or self.workers, self.per_node).nodes)

    @property
    def node_count(self) -> int:
        """Nodes at the start."""
        return self.nodes or len(self.world.nodes)

    @property
    def cpus_per_node(self) -> int:
        """CPUs of each of them."""
        return self.per_node * self.cpus_per_worker + self.spare_cpus

    @property
    def timeouts(self) -> dict[str, float | None]:
        """The time-outs by the names of ``chaos.timeouts``, seconds; None for none."""
        return {
            "process_group": float(self.timeout_s),
            "worker_health": self.health_s,
            "report": self.report_s or None,
            "shutdown": float(self.shutdown_s),
            "poll": self.poll_s,
            "start": self.start_s,
            "preemption_poll": self.preemption_poll_s,
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
    ``labels``: Ray's labels of nodes, by name. ``waits_s``: seconds for which the job is watched as it waits for
    capacity that never comes, and then interrupted.
    ``unfit``: why it says nothing of a user's own script, empty where it does.
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
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    waits_s: float = 0.0
    unfit: str = ""
    needs: tuple[str, ...] = ()
    known_issue: str = ""

    def world(self, shape: Shape) -> Inventory:
        """Where the targets of a shape are looked for."""
        return replace(shape.world, labels=self.labels)

    def expectation(self, shape: Shape) -> Expectation:
        """What is expected of a run of that shape."""
        return self.expects if isinstance(self.expects, Expectation) else self.expects(shape)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Scenarios that are run one after the other, by name, with one table and one exit code; ``*`` stands for all."""

    name: str
    title: str
    members: tuple[str, ...]


S = TypeVar("S", bound=Scenario | Suite)

_REGISTER: dict[str, Scenario | Suite] = {}


def register(found: S) -> S:
    """Make a scenario, or a suite of them, known by its name.

    Raises UsageError when another one has that name.
    """
    if found.name in _REGISTER and _REGISTER[found.name] is not found:
        raise UsageError(f"a scenario called '{found.name}' exists already: give this one another name")
    _REGISTER[found.name] = found
    return found


def all_scenarios() -> dict[str, Scenario | Suite]:
    """Every scenario and suite of the library, and every one of the user's own that was loaded, by name."""
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


@dataclass(frozen=True)
class Chosen:
    """The scenarios that names stand for. ``suite``: the name of the whole, empty for a single scenario."""

    scenarios: tuple[Scenario, ...]
    suite: str


def members(names: Sequence[str]) -> Chosen:
    """The scenarios of those names, suites unfolded, each once.

    Raises UsageError when there is no such scenario or suite.
    """
    found = [find(name) for name in names]
    flat = [name for one in found for name in _unfolded(one)]
    scenarios = [one for name in dict.fromkeys(flat) if isinstance(one := find(name), Scenario)]
    single = len(found) == 1 and isinstance(found[0], Scenario)
    suite = "" if single else found[0].name if len(found) == 1 else "selection"
    return Chosen(tuple(scenarios), suite)


def _unfolded(one: Scenario | Suite) -> tuple[str, ...]:
    """The names of the scenarios that it stands for."""
    if isinstance(one, Scenario):
        return (one.name,)
    if one.members == ("*",):
        return tuple(name for name, known in all_scenarios().items() if isinstance(known, Scenario))
    return one.members


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
