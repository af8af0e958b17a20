"""How long a phase takes, as a distribution: constant, exponential, lognormal, or drawn from what was measured."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from metrics.plan.quantities import YEAR_S, PlanError, require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Seconds = NDArray[np.float64]
    Random = np.random.Generator


class Distribution(Protocol):
    """A random duration."""

    @property
    def mean_s(self) -> float:
        """Its mean, in seconds: what the closed forms go by."""

    def draw(self, random: Random, count: int) -> Seconds | float:
        """So many independent values, in seconds; one for all where it does not vary."""


@dataclass(frozen=True)
class Constant:
    """Always the same."""

    seconds: float

    def __post_init__(self) -> None:
        require("seconds", self.seconds, 0, YEAR_S, "a duration, in seconds")

    @property
    def mean_s(self) -> float:
        """The value itself."""
        return self.seconds

    def draw(self, random: Random, count: int) -> float:
        """The value; nothing is random."""
        return self.seconds

    def __str__(self) -> str:
        return f"{self.seconds:g}"


@dataclass(frozen=True)
class Exponential:
    """Without memory: the end is as likely in every moment."""

    mean: float

    def __post_init__(self) -> None:
        require("mean", self.mean, 0, YEAR_S, "a mean duration, in seconds")

    @property
    def mean_s(self) -> float:
        """The mean."""
        return self.mean

    def draw(self, random: Random, count: int) -> Seconds:
        """Values drawn."""
        return random.exponential(self.mean, count)

    def __str__(self) -> str:
        return f"exponential({self.mean:g})"


@dataclass(frozen=True)
class Lognormal:
    """Mostly short, with a long tail. ``sigma``: standard deviation of its logarithm."""

    mean: float
    sigma: float

    def __post_init__(self) -> None:
        require("mean", self.mean, 1e-9, YEAR_S, "a mean duration, in seconds")
        require("sigma", self.sigma, 0, 5, "the standard deviation of the logarithm, such as 0.5")

    @property
    def mean_s(self) -> float:
        """The mean."""
        return self.mean

    def draw(self, random: Random, count: int) -> Seconds:
        """Values drawn."""
        return random.lognormal(math.log(self.mean) - self.sigma**2 / 2, self.sigma, count)

    def __str__(self) -> str:
        return f"lognormal({self.mean:g}, {self.sigma:g})"


@dataclass(frozen=True)
class Empirical:
    """Values that were measured, each as likely as the others."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise PlanError("nothing was measured: a distribution needs at least one value")
        for value in self.values:
            require("seconds", value, 0, YEAR_S, "a duration, in seconds")

    @property
    def mean_s(self) -> float:
        """The mean of the values."""
        return math.fsum(self.values) / len(self.values)

    def draw(self, random: Random, count: int) -> Seconds:
        """Values drawn, with replacement."""
        return random.choice(self.values, count)

    def __str__(self) -> str:
        return f"measured({', '.join(f'{value:g}' for value in self.values)})"


FORMS: dict[str, tuple[Callable[..., Any], int]] = {
    "constant": (Constant, 1),
    "exponential": (Exponential, 1),
    "lognormal": (Lognormal, 2),
}
"""What can be written, with the number of values that it takes."""


def parse(text: str) -> Distribution:
    """The distribution that a text describes: ``600``, ``exponential(600)`` or ``lognormal(600, 0.5)``, in seconds.

    Raises PlanError when it describes none.
    """
    found = re.fullmatch(r"\s*(?:([a-z]+)\s*\(([^()]*)\)|([^()]+))\s*", text)
    name, inside = (found[1] or "constant", found[2] or found[3] or "") if found else ("", "")
    form, wanted = FORMS.get(name, (None, 0))
    try:
        values = [float(part) for part in inside.split(",")]
    except ValueError:
        values = []
    if form is None or len(values) != wanted:
        raise PlanError(f"{text!r} is no duration: write 600, exponential(600) or lognormal(600, 0.5), in seconds")
    made: Distribution = form(*values)
    return made
