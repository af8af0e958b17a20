"""What a fault is, and the register of all of them.

This module is imported inside training processes: it stays with the standard library.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from subprocess import Popen
from typing import Any, ClassVar, Protocol

from chaos.exits import UsageError
from chaos.own import place_of
from chaos.process import Identity


class Proof(StrEnum):
    """What shows that a fault took effect; the harness looks for it, each in its own way."""

    EXIT = "exit"
    """The process left the process table, with the cause that the fault names."""
    ERROR = "error"
    """The controller received the error from the very rank that was hit."""
    BLOCKED = "blocked"
    """The process stands inside the fault while the whole job makes no step."""
    ENDED = "ended"
    """The disturbance ran its full time in the process, and ended."""
    TOLD = "told"
    """The attacker itself saw the effect on its victim."""


class InjectedError(RuntimeError):
    """Raised on purpose by a fault, to reach the training program."""


@dataclass(frozen=True)
class Fault:
    """A way to break, or to disturb, a training process. The fields of a subclass are its settings.

    ``name``: as users write it. ``certifies`` and ``not_certified``: what surviving it proves, and what it does not.
    ``effect``: what confirms that it happened, in words; ``proof``: the same for the harness. ``breaks``: whether the
    job must restart because of it; what does not break is a negative control, and a restart is a false alarm.
    ``noticed_by``: the time-outs, by their names in ``chaos.timeouts``, that can notice it; none where peers or Ray
    see it at once. ``error``: type of the error that the controller receives, for Proof.ERROR. ``points``: the only
    phases where it makes sense; none for any. ``in_training_thread``: whether it must fire in the thread that trains.
    ``with_peers``: whether the other ranks take part at the same point. ``within_s``: how soon its effect must be seen.
    """

    name: ClassVar[str]
    effect: ClassVar[str]
    certifies: ClassVar[str]
    not_certified: ClassVar[str]
    proof: ClassVar[Proof]
    breaks: ClassVar[bool] = True
    noticed_by: ClassVar[tuple[str, ...]] = ()
    points: ClassVar[tuple[str, ...]] = ()
    in_training_thread: ClassVar[bool] = False
    with_peers: ClassVar[bool] = False
    error: ClassVar[str] = ""
    within_s: ClassVar[float] = 10.0

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(self):
            value = getattr(self, setting.name)
            if isinstance(value, (int, float)) and not 0 < value < math.inf:
                raise ValueError(f"{self.name}: {setting.name}={value} must be a positive number")

    @property
    def cause(self) -> str:
        """How the process ends: a signal's name, or ``exit code N``; empty where it does not end, or any way."""
        return ""

    def fire(self) -> None:
        """Break this process, now."""
        raise NotImplementedError

    def accompany(self) -> None:
        """What every other rank does at the same point, for a fault ``with_peers``."""


class Nodes(Protocol):
    """The machines of the cluster, as far as an attack may touch them; by name."""

    def lose(self, name: str) -> int:
        """Kill every process of a node; returns how many."""

    def join(self, name: str = "") -> Iterator[float]:
        """Start a node again: the one named, else the one lost last, else a further one; yields until it is up."""

    def raylet(self, name: str) -> Identity | None:
        """The process that is the node to Ray; None when it is gone."""

    def drain(self, name: str, notice_s: float) -> Iterator[float]:
        """Announce to Ray that a node will be gone so many seconds from now; yields until Ray has taken it."""

    def tool(self, command: Sequence[str]) -> Popen[bytes]:
        """Start a process that helps an attack; it ends with the run, whatever happens."""


class Scene(Protocol):
    """Where an attack takes place: a process that stands still at its point, on the node named ``node``."""

    @property
    def node(self) -> str:
        """Name of the victim's node."""

    @property
    def nodes(self) -> Nodes:
        """All nodes."""

    @property
    def place(self) -> str:
        """The folder that the victim's point is about: where it saves, copies to, or reports below; empty for none."""

    @property
    def folder(self) -> Path:
        """Where the attack may leave notes; it is kept with the run's logs."""

    @property
    def controller(self) -> Identity | None:
        """Ray Train's controller; None while it is not known."""

    def release(self) -> None:
        """The first blow has landed: the process may leave its point."""

    def confirm(self, evidence: str) -> None:
        """The effect was seen; the evidence says how."""


class Attack(Fault):
    """A fault that only an outsider can do: the agent holds the process at the point until the first blow.

    ``on_node``: whether it hits the victim's whole node, or the cluster. ``outlives``: whether it goes on when the
    victim is gone.
    """

    proof: ClassVar[Proof] = Proof.TOLD
    on_node: ClassVar[bool] = False
    outlives: ClassVar[bool] = False

    def touches(self, victim: Identity, scene: Scene) -> Identity | None:
        """The process that it stops, which must go on again whatever happens; by default the victim."""
        return victim

    def attack(self, victim: Identity, scene: Scene) -> Generator[float]:
        """Do it step by step; each value is how many seconds to wait before the next step.

        Closing it, at any time, heals.
        """
        raise NotImplementedError


_REGISTER: dict[str, type[Fault]] = {}


def register(fault: type[Fault]) -> type[Fault]:
    """Make a fault known by its name.

    Raises UsageError when another one has that name.
    """
    known = _REGISTER.get(fault.name)
    if known is not None and place_of(known) != place_of(fault):
        where = Path(place_of(known)[0]).name
        raise UsageError(f"a fault called '{fault.name}' exists already, in {where}: give this one another name")
    _REGISTER[fault.name] = fault
    return fault


def all_faults() -> dict[str, type[Fault]]:
    """Every fault of this package and every one of the user's own that was loaded, by name."""
    import chaos.faults

    for module in pkgutil.iter_modules(chaos.faults.__path__):
        importlib.import_module(f"chaos.faults.{module.name}")
    return dict(sorted(_REGISTER.items()))


def find_fault(name: str, values: dict[str, Any] | None = None) -> Fault:
    """The fault of that name with the given settings.

    Raises KeyError when there is none.
    """
    known = _REGISTER.get(name) or all_faults()[name]
    return known(**(values or {}))


def settings(fault: type[Fault]) -> dict[str, Any]:
    """The settings of a fault and their defaults; None for one without."""
    return {f.name: None if f.default is dataclasses.MISSING else f.default for f in dataclasses.fields(fault)}
