"""The protocol by which the training loop tells an onlooker what cannot be seen from outside.

A module or object with these three functions may be named with ``--observer``; without one nothing is told.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, Protocol, cast


class Observer(Protocol):
    """Three calls, none of which may change or fail the training."""

    def samples(self, ids: Iterable[int]) -> None:
        """Tell which samples (ids within the epoch) this rank consumes for the step under way."""

    def loss(self, value: float) -> None:
        """Tell this rank's loss of the step under way."""

    def state(self, name: str, tree: Any) -> None:
        """Tell the training state, a nested dict, at a named moment: ``saved`` or ``restored``."""


class Silent:
    """The observer of a run that nobody watches."""

    def samples(self, ids: Iterable[int]) -> None:
        """Nobody listens."""

    def loss(self, value: float) -> None:
        """Nobody listens."""

    def state(self, name: str, tree: Any) -> None:
        """Nobody listens."""


def find_observer(name: str) -> Observer:
    """Import the observer module of that dotted name; the silent one when the name is empty."""
    return cast(Observer, importlib.import_module(name)) if name else Silent()
