"""What became of a job that was crashed at one point of a checkpoint's life, judged by the attempt that followed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from chaos.history import Event
from metrics.attempts import Attempt
from metrics.checkpoints.content import differing, merge, saved_parts
from metrics.checkpoints.resharded import Parts


class Fate(StrEnum):
    """How a crash ended."""

    CLEAN = "clean"
    """The job went on, and no step was lost."""
    LOST_WORK = "lost work"
    """It went on from the last checkpoint that was committed before the crash, and so trained some steps again."""
    LOST_MORE = "lost committed work"
    """It went on from before a checkpoint that had been committed."""
    CANNOT_RESUME = "cannot resume"
    """No step was made any more."""
    SILENTLY_WRONG = "silently wrong"
    """It went on with a state, or made steps, that no undisturbed run has."""
    UNKNOWN = "unknown"
    """The crash did not come about, or nothing tells what followed."""


GOOD = (Fate.CLEAN, Fate.LOST_WORK)


class Aftermath(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of one crash. ``step``: the last one complete before it; ``resumed``: the one gone on from."""

    fate: Fate
    seen: str
    step: int | None = None
    resumed: int | None = None
    lost_steps: int | None = None


def aftermath(
    hit: Attempt, following: Iterable[Attempt], exit_code: int | None, committed: int, control: list[Attempt]
) -> Aftermath:
    """What followed a crash in one attempt: the next one that made steps, judged against the undisturbed run.

    ``exit_code``: of the training script that should have gone on; None where it was ended, or its end was not seen.
    ``committed``: the step of the last checkpoint that the controller had committed before the crash, 0 for none.
    """
    step = hit.step_of_all
    after = next((attempt for attempt in following if attempt.complete), None)
    if after is None and exit_code is not None and exit_code > 0:
        seen = f"no step was made after it, and the job ended with exit code {exit_code}"
        return Aftermath(fate=Fate.CANNOT_RESUME, seen=seen, step=step)
    if after is None:
        return Aftermath(
            fate=Fate.UNKNOWN, seen="no step was made after it, but the job did not end in error", step=step
        )
    resumed = after.resumed
    told = Aftermath(fate=Fate.CLEAN, seen="", step=step, resumed=resumed, lost_steps=max(0, step - resumed))
    if len(control) != 1:
        seen = f"the undisturbed run had {len(control)} attempts, so there is nothing to compare with"
        return msgspec.structs.replace(told, fate=Fate.UNKNOWN, seen=seen)
    saved = next((parts for (_, step), parts in saved_parts(control).items() if step == resumed), None)
    if wrong := _wrong(after, saved, control[0]):
        return msgspec.structs.replace(told, fate=Fate.SILENTLY_WRONG, seen=wrong)
    if unknown := _untold(after, saved, control[0]):
        return msgspec.structs.replace(told, fate=Fate.UNKNOWN, seen=unknown)
    if resumed < committed:
        seen = f"step {committed} had been committed, and the job went on from {resumed}"
        return msgspec.structs.replace(told, fate=Fate.LOST_MORE, seen=seen)
    steps = f"{len(after.complete)} steps equal those of the undisturbed run"
    seen = f"went on from step {resumed}: {steps}" + (", its state too" if resumed else "")
    return msgspec.structs.replace(told, fate=Fate.LOST_WORK if resumed < step else Fate.CLEAN, seen=seen)


def _wrong(after: Attempt, saved: Parts | None, control: Attempt) -> str:
    """How the attempt differs from the undisturbed run in what both tell, as a sentence; empty when it does not."""
    if len(set(after.resume_steps.values())) > 1:
        return f"ranks went on from different steps: {after.resume_steps}"
    if after.resumed and saved is not None and (odd := _odd_pieces(after, saved)):
        return f"restored at step {after.resumed}, {len(odd)} pieces differ, first {odd[0]}"
    right = _steps(control)
    for place, found in sorted(_steps(after).items()):
        if right.get(place, found) != found:
            return f"step {place[0]} of rank {place[1]} is {found}, undisturbed {right[place]}"
    return ""


def _odd_pieces(after: Attempt, saved: Parts) -> list[str]:
    """The restored pieces that are not as saved; and, where every rank told, those restored nowhere."""
    restored: Parts = {}
    for event in _restored(after):
        merge(restored, event.data["parts"])
    odd = differing(restored, saved)
    return odd if _all_told(after) else [piece for piece in odd if piece in restored]


def _untold(after: Attempt, saved: Parts | None, control: Attempt) -> str:
    """Why not all of the attempt can be judged, as a sentence; empty when all that is needed was told."""
    if lacking := sorted(_steps(after).keys() - _steps(control).keys()):
        return f"the undisturbed run has no step {lacking[0][0]} of rank {lacking[0][1]}"
    if after.resumed and not _all_told(after):
        ranks = len({event.rank for event in _restored(after)})
        return f"{ranks} of {after.world_size} ranks told what they had restored"
    if after.resumed and saved is None:
        return f"the undisturbed run saved nothing at step {after.resumed}"
    return ""


def _restored(attempt: Attempt) -> list[Event]:
    return [event for event in attempt.states if event.data["name"] == "restored"]


def _all_told(attempt: Attempt) -> bool:
    """Whether every rank told what it had restored."""
    return len({event.rank for event in _restored(attempt)}) >= attempt.world_size


def _steps(attempt: Attempt) -> dict[tuple[int, int], tuple[object, ...]]:
    """Loss, learning rate and samples by step and rank."""
    events: Iterable[Event] = (event for events in attempt.steps.values() for event in events)
    return {(e.step or 0, e.rank or 0): (e.data["loss"], e.data["lr"], e.data["samples"]) for e in events}
