"""The time-outs that decide how soon a hang is noticed: what each is called, and Ray's and torch's own defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TimeOut:
    """A time-out. ``setting``: where it is set. ``default_s``: seconds; None where it is off by default."""

    name: str
    setting: str
    default_s: float | None
    meaning: str


TIMEOUTS = {
    t.name: t
    for t in (
        TimeOut("process_group", "TorchConfig(timeout_s)", 1800.0, "a collective that its peers do not join"),
        TimeOut("worker_health", "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S", 600.0, "a worker that answers no poll"),
        TimeOut("report", "RAY_TRAIN_COLLECTIVE_TIMEOUT_S", None, "a rank that does not come to the report barrier"),
        TimeOut("shutdown", "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S", 30.0, "a rank that does not leave its group"),
        TimeOut("poll", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", 2.0, "how often the controller looks"),
        TimeOut("start", "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", 60.0, "a group whose place is not there"),
        TimeOut("preemption_poll", "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S", 5.0, "how often Ray looks for notices"),
    )
}
"""By name, as scenarios set them (``poll``: the interval of the controller's polls)."""


def floor_s(noticed_by: tuple[str, ...]) -> float | None:
    """How long the defaults leave a fault unnoticed, in seconds; None when they never notice it."""
    known = [TIMEOUTS[name].default_s for name in noticed_by]
    return min((s for s in known if s is not None), default=None)
