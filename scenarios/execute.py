"""Running one scenario from the empty directory to the verdict: a list of stages, and healing on every path."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import shutil
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from chaos import driving, healing
from chaos import ledger as ledgers
from chaos.agent.plan import Plan
from chaos.cluster.local import ClusterFailed, LocalCluster
from chaos.exits import UsageError
from chaos.history import NAME, SCHEMA, HistoryWriter, Observer
from chaos.ledger import Ledger
from chaos.logs import collect_logs
from chaos.runner import Conduct
from chaos.timeouts import TIMEOUTS
from chaos.version import versions
from chaos.watch import Interrupted, ignore_signals, interrupt_by_signals, restore_signals
from chaos.workload import Workload
from metrics.verdict import RECORD, Record
from scenarios import extensions
from scenarios.request import Request, with_data
from scenarios.scenario import Shape
from scenarios.testbed import Pool, Testbed

TTL_MARGIN_S = 300.0
"""What a run may take beside its two training scripts, seconds."""

SPACE_NEEDED = 256 * 1024 * 1024
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of a disk that takes nothing more."""


@dataclass
class Run:
    """One execution of one scenario in its own directory.

    ``finished``: whether all phases reached their goals. ``sound``: whether all stages came to their end.
    """

    request: Request
    directory: Path
    run_id: str
    writer: HistoryWriter
    bed: Testbed
    began_s: float = field(default_factory=time.time)
    conducts: list[Conduct] = field(default_factory=list, init=False)
    finished: bool = field(default=False, init=False)
    sound: bool = field(default=False, init=False)

    @property
    def cluster(self) -> LocalCluster:
        """The cluster, which is up."""
        assert self.bed.cluster is not None
        return self.bed.cluster


Stage = Callable[[Run], None]


class StorageFailed(Exception):
    """The run directory could not be written, so there is no run to judge; everything is undone."""


def execute(
    request: Request,
    observers: Iterable[Observer] = (),
    pool: Pool | None = None,
    stages: Iterable[Stage] | None = None,
) -> Path:
    """Run a scenario and store everything; returns the run directory, to be judged.

    Whatever happens, all that was started is undone before this returns, but a cluster of the ``pool`` on which nothing
    of this run is left; what went wrong is in the history. ``stages``: what to do, by default one run of the scenario.
    Raises UsageError when the run directory cannot be used, or what is run turns out not to be fit for it; nothing of
    the run is left then. Raises StorageFailed when the run directory stops being usable.
    """
    interrupt_by_signals()
    run = open_run(request, observers, pool)
    refused: UsageError | None = None
    errors: list[str] = []
    try:
        for stage in STAGES if stages is None else stages:
            stage(run)
        run.sound = True
    except UsageError as error:
        refused = error
        run.writer.emit("run.failed", data={"error": str(error)})
    except Interrupted as reason:
        run.writer.emit("run.aborted", data={"reason": str(reason)})
    except ClusterFailed as error:
        run.writer.emit("run.failed", data={"error": str(error)})
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            raise StorageFailed(_storage_trouble(run, error)) from error
        run.writer.emit("run.bug", data={"error": repr(error), "traceback": traceback.format_exc()})
    finally:
        try:
            ignore_signals()
        finally:
            errors = heal(run)
    if pool is None:
        restore_signals()
    else:
        interrupt_by_signals()  # a cluster may be standing: an end of the process must still pass by its pool
    if refused is not None and not errors:
        shutil.rmtree(run.directory, ignore_errors=True)
        raise refused
    return run.directory


def open_run(request: Request, observers: Iterable[Observer], pool: Pool | None = None) -> Run:
    """Make the run directory with the training data, its record, its ledger and its history; all of it or nothing.

    Raises UsageError when that is not possible.
    """
    ledgers.check_registry()
    out = request.options.out
    run_id = uuid.uuid4().hex[:8]
    stamp = time.strftime("%Y%m%d-%H%M%S")
    directory = out.absolute() / f"{stamp}-{request.scenario.name}-{run_id}"
    try:
        directory.mkdir(parents=True)
        run = _fill(directory, request, run_id, observers, pool)
        driving.tell(directory)
        return run
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise UsageError(f"--out {out}: {error.strerror or error}; name a directory that can be written") from error
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _fill(directory: Path, request: Request, run_id: str, observers: Iterable[Observer], pool: Pool | None) -> Run:
    free = shutil.disk_usage(directory).free
    if free < SPACE_NEEDED:
        raise UsageError(
            f"--out {request.options.out}: {free >> 20} MiB are free there, a run needs {SPACE_NEEDED >> 20}; "
            "free some or name another directory"
        )
    request = with_data(request, directory)
    store_record(request, run_id, directory)
    life_s = ttl_s(request)
    bed = pool.bed(request.cluster_key, life_s) if pool else Testbed(Ledger.open(directory, run_id, life_s))
    writer = HistoryWriter(directory, observers)
    began = request.began_s or psutil.Process().create_time()
    writer.emit("run.start", data={"schema": SCHEMA, "run": run_id, "process_started": began})
    return Run(request, directory, run_id, writer, bed)


def ttl_s(request: Request) -> float:
    """The longest that its two training scripts may take, and what goes on beside them, seconds."""
    return 2 * request.deadline_s + TTL_MARGIN_S


def store_record(request: Request, run_id: str, directory: Path) -> None:
    """Write ``scenario.json`` of a run, and copies of the files of the user's own that it needs."""
    stored = record(request, run_id, extensions.keep(request.taken, directory))
    (directory / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=1))


def record(request: Request, run_id: str, sources: Sequence[str] = ()) -> Record:
    """The resolved scenario, as stored; ``sources``: the run's copies of files of the user's own."""
    shape = request.shape
    return Record(
        schema=2,
        run=run_id,
        scenario=request.scenario.name,
        title=request.scenario.title,
        command=request.command,
        seed=request.options.seed,
        workers=shape.workers,
        steps=shape.steps,
        checkpoint_every=shape.checkpoint_every,
        keep=shape.keep,
        max_failures=shape.max_failures,
        poll_s=shape.poll_s,
        control=request.control,
        expect=str(request.expects),
        known_issue=request.scenario.known_issue,
        timeouts=shape.timeouts,
        injections=[dataclasses.asdict(injection) for injection in request.injections],
        script=list(request.program.script),
        settings=request.program.settings,
        versions={**versions(), "python": sys.version.split()[0]},
        commit=_git_commit(),
        epoch_samples=request.epoch_samples,
        strict=request.options.strict,
        sources=list(sources),
    )


def _git_commit() -> str:
    """The commit of the user's working tree; empty outside one."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def sweep(run: Run) -> None:
    """Clean what a dead harness of this user left; name what Ray runs here besides."""
    for healed in healing.heal():
        if healed.run_id != run.bed.ledger.run_id:
            run.writer.emit("residue.found", data=dataclasses.asdict(healed))
    for process in psutil.process_iter(["name", "pid"]):
        if process.info["name"] in ("raylet", "gcs_server") and not run.bed.runs:
            action = "left alone: not ours, or of a run whose harness lives"
            run.writer.emit("residue.found", data={**process.info, "action": action})


def start_cluster(run: Run) -> None:
    """A head and one node for each worker; or the cluster that the run before has left clean."""
    run.writer.emit("run.phase", data={"phase": "cluster"})
    if run.bed.cluster is not None:
        run.bed.cluster.emit = run.writer.emit
        run.writer.emit("cluster.shared", data={"ledger": str(run.bed.ledger.path), "runs_before": run.bed.runs})
        return
    scenario, shape = run.request.scenario, run.request.shape
    run.bed.cluster = LocalCluster(
        shape.node_count,
        shape.cpus_per_node,
        run.bed.ledger.workspace(),
        run.bed.ledger,
        run.writer.emit,
        workload(run.request, run.directory).base_environment(),
        scenario.node_environment(shape),
        scenario.labels,
    )
    run.bed.cluster.start()


def break_it(run: Run) -> None:
    """The run with the fault: nothing is armed before the ledger has it."""
    broken = conduct(run, run.directory, run.writer, with_faults=True)
    for injection in run.request.injections:
        told = {"injection": injection.id, "fault": injection.fault, "target": injection.where}
        run.bed.intend_injection(**told)
        run.writer.emit("fault.armed", data={**told, "trigger": str(injection.trigger), "values": injection.values})
    run.finished = broken.run()


def control(run: Run) -> None:
    """The same run without a fault, in a directory of its own; of no use when the first one did not finish."""
    if not (run.request.control and run.finished):
        return
    directory = run.directory / "control"
    directory.mkdir()
    if shared := run.request.control_from:
        shutil.copy(shared / "control" / NAME, directory / NAME)
        run.writer.emit("control.shared", data={"from": str(shared)})
        return
    run.writer.emit("run.phase", data={"phase": "control"})
    run.cluster.restore()
    conduct(run, directory, HistoryWriter(directory), with_faults=False).run()


STAGES: tuple[Stage, ...] = (sweep, start_cluster, break_it, control)


def conduct(run: Run, directory: Path, writer: HistoryWriter, *, with_faults: bool) -> Conduct:
    """One launch of the program under a plan, in a directory; it is drained when the run is healed."""
    injections = run.request.injections if with_faults else ()
    request = run.request if with_faults else run.request.undisturbed
    watchdog_s = request.shape.watchdog_s
    plan = Plan(
        run_id=run.run_id,
        directory=str(directory),
        injections=injections,
        watchdog_s=watchdog_s,
        sources=extensions.for_agent(request.taken, injections, run.directory),
    )
    program = workload(request, directory)
    deadline, scenario = run.request.deadline_s, run.request.scenario
    waits_s = scenario.waits_s if with_faults else 0.0
    made = Conduct(directory, program, plan, run.cluster, writer, deadline, scenario.recovers, waits_s)
    run.conducts.append(made)
    return made


def workload(request: Request, directory: Path) -> Workload:
    """The program as a command, for a run directory, which is new."""
    shape = request.shape
    return request.program.workload(directory, _timeouts(shape), shape.workers, shape.steps)


def _timeouts(shape: Shape) -> dict[str, str]:
    """The time-outs of a shape as the environment that Ray reads them from."""
    settings = {TIMEOUTS[name].setting: value for name, value in shape.timeouts.items() if name != "process_group"}
    return {setting: f"{value:g}" for setting, value in settings.items() if value is not None}


def heal(run: Run) -> list[str]:
    """Undo everything, on every path; keep the logs, take in the last events, close the histories; what was not undone.

    Raises StorageFailed when all is undone and the run directory could not be written to the end.
    """
    try:
        with contextlib.suppress(OSError):
            run.writer.emit("run.phase", data={"phase": "heal"})
            if run.bed.cluster is not None:
                collect_logs(run.cluster.workspace, run.directory / "logs", run.cluster.secret, run.began_s)
    finally:
        errors = run.bed.release(clean=run.sound and all(one.left_nothing for one in run.conducts))
    try:
        run.writer.emit("run.healed", data={"errors": errors})
        for one in run.conducts:
            one.drain()
        run.writer.emit("run.end")
        for writer in {id(w): w for w in (run.writer, *(c.writer for c in run.conducts))}.values():
            writer.close()
    except OSError as error:
        raise StorageFailed(_storage_trouble(run, error)) from error
    return errors


def _storage_trouble(run: Run, error: OSError) -> str:
    return (
        f"the run was given up and healed: {error.strerror or error} below {run.directory}; "
        "make room or name another directory with --out, and run again"
    )
