"""What a stored run measured of a recovery, for a plan to go by."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

from chaos.history import History
from metrics.plan.quantities import PlanError
from metrics.recovery import PHASES
from metrics.summary import Summary

VERDICT = "verdict.json"

DOWN = tuple(name for name in PHASES if name not in ("restore", "replay"))
"""The phases of a recovery before the load: the downtime. What is replayed is lost work, which a plan counts itself."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken from a run.

    ``downtime_s``: of each whole recovery; ``restore_s``: of those that loaded a checkpoint; ``phases_s``: the median
    of each phase. ``saves``: stalls of checkpoints that were seen; ``checkpoint_s``: their mean, None where there was
    none. ``partial``: recoveries that were left out since their end was never seen.
    """

    run: str
    scenario: str
    workers: int
    downtime_s: list[float]
    restore_s: list[float]
    phases_s: dict[str, float]
    saves: int
    checkpoint_s: float | None
    partial: int

    def told(self, values: list[float]) -> str:
        """From how many recoveries these values are."""
        count = len(values)
        return f"measured: mean of {count} {'recovery' if count == 1 else 'recoveries'} of {self.workers} workers"


def measure(directory: Path) -> Measured:
    """Read what a run measured.

    Raises PlanError when it holds no verdict that can be read, or no recovery that is whole.
    """
    summary = _summary(directory)
    whole = [recovery for recovery in summary.recoveries if not recovery.missing]
    if not whole:
        count = len(summary.recoveries)
        told = f"{count} {'recovery' if count == 1 else 'recoveries'}, none whole" if count else "no recovery"
        raise PlanError(f"{directory} holds {told}: name a run in which a job came back, such as one of kill-worker")
    seconds = [{phase.name: phase.seconds for phase in recovery.phases} for recovery in whole]
    saves, stall_s = _saves(directory), summary.goodput.seconds.get("save_stall", 0.0) if summary.goodput else 0.0
    return Measured(
        run=directory.name,
        scenario=summary.scenario,
        workers=summary.workers,
        downtime_s=[sum(phases.get(name, 0.0) for name in DOWN) for phases in seconds],
        restore_s=[found for phases in seconds if (found := phases.get("restore", 0.0))],
        phases_s={name: statistics.median(phases.get(name, 0.0) for phases in seconds) for name in PHASES},
        saves=saves,
        checkpoint_s=stall_s / saves if saves and stall_s else None,
        partial=len(summary.recoveries) - len(whole),
    )


def _summary(directory: Path) -> Summary:
    file = directory / VERDICT
    try:
        return msgspec.json.decode(file.read_bytes(), type=Summary)
    except OSError as error:
        told = f"{file}: {error.strerror}; name the directory of a run, such as one below runs/"
        raise PlanError(told) from error
    except msgspec.MsgspecError as error:
        raise PlanError(f"{file} cannot be read, or is of another version: {error}; try aftershock analyze") from error


def _saves(directory: Path) -> int:
    """How often the job stood still for a checkpoint; 0 where the history cannot be read."""
    try:
        history = History.load(directory)
    except (OSError, ValueError):
        return 0
    return len({(event.attempt, event.step) for event in history.select("checkpoint.transfer.begin")})
