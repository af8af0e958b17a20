"""Running a script of the user's: undisturbed first, which tells what there is to break; then with the faults."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from chaos.cluster.local import LocalCluster
from chaos.exits import UsageError
from chaos.history import NAME, Event, History, HistoryWriter
from chaos.storage import take_in
from metrics.checkpoints import registry
from metrics.scripts import AGAIN, told_apart
from metrics.verdict import RECORD, Case
from scenarios.execute import Run, Stage, break_it, conduct, record, start_cluster, sweep
from scenarios.learning import Learnt, settle

TAIL = 3
"""How many lines of a script's output are repeated when it fails."""


@dataclass
class Intake:
    """An observer of one run of a script: refuses what could not be judged, and takes the job's storage to the run.

    ``folder``: the directory of the run. Called with an event it raises UsageError, which names the value and the way
    out.
    """

    run: Run
    folder: Path
    _started: Event | None = field(default=None, init=False)
    _entry: int = field(default=-1, init=False)

    def __call__(self, event: Event) -> None:
        """Look at a controller that starts."""
        if event.kind != "controller.start":
            return
        if self._started is not None:
            raise UsageError("the script runs two trainers one after the other: give it one, which is followed")
        check(event, self.run.cluster)
        self._started = event
        self._entry = self.run.bed.ledger.intend("storage", **self._storage)

    @property
    def _storage(self) -> dict[str, object]:
        assert self._started is not None
        experiment, found = self._started.data["experiment"], self._started.data["found"]
        return {"experiment": experiment, "found": found, "into": str(self.folder / "storage" / Path(experiment).name)}

    def take_in(self) -> None:
        """What the job stored lies in the run directory from now on."""
        if self._started is not None and self._entry >= 0:
            told = self._storage
            take_in(Path(str(told["experiment"])), self._started.data["found"], Path(str(told["into"])))
            self.run.bed.ledger.done(self._entry)
            self._entry = -1


def check(started: Event, cluster: LocalCluster) -> None:
    """Refuse a job that could not be followed, or that could never start.

    Raises UsageError naming the value and the way out.
    """
    told = started.data
    if started.node not in {node.address for node in cluster.nodes}:
        raise UsageError(
            f"the script trains on a cluster of its own, at {started.node}: call ray.init() without an address there, "
            "so that RAY_ADDRESS decides"
        )
    if told.get("filesystem", "local") != "local":
        raise UsageError(
            f"checkpoints go to {told['experiment']} on {told['filesystem']}: give RunConfig a storage_path that is a "
            "local or mounted folder"
        )
    if registry.FILE in told["found"]:
        raise UsageError(
            f"{told['experiment']} holds the checkpoints of an earlier job, from which the script would resume: move "
            "it away, or give RunConfig another name"
        )
    _check_room(told["workers"], told["claim"], cluster)


def _check_room(asked: int | list[int], claim: dict[str, float], cluster: LocalCluster) -> None:
    least = asked[0] if isinstance(asked, list) else asked
    if claim.get("GPU"):
        raise UsageError(
            f"each worker claims {claim['GPU']:g} GPU; this cluster has none: use ScalingConfig(use_gpu=False)"
        )
    if odd := sorted(claim.keys() - {"CPU"}):
        raise UsageError(f"each worker claims {claim[odd[0]]:g} {odd[0]}, which this cluster does not have")
    cpus, nodes = claim.get("CPU", 0.0), [node for node in cluster.nodes if node is not cluster.head]
    places = sum(int(node.cpus // cpus) for node in nodes) if cpus else least
    if places < least:
        raise UsageError(
            f"{least} workers of {cpus:g} CPUs do not fit on {len(nodes)} nodes of {nodes[0].cpus} CPUs: use more "
            "--nodes or --cpus-per-node"
        )


def rehearse(run: Run) -> None:
    """The undisturbed run, and the request cut to what it told; one that fails leaves nothing to break."""
    directory = run.directory / "control"
    directory.mkdir()
    if shared := run.request.control_from:
        shutil.copy(shared / "control" / NAME, directory / NAME)
        (directory / "storage").symlink_to(os.path.relpath(shared / "control" / "storage", directory))
        run.writer.emit("control.shared", data={"from": str(shared)})
    else:
        run.writer.emit("run.phase", data={"phase": "control"})
        undisturbed(run, directory)
    learnt = Learnt.of(History.load(directory))
    if learnt is None:
        run.writer.emit("run.failed", data={"error": why_not_learnt(directory)})
        return
    run.request = settle(run.request, learnt)
    (run.directory / RECORD).write_bytes(
        msgspec.json.format(msgspec.json.encode(record(run.request, run.run_id)), indent=1)
    )


def undisturbed(run: Run, directory: Path) -> None:
    """Run the script without a fault in a directory of its own."""
    writer = HistoryWriter(directory)
    intake = Intake(run, directory)
    writer.observe(intake)
    run.undo.append(intake.take_in)
    conduct(run, directory, writer, with_faults=False).run()
    intake.take_in()
    run.cluster.restore()


def why_not_learnt(directory: Path) -> str:
    """Why nothing was learnt of an undisturbed run, in a sentence."""
    history = History.load(directory)
    ended, log = history.first("workload.exit"), directory / "logs" / "driver.log"
    code = ended.data["code"] if ended else None
    how = f"ended with exit code {code}" if code is not None else "was ended at its deadline (--deadline)"
    if history.first("controller.start") is None:
        how += ", and no controller of Ray Train V2 was seen"
    elif history.first("step.end") is None:
        how += " before a rank had completed an optimizer step"
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    said = "".join(f"\n  {line}" for line in lines[-TAIL:])
    return f"undisturbed, the script {how}; see control/logs/driver.log{said}"


def break_script(run: Run) -> None:
    """The run with the faults, once it is known what there is to break."""
    if not run.request.injections:
        return
    intake = Intake(run, run.directory)
    run.writer.observe(intake)
    run.undo.append(intake.take_in)
    break_it(run)
    intake.take_in()


def compare_again(run: Run) -> None:
    """A second undisturbed run, where the content of checkpoints differs and nothing else tells whether it may."""
    if run.finished and told_apart(Case.load(run.directory)):
        directory = run.directory / AGAIN
        directory.mkdir()
        run.writer.emit("run.phase", data={"phase": AGAIN})
        undisturbed(run, directory)


STAGES: tuple[Stage, ...] = (sweep, start_cluster, rehearse, break_script, compare_again)
