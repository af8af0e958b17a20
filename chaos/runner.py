"""Conducting one run of a workload: a list of phases over its live events.

``launch`` the workload, wait until it is ``steady``, ``inject``, let it ``recover``, let it ``finish``. A phase that
does not reach its goal ends the run there; what is missing then, the judge sees in the history.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chaos.agent.plan import Plan
from chaos.cluster.local import LocalCluster
from chaos.history import Event, HistoryWriter
from chaos.live import Live
from chaos.watch import Watch
from chaos.workload import Workload

CONFIRM_S = 10.0
"""A process that dies later than this after its fault fired did not die of it."""


@dataclass
class Conduct:
    """One run of a workload under a plan, on a cluster that is up."""

    directory: Path
    workload: Workload
    plan: Plan
    cluster: LocalCluster
    writer: HistoryWriter
    deadline_s: float
    live: Live = field(default_factory=Live)
    driver: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _watch: Watch | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.writer.observe(self.live)
        self.writer.observe(confirm_kills(self.writer))

    @property
    def watch(self) -> Watch:
        """The eyes on the run; there from the launch on."""
        assert self._watch is not None
        return self._watch

    def run(self) -> bool:
        """Go through the phases; True when all reached their goals. The driver has ended, or is ended, on return."""
        try:
            return all(self._phase(phase) for phase in PHASES)
        finally:
            self._end()

    def _phase(self, phase: Callable[[Conduct], bool]) -> bool:
        self.writer.emit("run.phase", data={"phase": phase.__name__})
        reached = phase(self)
        if not reached:
            self.writer.emit("run.phase.missed", data={"phase": phase.__name__})
        if not reached and self.watch.expired:
            self.writer.emit("run.deadline", data={"phase": phase.__name__, "seconds": self.deadline_s})
        return reached

    def start(self) -> None:
        """Start the driver and open the eyes."""
        log = self.directory / "logs" / "driver.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        self.driver = self.workload.launch(self.cluster.client_environment(), self.plan.write(), log)
        self.writer.emit("workload.start", data={"pid": self.driver.pid})
        self._watch = Watch(self.directory, self.writer, self.driver, time.monotonic() + self.deadline_s)

    def _end(self) -> None:
        """End a driver that still runs, and take in what was written last."""
        if self.driver is None:
            return
        code = self.driver.poll()
        if code is None:
            self.driver.kill()
            self.driver.wait()
        self.writer.emit("workload.exit", data={"code": code})
        self.watch.close()

    def drain(self) -> None:
        """Take in what the cluster's processes wrote until their own end; their files are not needed any more."""
        if self._watch is not None:
            self._watch.look(0)
        shutil.rmtree(self.plan.events, ignore_errors=True)


def launch(run: Conduct) -> bool:
    """The training script runs."""
    run.start()
    return True


def steady(run: Conduct) -> bool:
    """The gate: every rank has completed a step, or a fault due at the first step has fired already."""
    return run.watch.until(lambda: run.live.step > 0 or bool(run.live.fired))


def inject(run: Conduct) -> bool:
    """Every injection of the plan has fired and is confirmed."""
    wanted = {injection.id for injection in run.plan.injections}
    return run.watch.until(lambda: wanted <= run.live.confirmed)


def recover(run: Conduct) -> bool:
    """All ranks have passed the step they had reached, or the last one, in an attempt after the last fault."""
    if not run.live.fired:
        return True
    last = max(event.attempt or 0 for event in run.live.fired.values())
    goal = min(run.live.furthest + 1, run.workload.steps)
    return run.watch.until(lambda: run.live.attempt > last and run.live.step >= goal)


def finish(run: Conduct) -> bool:
    """The training script has ended."""
    assert run.driver is not None
    driver = run.driver
    run.watch.until(lambda: False)
    return driver.poll() is not None


PHASES = (launch, steady, inject, recover, finish)


def confirm_kills(writer: HistoryWriter) -> Callable[[Event], None]:
    """An observer that confirms a kill when the very process that fired it is seen to leave the process table."""
    fired: dict[int, Event] = {}

    def observer(event: Event) -> None:
        if event.kind == "fault.fired":
            fired[event.pid] = event
        elif event.kind == "process.exit" and (fault := fired.pop(event.data["pid"], None)):
            after_ns = event.mono_ns - fault.mono_ns
            if after_ns <= CONFIRM_S * 1e9 or event.data["seen"] == "late":
                data = {
                    "injection": fault.data["injection"],
                    "evidence": f"process {event.data['pid']} left the process table",
                    "after_ms": after_ns / 1e6,
                    "seen": event.data["seen"],
                }
                writer.emit("fault.confirmed", attempt=fault.attempt, rank=fault.rank, step=fault.step, data=data)

    return observer
