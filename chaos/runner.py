"""Conducting one run of a workload: a list of phases over its live events.

``launch`` the workload, wait until it is ``steady``, ``inject``, let it ``recover``, let it ``finish``. A phase that
does not reach its goal ends the run there; what is missing then, the judge sees in the history.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chaos import flight
from chaos.agent.plan import Plan
from chaos.attacks import Attacks
from chaos.cluster.local import LocalCluster
from chaos.confirm import Confirm
from chaos.diagnosis import Diagnosis
from chaos.eyes import Eyes
from chaos.faults.base import Attack, all_faults, find_fault
from chaos.history import HistoryWriter
from chaos.live import Live
from chaos.resources import Resources
from chaos.waiting import Waiting, interrupt
from chaos.watch import Watch
from chaos.workload import Workload

RESIDUE = ("workers", "actors", "placement_groups")
"""What a job must not leave behind on a cluster."""

GONE_S = 10.0
"""How long after the end of a training script its processes, actors and placement groups may take to go."""


@dataclass
class Conduct:
    """One run of a workload under a plan, on a cluster that is up.

    ``recovers``: whether training is expected to go on after the last fault. ``waits_s``: seconds for which the job is
    watched as it waits for capacity, and then interrupted; 0 for a job that is to end by itself. ``left_nothing``:
    whether the cluster was seen to be as before, once the run is over: a controller that did not come to its own end
    leaves a claim on the cluster's resources, by which Ray lets the next elastic job wait for up to three minutes.
    """

    directory: Path
    workload: Workload
    plan: Plan
    cluster: LocalCluster
    writer: HistoryWriter
    deadline_s: float
    recovers: bool = True
    waits_s: float = 0.0
    left_nothing: bool = field(default=False, init=False)
    live: Live = field(default_factory=Live)
    driver: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _watch: Watch | None = field(default=None, init=False)
    _ended: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.writer.observe(self.live)
        self._attacks = Attacks(self.plan, self.writer, self.cluster)
        self._confirm = Confirm(self.plan, self.writer)
        self._eyes = Eyes(self.cluster, self.writer)
        self._diagnosis = Diagnosis(self.plan, self.writer)
        self.waiting = Waiting(self.writer)
        resources = Resources(self.writer, self.cluster.ledger)
        for observer in (self._confirm, self._attacks, resources, self._diagnosis, self.waiting):
            self.writer.observe(observer)

    @property
    def watch(self) -> Watch:
        """The eyes on the run; there from the launch on."""
        assert self._watch is not None
        return self._watch

    def run(self) -> bool:
        """Go through the phases; True when all reached their goals. The driver has ended, or is ended, on return."""
        with contextlib.ExitStack() as over:
            for undo in (self._close_watch, self._eyes.close, self._end):  # the last of them first, all whatever fails
                over.callback(undo)
            reached = all(self._phase(phase) for phase in PHASES if phase is not wait or self.waits_s)
            self._end()
            self._look_for_residue()
            return reached

    def _close_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()

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
        deadline = time.monotonic() + self.deadline_s
        if self._hits_nodes():
            self._eyes.open()
        ticks = (self._eyes.tick, self._attacks.tick, self._confirm.tick, self._diagnosis.tick)
        self._watch = Watch(self.directory, self.writer, self.driver, deadline, ticks)

    def _hits_nodes(self) -> bool:
        known = [all_faults()[injection.fault] for injection in self.plan.injections]
        return any(issubclass(fault, Attack) and fault.on_node for fault in known)

    def _end(self) -> None:
        """Heal what still goes on, end a driver that still runs; once."""
        try:
            self._attacks.close()
        finally:
            self._end_driver()

    def _end_driver(self) -> None:
        if self.driver is None or self._ended:
            return
        self._ended = True
        code = self.driver.poll()
        if code is None:
            self.driver.kill()
            self.driver.wait()
        self.writer.emit("workload.exit", data={"code": code})

    def _look_for_residue(self) -> None:
        """What of the job is still there a while after its end; a probe that fails says so."""
        if self._watch is None:
            return
        workers = [{"rank": event.rank, "pid": event.pid} for event in self.watch.gone(GONE_S)]
        left = {"workers": workers, **self.cluster.left_behind(GONE_S)}
        self.left_nothing = self.live.over and "error" not in left and not any(left[key] for key in RESIDUE)
        self.writer.emit("residue.checked", data=left)

    def drain(self) -> None:
        """Take in what the cluster's processes wrote until their own end; their files are not needed any more."""
        if self._watch is not None:
            self._watch.look(0)
        flight.close(self.plan.stacks)
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
    broken = [event for event in run.live.fired.values() if find_fault(event.data["fault"]).breaks]
    if not broken or not run.recovers:
        return True
    last = max(event.attempt or 0 for event in broken)
    goal = min(run.live.furthest + 1, run.workload.steps)
    return run.watch.until(lambda: run.live.attempt > last and run.live.step >= goal)


def wait(run: Conduct) -> bool:
    """A job that lacks capacity is watched as it waits, and then interrupted."""
    assert run.driver is not None
    run.waiting.measure(run.watch, run.waits_s)
    interrupt(run.driver, run.watch, run.writer)
    return True


def finish(run: Conduct) -> bool:
    """The training script has ended."""
    assert run.driver is not None
    driver = run.driver
    run.watch.until(lambda: False)
    return driver.poll() is not None


PHASES = (launch, steady, inject, recover, wait, finish)
