"""Synthetic run directories: a healthy kill-worker run by default, with knobs for its shape and tools to spoil it.

``healthy()`` is a run of 2 ranks and 12 steps with a checkpoint every 4: rank 1 is killed after step 6, the job resumes
from step 4, and a control run goes with it. A ``Run`` never changes; each tool returns a spoilt copy:

    healthy().drop("state", attempt=1)                              # no state was told after the fault
    healthy().change("step.end", {"rank": 0, "step": 9}, loss=9.9)  # one loss differs

Names in ``where`` and in changes are fields of the event, else keys of its ``data``.
"""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.distributed.checkpoint import state_dict_saver

from chaos.digest import tree_digests
from chaos.history import NAME, Event, History
from metrics.publish import CHECKS
from metrics.verdict import RECORD, Case, Check, Judgement, Record, judge

BEGIN_NS = 1_700_000_000_000_000_000
BATCH = 4
STEP_MS = 200
ENDLESS = 1000
"""Samples in an epoch that no run here comes to the end of."""

EXPERIMENT = "kill-worker"

PHASE_MS = {
    "detect": 300,
    "grace": 0,
    "teardown": 150,
    "schedule": 40,
    "start": 2000,
    "rendezvous": 250,
    "setup": 1200,
    "restore": 500,
}
"""How long each phase of a recovery takes here; ``replay`` follows from the steps."""

_FIELDS = set(Event.__struct_fields__)


def value(event: Event, name: str) -> Any:
    """A field of an event, else what its data hold under that name."""
    return getattr(event, name) if name in _FIELDS else event.data.get(name)


@dataclass(frozen=True)
class Run:
    """A stored run before it is stored: what was asked, what happened, and what happened in its control run."""

    record: dict[str, Any]
    events: tuple[Event, ...]
    control: Run | None = None

    def select(self, kind: str, **where: Any) -> list[Event]:
        return [e for e in self.events if e.kind == kind and all(value(e, k) == v for k, v in where.items())]

    def drop(self, kind: str, **where: Any) -> Run:
        """Without the events of that kind; at least one must have been there."""
        gone = {id(event) for event in self.select(kind, **where)}
        assert gone, f"nothing to drop: {kind} {where}"
        return replace(self, events=tuple(event for event in self.events if id(event) not in gone))

    def change(self, kind: str, where: dict[str, Any] | None = None, /, **changes: Any) -> Run:
        """With other values in the events of that kind; at least one must have been there."""
        chosen = {id(event) for event in self.select(kind, **(where or {}))}
        assert chosen, f"nothing to change: {kind} {where}"
        return replace(self, events=tuple(_changed(e, changes) if id(e) in chosen else e for e in self.events))

    def again(self, kind: str, where: dict[str, Any] | None = None, /, ms: float = 1, **changes: Any) -> Run:
        """With a copy of the first such event, some milliseconds later."""
        first = self.select(kind, **(where or {}))[0]
        return self.add(_changed(first, {"wall_ns": first.wall_ns + int(ms * 1e6), **changes}))

    def until(self, kind: str, **where: Any) -> Run:
        """Cut after the first such event, as when the harness died there."""
        last = self.select(kind, **where)[0].wall_ns
        return replace(self, events=tuple(event for event in self.events if event.wall_ns <= last))

    def add(self, *events: Event) -> Run:
        return replace(self, events=tuple(sorted([*self.events, *events], key=lambda event: event.wall_ns)))

    def asked(self, **changes: Any) -> Run:
        """With another scenario record."""
        return replace(self, record={**self.record, **changes})

    def with_control(self, control: Run | None) -> Run:
        return replace(self, control=control)

    def case(self, directory: Path = Path("nowhere"), unreadable: int = 0) -> Case:
        """As the checks see it, without touching a disk."""
        control = History.of(self.control.events) if self.control else None
        record = msgspec.convert(self.record, Record)
        return Case(directory, record, History.of(self.events, unreadable), control)

    def judged(self, *checks: tuple[str, Check]) -> Judgement:
        """The judgement of the given checks, else of all that need no storage."""
        return judge(self.case(), checks or [(name, check) for name, check in CHECKS if name != "checkpoints"])

    def lines(self) -> list[bytes]:
        return [msgspec.json.encode(event) + b"\n" for event in self.events]

    def write(self, directory: Path, store: bool = True) -> Path:
        """Store it as a run directory, with the checkpoints that retention kept."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / RECORD).write_bytes(msgspec.json.encode(self.record))
        (directory / NAME).write_bytes(b"".join(self.lines()))
        if self.control:
            (directory / "control").mkdir(exist_ok=True)
            (directory / "control" / NAME).write_bytes(b"".join(self.control.lines()))
        for commit in self.select("checkpoint.commit")[-self.record["keep"] :] if store else ():
            write_checkpoint(directory / "storage" / EXPERIMENT / commit.data["checkpoint"], commit.step or 0)
        return directory


def _changed(event: Event, changes: dict[str, Any]) -> Event:
    fields = {name: new for name, new in changes.items() if name in _FIELDS}
    data = {**event.data, **{name: new for name, new in changes.items() if name not in _FIELDS}}
    return msgspec.structs.replace(event, **{"data": data, **fields})


def checkpoint_name(step: int) -> str:
    return f"checkpoint_{step:06}"


def tree(step: int) -> dict[str, Any]:
    """The training state at a step, over all ranks; every shard carries its stamp."""
    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3) + step
    stamps = {f"rank{rank}": torch.tensor([step]) for rank in range(2)}
    return {"model": {"weight": weight}, "progress": {"step": step}, "stamp": stamps}


@functools.cache
def _parts(rank: int, step: int) -> dict[str, str]:
    whole = tree(step)
    return tree_digests({**whole, "stamp": {f"rank{rank}": whole["stamp"][f"rank{rank}"]}})


def parts(rank: int, step: int) -> dict[str, str]:
    """Digests of what one rank saves at a step."""
    return dict(_parts(rank, step))


@functools.cache
def _stored(step: int) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that nothing is distributed here, which is intended
        state_dict_saver.save(tree(step), checkpoint_id=folder, no_dist=True)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def write_checkpoint(folder: Path, step: int) -> None:
    """Write the state at a step as torch.distributed.checkpoint does."""
    folder.mkdir(parents=True)
    for name, text in _stored(step).items():
        (folder / name).write_bytes(text)


@dataclass
class _Teller:
    """Tells the events of one run, in order, on a clock that moves by what each step of the story takes."""

    world_size: int
    steps: int
    every: int
    epoch: int | None
    now_ns: int
    max_failures: int = 3
    events: list[Event] = field(default_factory=list)
    committed: int = 0

    def tell(self, kind: str, ms: float = 0, *, rank: int | None = None, **fields: Any) -> None:
        """Let some milliseconds pass, then record an event; what is no field of events goes into its data."""
        self.now_ns += int(ms * 1e6)
        own = {name: fields.pop(name) for name in tuple(fields) if name in _FIELDS}
        pid = 100 + 10 * own.get("attempt", 0) + rank if rank is not None else 99
        mono = self.now_ns - BEGIN_NS + 1_000
        told = {"node": "127.0.0.1", "pid": pid, "rank": rank, "data": fields, **own}
        self.events.append(Event(kind=kind, wall_ns=self.now_ns, mono_ns=mono, **told))

    def on_ranks(self, kind: str, ms: float, **fields: Any) -> None:
        """The same event on every rank; the slowest is there after ``ms``."""
        self.now_ns += int(ms * 1e6) - (self.world_size - 1) * 1_000_000
        for rank in range(self.world_size):
            made = {name: make(rank) if callable(make) else make for name, make in fields.items()}
            self.tell(kind, 1 if rank else 0, rank=rank, world_size=self.world_size, **made)

    def attempt(self, number: int, until: int, kill: tuple[int, str] | None) -> None:
        """One life of the worker group, up to a step; ``kill`` names the rank and the injection that end it."""
        resumed = self.committed
        self._begin(number, resumed)
        for step in range(resumed + 1, until + 1):
            self._step(number, step)
        if kill is None:
            self.tell("controller.state", 50, attempt=number, **{"from": "RUNNING", "to": "SHUTTING_DOWN"})
            self.on_ranks("process.exit", 100, attempt=number, seen="at once")
            return
        rank, injection = kill
        self.tell("fault.fired", 1, rank=rank, attempt=number, step=until, injection=injection, fault="kill")
        self.tell("process.exit", 50, rank=rank, attempt=number, seen="at once")
        evidence = {"injection": injection, "evidence": "process left the process table", "after_ms": 50.0}
        self.tell("fault.confirmed", 1, rank=rank, attempt=number, step=until, **evidence)
        self.tell("controller.decision", PHASE_MS["detect"] - 51, attempt=number, decision="RETRY")
        self.tell("controller.state", attempt=number, **{"from": "RUNNING", "to": "RESTARTING"})
        left = self.now_ns
        self.tell("controller.state", 1, attempt=number, **{"from": "RESTARTING", "to": "SCHEDULING"})
        self.now_ns = left + PHASE_MS["teardown"] * 1_000_000
        for other in (other for other in range(self.world_size) if other != rank):
            self.tell("process.exit", rank=other, attempt=number, seen="at once")

    def _begin(self, number: int, resumed: int) -> None:
        given = checkpoint_name(resumed) if resumed else None
        self.tell("schedule.begin", attempt=number, workers=self.world_size)
        start_ms = PHASE_MS["schedule"] + PHASE_MS["start"]
        self.on_ranks("worker.start", start_ms - 10, attempt=number, checkpoint=given, steps=resumed)
        ready = {"world_size": self.world_size, "placement_ms": float(PHASE_MS["schedule"])}
        self.tell("attempt.start", 10, attempt=number, **ready)
        self.tell("pg.init.end", PHASE_MS["rendezvous"], attempt=number)
        self.tell("controller.state", 5, attempt=number, **{"from": "SCHEDULING", "to": "RUNNING"})
        if given is None:
            self.on_ranks("data.begin", PHASE_MS["setup"] - 5, attempt=number)
            return
        self.on_ranks("restore.begin", PHASE_MS["setup"] - 5, attempt=number, checkpoint=given)
        self.on_ranks("restore.end", PHASE_MS["restore"], attempt=number, exact=True)
        loaded = self.now_ns
        self.on_ranks("state", 5, attempt=number, step=resumed, name="restored", parts=lambda r: parts(r, resumed))
        self.now_ns = loaded

    def _step(self, number: int, step: int) -> None:
        first = (step - 1) * BATCH * self.world_size % (self.epoch or 1 << 40)
        self.on_ranks(
            "step.end",
            STEP_MS,
            attempt=number,
            step=step,
            loss=lambda rank: 5.0 - 0.1 * step + 0.01 * rank,
            lr=0.001 * step,
            samples=lambda rank: [[first + BATCH * rank, first + BATCH * (rank + 1) - 1]],
        )
        if step % self.every == 0:
            before = self.now_ns
            self.on_ranks("state", 20, attempt=number, step=step, name="saved", parts=lambda rank: parts(rank, step))
            self.tell("checkpoint.commit", 10, attempt=number, step=step, checkpoint=checkpoint_name(step))
            self.committed = step
            self.now_ns = before


def _story(teller: _Teller, kills: Iterable[tuple[int, int]]) -> None:
    """The training script's life: attempts until the last one reaches the end."""
    teller.tell("workload.start", 100)
    start = {"workers": teller.world_size, "max_failures": teller.max_failures, "keep": 2}
    teller.tell("controller.start", 900, experiment=f"/elsewhere/storage/{EXPERIMENT}", **start)
    number = 0
    for number, (rank, step) in enumerate(kills, 1):
        teller.attempt(number - 1, step, (rank, f"kill-{number - 1}"))
    teller.attempt(number, teller.steps, None)
    teller.tell("workload.exit", 300, code=0)


def _record(teller: _Teller, injections: list[dict[str, Any]], control: bool) -> dict[str, Any]:
    return {
        "schema": 1,
        "run": "0badcafe",
        "scenario": "kill-worker",
        "title": "One training worker is killed.",
        "command": "aftershock run kill-worker",
        "seed": 7,
        "workers": teller.world_size,
        "steps": teller.steps,
        "checkpoint_every": teller.every,
        "keep": 2,
        "max_failures": teller.max_failures,
        "poll_s": 0.5,
        "recover_within_s": 60.0,
        "control": control,
        "injections": injections,
        "settings": {},
        "versions": {"aftershock": "0.1.0"},
        "epoch_samples": teller.epoch or ENDLESS,
    }


def healthy(
    steps: int = 12,
    every: int = 4,
    kills: tuple[tuple[int, int], ...] = ((1, 6),),
    control: bool = True,
    epoch: int | None = None,
    max_failures: int = 3,
) -> Run:
    """A run in which everything went as it should.

    ``kills``: rank and step of each fault, one an attempt. ``epoch``: samples of the data set; None for one endless
    epoch.
    """
    teller = _Teller(2, steps, every, epoch, BEGIN_NS, max_failures)
    injections = [{"id": f"kill-{i}", "fault": "kill", "rank": r, "step": s} for i, (r, s) in enumerate(kills)]
    teller.tell("run.start", schema=1, process_started=BEGIN_NS / 1e9 - 1.5)
    teller.tell("cluster.node.start", 10, name="head")
    teller.tell("cluster.up", 4000, nodes=3)
    for injection in injections:
        teller.tell("fault.armed", 1, injection=injection["id"], **injection)
    _story(teller, kills)
    other = None
    if control:
        second = _Teller(2, steps, every, epoch, teller.now_ns, max_failures)
        _story(second, ())
        other = Run(_record(teller, [], False), tuple(second.events))
        teller.now_ns = second.now_ns
    teller.tell("run.healed", 2000, errors=[])
    teller.tell("run.end", 10)
    return Run(_record(teller, injections, control), tuple(sorted(teller.events, key=lambda e: e.wall_ns)), other)
