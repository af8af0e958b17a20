"""What a fault is, and the register of all of them.

This module is imported inside training processes: it stays with the standard library.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Fault:
    """A way to break the process that calls ``fire``.

    ``name``: as users write it. ``effect``: what confirms that it happened. ``certifies`` and ``not_certified``:
    what surviving it proves, and what it does not.
    """

    name: ClassVar[str]
    effect: ClassVar[str]
    certifies: ClassVar[str]
    not_certified: ClassVar[str]

    def fire(self) -> None:
        """Break this process, now."""
        raise NotImplementedError


_REGISTER: dict[str, type[Fault]] = {}


def register(fault: type[Fault]) -> type[Fault]:
    """Make a fault known by its name."""
    _REGISTER[fault.name] = fault
    return fault


def all_faults() -> dict[str, type[Fault]]:
    """Every fault of this package, by name."""
    import chaos.faults

    for module in pkgutil.iter_modules(chaos.faults.__path__):
        importlib.import_module(f"chaos.faults.{module.name}")
    return dict(sorted(_REGISTER.items()))


def find_fault(name: str) -> Fault:
    """The fault of that name.

    Raises KeyError when there is none.
    """
    return all_faults()[name]()
