"""Running a script of the user's: undisturbed first, which tells what there is to break; then with the faults."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.cluster.local import LocalCluster
from chaos.exits import UsageError
from chaos.history import NAME, Event, History, HistoryWriter
from chaos.storage import take_in
from metrics.checkpoints import registry
from metrics.scripts import AGAIN, told_apart
from metrics.verdict import Case
from scenarios.execute import Run, Stage, break_it, conduct, start_cluster, store_record, sweep, ttl_s
from scenarios.learning import Learnt, settle

STILL_THERE = "processes, actors or placement groups of the script's job are still there, or nobody could look"

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
    _storages: dict[int, dict[str, Any]] = field(default_factory=dict, init=False)
    _over: bool = field(default=False, init=False)

    def __call__(self, event: Event) -> None:
        """Look at a controller that starts."""
        if event.kind != "controller.start" or self._over:
            return
        first = not self._storages
        if self._is_ours(event):
            self._record(event)
        check(event, self.run.cluster)
        if not first:
            raise UsageError("the script runs two trainers one after the other: give it one, which is followed")

    @staticmethod
    def _is_ours(started: Event) -> bool:
        """Whether what comes into the storage from now on is the job's: none of an earlier job lies there."""
        found = started.data.get("found")
        return started.data.get("filesystem") == "local" and found is not None and not _earlier(found)

    def _record(self, started: Event) -> None:
        experiment = str(started.data["experiment"])
        into = str(self.folder / "storage" / Path(experiment).name)
        told = {"experiment": experiment, "found": started.data["found"], "into": into}
        self._storages[self.run.bed.ledger.intend("storage", **told)] = told

    def take_in(self) -> None:
        """What the job stored lies in the run directory from now on; its processes must be gone."""
        self._over = True
        for entry, told in self._storages.items():
            take_in(Path(told["experiment"]), told["found"], Path(told["into"]))
            self.run.bed.ledger.done(entry)
        self._storages.clear()


def _earlier(found: list[str]) -> list[str]:
    """What of the checkpoints of an earlier job lies in an experiment directory."""
    return [name for name in found if name == registry.FILE or name.startswith("checkpoint_")]


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
    if told["found"] is None:
        raise UsageError(f"{told['experiment']} cannot be looked into: give RunConfig a folder that can be read")
    if _earlier(told["found"]):
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
        if not undisturbed(run, directory):
            run.writer.emit("run.failed", data={"error": f"after its undisturbed run {STILL_THERE}"})
            return
    learnt = Learnt.of(History.load(directory))
    if learnt is None:
        run.writer.emit("run.failed", data={"error": why_not_learnt(directory)})
        return
    run.request = settle(run.request, learnt)
    run.bed.ledger.extend(ttl_s(run.request))
    store_record(run.request, run.run_id, run.directory)


def undisturbed(run: Run, directory: Path) -> bool:
    """Run the script without a fault in a directory of its own; whether all of the job is gone afterwards."""
    writer = HistoryWriter(directory)
    intake = Intake(run, directory)
    writer.observe(intake)
    run.cluster.restore()
    made = conduct(run, directory, writer, with_faults=False)
    made.run()
    if made.left_nothing:
        intake.take_in()
    return made.left_nothing or not made.live.steps


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
    """The run with the faults, once it is known what there is to break; what is left of it, the ledger tells."""
    if not run.request.injections:
        return
    intake = Intake(run, run.directory)
    run.writer.observe(intake)
    run.cluster.restore()
    break_it(run)
    if run.conducts[-1].left_nothing:
        intake.take_in()


def compare_again(run: Run) -> None:
    """A second undisturbed run, where the content of checkpoints differs and nothing else tells whether it may."""
    if run.finished and run.conducts[-1].left_nothing and told_apart(Case.load(run.directory)):
        directory = run.directory / AGAIN
        directory.mkdir()
        run.writer.emit("run.phase", data={"phase": AGAIN})
        undisturbed(run, directory)


STAGES: tuple[Stage, ...] = (sweep, start_cluster, rehearse, break_script, compare_again)
