"""``aftershock sweep checkpoint``: crash the job at every point of a checkpoint's life, and see what it resumes from.

One undisturbed run tells what there is to crash, and what is right. Then one job is crashed in its ranks, once in each
attempt; and jobs are crashed in their controller, one after the other, each going on where the last one has died.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from chaos.agent.plan import Injection, Plan
from chaos.faults.kill import Kill
from chaos.history import Event, History, HistoryWriter, Observer
from chaos.recorder import CONTROLLER, Recorder
from chaos.runner import Conduct
from chaos.schedule import Arming
from chaos.targets import Rank
from chaos.triggers import Trigger, at_step, in_phase
from metrics.checkpoints.registry import FILE as SNAPSHOT
from metrics.crashes import Aftermath, Fate
from scenarios import crashpoints
from scenarios.crashpoints import Recorded
from scenarios.execute import TTL_MARGIN_S, Run, Stage, start_cluster, sweep, workload
from scenarios.program import Reference
from scenarios.request import Request
from scenarios.scenario import Scenario, Shape
from scenarios.sweep_record import CRASHES, UNDISTURBED, Crash

STORAGE, SPARE = "controller-storage", "controller-spare"


def first_deleted(shape: Shape) -> int:
    """The step of the save after which retention deletes a checkpoint for the first time."""
    return (shape.keep + 1) * shape.checkpoint_every


SCENARIO = Scenario(
    name="sweep-checkpoint",
    title="The job is crashed at every point of a checkpoint's life.",
    inject=lambda shape: (Arming(Kill(), in_phase("save") & at_step(first_deleted(shape)), Rank(0)),),
    shape=Shape(steps=48, checkpoint_every=4, step=8, poll_s=0.1),
    control=False,
)
"""The shape and the settings of every life; what it arms stands for all the points, which are not known yet."""


@dataclass
class Sweep:
    """A sweep under way. ``observers`` are told of the events of every life.

    ``asked``: the stages to crash in. ``why_untraced``: why no process may be traced here, empty where they may; else
    only the points where the agent stands can be reached.
    """

    request: Request
    observers: Sequence[Observer]
    asked: Sequence[str]
    why_untraced: str
    crashes: list[Crash] = field(default_factory=list, init=False)
    _steps_of: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What to do, one after the other."""
        return (sweep, start_cluster, self.record, self.crash_ranks, self.crash_controller)

    def record(self, run: Run) -> None:
        """The undisturbed run, traced; the points follow from it."""
        run.writer.emit("run.phase", data={"phase": "record"})
        life = self._life(run, UNDISTURBED)
        recorder = Recorder(run.cluster, life.directory)
        if not self.why_untraced:
            life.writer.observe(recorder)
        try:
            run.finished = life.run()
        finally:
            recorder.close()
        ranks = range(self.request.shape.workers)
        logs = {rank: recorder.log(f"rank{rank}") for rank in ranks}
        found = Recorded.read(logs, recorder.log(CONTROLLER), _experiment(life.directory))
        every = [Crash(point=point) for point in crashpoints.points(found)]
        unseen = Aftermath(fate=Fate.UNKNOWN, seen="of some process no such call was noted in the undisturbed run")
        every += [Crash(point=point, aftermath=unseen) for point in crashpoints.unseen(found)]
        if self.why_untraced:
            unknown = Aftermath(fate=Fate.UNKNOWN, seen=self.why_untraced)
            every = [Crash(point=point) for point in crashpoints.untraced(len(ranks))]
            every += [Crash(point=point, aftermath=unknown) for point in crashpoints.unreached()]
        self.crashes = [crash for crash in every if self._is_asked(crash, every)]
        self._store(run)

    def _is_asked(self, crash: Crash, every: list[Crash]) -> bool:
        """Whether to crash there: in a stage asked for; and first of all in a snapshot before what retention deletes.

        That job leaves behind the checkpoints of which the next one deletes the first.
        """
        leads = next((one for one in every if one.point.stage == "snapshot" and one.point.in_controller), None)
        return crash.point.stage in self.asked or ("retention" in self.asked and crash is leads)

    def crash_ranks(self, run: Run) -> None:
        """Crash the ranks of one job, at one point in each attempt; after a point that did not come, of a new job."""
        left = [i for i, crash in enumerate(self.crashes) if crash.point.in_rank]
        count = 0
        while left and run.finished:
            run.writer.emit("run.phase", data={"phase": "ranks"})
            name, count = f"ranks-{count}", count + 1
            life = self._life(run, name, [self._in_rank(number, i) for number, i in enumerate(left)])
            try:
                life.run()
            finally:
                confirmed = History.load(run.directory / name).select("fault.confirmed")
                came = {str(event.data["injection"]) for event in confirmed}
                missed = [i for i in left if _id(i) not in came]
                for i in [*(i for i in left if i not in missed), *missed[:1]]:
                    self._lived(i, life=name, next_life=name)
                self._store(run)
            left = missed[1:]

    def crash_controller(self, run: Run) -> None:
        """Crash the controller of one job after the other; where a job cannot resume, from before that crash again."""
        left = [i for i, crash in enumerate(self.crashes) if crash.point.in_controller]
        if not (left and run.finished):
            return
        (run.directory / STORAGE).mkdir()
        before: int | None = None
        for count, i in enumerate([*left, None]):
            run.writer.emit("run.phase", data={"phase": "controller"})
            name = f"controller-{count}"
            resumed = self._go_on(run, name, i)
            self._lived(before, next_life=name)
            if before is not None and not resumed and (run.directory / SPARE).exists():
                shutil.rmtree(run.directory / STORAGE)
                (run.directory / SPARE).rename(run.directory / STORAGE)
                name = f"{name}-again"
                self._go_on(run, name, i)
            self._lived(i, life=name)
            before = i
            self._store(run)

    def _go_on(self, run: Run, name: str, i: int | None) -> bool:
        """One life of the job, crashed at that point, or at none; whether it made a step.

        The storage as it was before a life that did is kept aside.
        """
        storage, spare = run.directory / STORAGE, run.directory / SPARE
        scratch = spare.with_name(f"{SPARE}-new")
        shutil.copytree(storage, scratch)
        life = self._life(run, name, [] if i is None else [self._in_controller(i, oldest(storage))], storage)
        life.run()
        history = History.load(life.directory)
        stored = history.select("checkpoint.transfer.begin")
        self._steps_of |= {str(event.data["checkpoint"]): event.step or 0 for event in stored}
        if history.first("step.end") is None:
            shutil.rmtree(scratch)
            return False
        shutil.rmtree(spare, ignore_errors=True)
        scratch.rename(spare)
        return True

    def _life(self, run: Run, name: str, injections: Iterable[Injection] = (), storage: Path | None = None) -> Conduct:
        """A run of the job in a folder and with a history of its own, not started; by default in new storage."""
        directory = run.directory / name
        directory.mkdir()
        if storage is not None:
            (directory / "storage").symlink_to(storage)
        armed = tuple(injections)
        config = dataclasses.replace(run.request.config, max_failures=len(armed) + 1)
        request = dataclasses.replace(run.request, program=Reference(config), injections=armed)
        plan = Plan(run_id=run.run_id, directory=str(directory), injections=armed, steps_of={**self._steps_of})
        run.bed.ledger.extend(2 * request.deadline_s + TTL_MARGIN_S)
        writer = HistoryWriter(directory, self.observers)
        recovers = storage is None
        life = Conduct(
            directory, workload(request, directory), plan, run.cluster, writer, request.deadline_s, recovers
        )  # fmt: skip
        run.conducts.append(life)
        for injection in armed:
            run.bed.intend_injection(injection=injection.id, fault=injection.fault, target=injection.where)
        return life

    def _in_rank(self, attempt: int, i: int) -> Injection:
        """In the first save of its attempt, in the second one of the job, so that there is one to go back to."""
        step = 2 * self.request.shape.checkpoint_every if attempt == 0 else None
        return self._injection(i, Trigger(phase=self.crashes[i].point.phase, attempt=attempt, step=step))

    def _in_controller(self, i: int, doomed: str) -> Injection:
        """In the first commit of a job; of the first job in the third one, by which retention deletes a checkpoint."""
        step = None if doomed else first_deleted(self.request.shape)
        injection = self._injection(i, Trigger(phase=self.crashes[i].point.phase, step=step))
        if self.crashes[i].point.stage == "retention":
            injection.values["file"] = f"{doomed}/{self.crashes[i].point.file}"
        return injection

    def _injection(self, i: int, trigger: Trigger) -> Injection:
        point = self.crashes[i].point
        values = dict(point.values)
        return Injection(id=_id(i), fault=point.fault, rank=point.rank, trigger=trigger, values=values)

    def _lived(self, i: int | None, **lives: str) -> None:
        """Note in which life a crash was to happen, or which came after it."""
        if i is not None:
            self.crashes[i] = msgspec.structs.replace(self.crashes[i], injection=_id(i), **lives)

    def _store(self, run: Run) -> None:
        scratch = run.directory / f".{CRASHES}"
        scratch.write_bytes(msgspec.json.encode(self.crashes))
        scratch.replace(run.directory / CRASHES)


def _id(i: int) -> str:
    return f"crash-{i}"


def _experiment(life: Path) -> str:
    """Where a life stored its checkpoints; a path that is nowhere when it did not tell."""
    started: Event | None = History.load(life).first("controller.start")
    return str(started.data["experiment"]) if started else str(life / "nowhere")


def oldest(storage: Path) -> str:
    """The checkpoint that the next commit deletes, by Ray's own record; empty where there is none."""
    for file in storage.glob(f"*/{SNAPSHOT}"):
        try:
            return str(msgspec.json.decode(file.read_bytes())["checkpoint_results"][0]["checkpoint_dir_name"])
        except (msgspec.MsgspecError, LookupError, TypeError):
            return ""
    return ""
