"""When an armed fault fires: small conditions that compose and read like a sentence.

    at_step(25)                                  right after step 25
    before_step(26)                              between backward and optimizer of step 26
    in_phase("save") & at_step(20)               in the save that follows step 20
    at_step(25) >> in_phase("restore")           first the one, later the other
    (in_phase("first-step") & on_attempt(1))     in the first forward pass after the first restart
    at_step(5).repeat(3)                         the first three times that the point is reached
    at_random(mtbf_s=60, within_s=300)           a Poisson process, drawn from the seed

This module is imported inside training processes: it stays with the standard library.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PHASES = {
    "rendezvous": "the process group is about to be set up",
    "restore": "the first file of the checkpoint is opened",
    "first-step": "the first forward pass of an attempt begins",
    "forward": "inside a forward pass, between two modules",
    "optimizer": "between backward and optimizer: right before the optimizer's step",
    "step": "right after the optimizer's step",
    "save": "the first shard file of a checkpoint (DCP) is opened for writing",
    "report": "this rank is about to report",
    "transfer": "this rank's files are about to be copied to the storage",
    "commit": "this rank has reported, the controller has not committed yet",
    "evaluation": "the first forward pass in evaluation mode",
    "teardown": "the process group is about to be taken down",
}
"""The points inside a training process where a fault can fire, in the order of an attempt."""

TIME = "time"
"""The point of triggers by time: when the time has come, whatever the process does."""


class NeverFires(ValueError):
    """A trigger contradicts itself or lies outside the run; the message names the value and the way out."""


@dataclass(frozen=True)
class Moment:
    """A point that one rank has reached: steps complete, its attempt, seconds since its first step ended."""

    phase: str
    step: int
    attempt: int
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """A conjunction of conditions; None leaves one open.

    ``step``: steps complete. ``seconds``: since the first step of the run ended on the target. ``earlier``: a trigger
    whose moment must have passed before. ``times``: how often it fires. ``mtbf_s``, ``within_s``: seconds, of a
    Poisson process not yet drawn.
    """

    phase: str | None = None
    step: int | None = None
    attempt: int | None = None
    seconds: float | None = None
    earlier: Trigger | None = None
    times: int = 1
    mtbf_s: float | None = None
    within_s: float | None = None

    def __and__(self, other: Trigger) -> Trigger:
        """Both at once.

        Raises NeverFires when the two contradict each other.
        """
        merged: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if field.default not in (mine, theirs) and mine != theirs:
                raise NeverFires(f"{field.name} cannot be both {mine} and {theirs}: this trigger never fires")
            merged[field.name] = theirs if mine == field.default else mine
        if merged["seconds"] is not None and merged["mtbf_s"] is not None:
            raise NeverFires(f"'{self}' and '{other}' set the time twice: this trigger never fires")
        return Trigger(**merged)

    def __rshift__(self, later: Trigger) -> Trigger:
        """First this one, at a later moment that one.

        Raises NeverFires when this one has no single moment.
        """
        if self.mtbf_s is not None or self.times != 1:
            raise NeverFires(f"'{self}' has no single moment, so nothing can come after it: put it last")
        return dataclasses.replace(later, earlier=self if later.earlier is None else self >> later.earlier)

    def repeat(self, times: int) -> Trigger:
        """Fire each of the first ``times`` times that the moment comes.

        Raises NeverFires when that is not at least once.
        """
        if times < 1:
            raise NeverFires(f"repeat({times}) never fires: use 1 or more")
        return dataclasses.replace(self, times=times)

    @property
    def point(self) -> str:
        """Where it is looked at: its phase, else the clock, else the end of a step."""
        return self.phase or ("step" if self.seconds is None else TIME)

    @property
    def chain(self) -> tuple[Trigger, ...]:
        """What must pass, in order; this trigger itself is the last."""
        before = self.earlier.chain if self.earlier else ()
        return (*before, self)

    def holds(self, moment: Moment) -> bool:
        """Whether this is the moment, what came earlier aside."""
        anywhere = self.seconds is not None and self.phase is None
        return (
            (anywhere or moment.phase == self.point)
            and self.step in (None, moment.step)
            and self.attempt in (None, moment.attempt)
            and (self.seconds is None or moment.seconds >= self.seconds)
        )

    def drawn(self, source: random.Random) -> tuple[Trigger, ...]:
        """One trigger for each firing: random times drawn, repetitions written out."""
        if self.mtbf_s is None:
            return (dataclasses.replace(self, times=1),) * self.times
        times = _poisson(source, self.mtbf_s, self.within_s or 0.0)
        return tuple(dataclasses.replace(self, seconds=t, mtbf_s=None, within_s=None, times=1) for t in times)

    def __str__(self) -> str:
        before = f"{self.earlier}, then " if self.earlier else ""
        return before + " ".join(self._words()) + (f", {self.times} times" if self.times > 1 else "")

    def _words(self) -> Iterator[str]:
        if self.phase == "optimizer" and self.step is not None:
            yield f"before step {self.step + 1}"
        else:
            if self.phase not in (None, "step"):
                yield f"in {self.phase}"
            if self.step is not None:
                yield f"at step {self.step}"
            elif self.phase == "step":
                yield "at a step"
        if self.attempt is not None:
            yield f"on attempt {self.attempt}"
        if self.seconds is not None:
            yield f"{self.seconds:g} s after the first step"
        if self.mtbf_s is not None:
            yield f"at random, one in {self.mtbf_s:g} s on average"

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Trigger:
        """The trigger whose fields were stored as a dict."""
        earlier = stored.get("earlier")
        return cls(**{**stored, "earlier": cls.of(earlier) if earlier else None})


def _poisson(source: random.Random, mtbf_s: float, within_s: float) -> list[float]:
    """Times of a Poisson process of that mean gap, in seconds to the millisecond, up to a horizon."""
    times, now = [], source.expovariate(1 / mtbf_s)
    while now < within_s:
        times.append(round(now, 3))
        now += source.expovariate(1 / mtbf_s)
    return times


def at_step(step: int) -> Trigger:
    """Right after that step; with a phase, in that phase while so many steps are complete."""
    return Trigger(step=step)


def before_step(step: int) -> Trigger:
    """Between backward and optimizer of that step."""
    return Trigger(phase="optimizer", step=step - 1)


def in_phase(phase: str) -> Trigger:
    """At that point of the training process, the first time it comes.

    Raises NeverFires when there is no such phase.
    """
    if phase not in PHASES:
        raise NeverFires(f"phase '{phase}' does not exist: use one of {', '.join(PHASES)}")
    return Trigger(phase=phase)


def on_attempt(attempt: int) -> Trigger:
    """In the n-th life of the worker group, from 0."""
    return Trigger(attempt=attempt)


def after_seconds(seconds: float) -> Trigger:
    """That many seconds after the first step of the run ended; a rank that is down then, as soon as it is back.

    Raises NeverFires when the time lies before that.
    """
    if not 0 <= seconds < math.inf:
        raise NeverFires(f"after_seconds({seconds}) never comes: use 0 or more")
    return Trigger(seconds=seconds)


def at_random(mtbf_s: float, within_s: float) -> Trigger:
    """Again and again at random, ``mtbf_s`` seconds apart on average, up to ``within_s`` seconds.

    Raises NeverFires when one of them is not positive.
    """
    for name, value in (("mtbf_s", mtbf_s), ("within_s", within_s)):
        if not 0 < value < math.inf:
            raise NeverFires(f"{name}={value}: a random time needs a positive number of seconds")
    return Trigger(mtbf_s=mtbf_s, within_s=within_s)


TRIGGERS = (at_step, before_step, in_phase, on_attempt, after_seconds, at_random)


def check(trigger: Trigger, *, steps: int, checkpoint_every: int, attempts: float) -> None:
    """Refuse a trigger that could never fire in a run of that many steps and attempts.

    Raises NeverFires naming the value and the way out.
    """
    for part in trigger.chain:
        saving = part.point in ("save", "report", "transfer", "commit")
        first = 1 if saving or part.point == "step" else 0
        last = steps - 1 if part.point in ("optimizer", "forward") else steps
        if part.step is not None and not first <= part.step <= last:
            ahead = part.point == "optimizer"  # users count the step that is about to be made
            raise NeverFires(
                f"step={part.step + ahead} never comes ({part}) in a run of {steps} steps: "
                f"use {first + ahead} to {last + ahead}, or --set steps=N"
            )
        if saving and part.step not in (None, steps) and (part.step or 0) % checkpoint_every:
            raise NeverFires(
                f"nothing is saved at step={part.step} ({part}): use a multiple of checkpoint_every={checkpoint_every}"
            )
        if part.attempt is not None and not 0 <= part.attempt < attempts:
            raise NeverFires(f"attempt={part.attempt} never comes: the budget allows {attempts:g}, counted from 0")
