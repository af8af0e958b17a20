"""What every number of a plan is held to: a sign and a size that its unit can have."""

from __future__ import annotations

import math

MINUTE_S, HOUR_S, DAY_S, YEAR_S = 60.0, 3600.0, 86400.0, 365.25 * 86400.0

GIB, GB = 2.0**30, 1e9


class PlanError(ValueError):
    """A number that no plan can be made with: the message names it and the way out."""


def require(name: str, value: float, low: float, high: float, hint: str = "") -> None:
    """Hold a number to its range.

    Raises PlanError with ``hint``, which says what the number is and in which unit, when it lies outside.
    """
    if not (math.isfinite(value) and low <= value <= high):
        raise PlanError(f"{name}={value:g} is outside {low:g} to {high:g}{f': {hint}' if hint else ''}")


def require_positive(name: str, value: float, high: float, hint: str = "") -> None:
    """Hold a number to being above zero, and at most ``high``.

    Raises PlanError when it is not.
    """
    if not (math.isfinite(value) and 0 < value <= high):
        raise PlanError(f"{name}={value:g} must be above 0, and at most {high:g}{f': {hint}' if hint else ''}")


def require_share(name: str, value: float) -> None:
    """Hold a number to 0..1.

    Raises PlanError when it is not within.
    """
    require(name, value, 0.0, 1.0, "a share; write 0.99 for 99 per cent")
