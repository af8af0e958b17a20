"""Synthetic run directories: a healthy kill-worker run by default, with knobs for its shape and tools to spoil it.

``healthy()`` is a run of 2 ranks and 12 steps with a checkpoint every 4: rank 1 is killed after step 6, the job resumes
from step 4, and a control run goes with it. ``faulty()`` takes other faults, by the attempt that they hit:

    faulty((Hit(1, 6),), (Hit(0, phase="restore"),))                # killed, and killed again while it comes back
    faulty((Hit(1, 6, fault="delay"),), expects=UNDISTURBED)        # disturbed, and it goes on
    faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 10),))      # killed, goes on with two, takes in a third

A ``Run`` never changes; each tool returns a spoilt copy:

    healthy().drop("state", attempt=1)                              # no state was told after the fault
    healthy().change("step.end", {"rank": 0, "step": 9}, loss=9.9)  # one loss differs

Names in ``where`` and in changes are fields of the event, else keys of its ``data``.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from torch.distributed.checkpoint import state_dict_saver

from chaos.history import NAME, Event, History
from chaos.timeouts import TIMEOUTS
from metrics.checkpoints import registry
from metrics.expectations import HEALTHY, Expectation, NamedCheck, parse
from metrics.publish import ALWAYS
from metrics.verdict import RECORD, Case, Judgement, Record, Verdict, judge
from tests.shards import stored
from tests.stories import BATCH, BEGIN_NS, EXPERIMENT, FIELDS, MS, Attempt, Hit, Teller, tree

STORED = ("checkpoints", "snapshot")
"""Checks that read the storage."""

ENDLESS = 1000
"""Samples in an epoch that no run here comes to the end of."""


def value(event: Event, name: str) -> Any:
    """A field of an event, else what its data hold under that name."""
    return getattr(event, name) if name in FIELDS else event.data.get(name)


@dataclass(frozen=True)
class Run:
    """A stored run before it is stored: what was asked, what happened, and what happened in its control run."""

    record: dict[str, Any]
    events: tuple[Event, ...]
    control: Run | None = None
    elastic: bool = False

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
        return self.add(_changed(first, {"wall_ns": first.wall_ns + int(ms * MS), **changes}))

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

    @property
    def checks(self) -> tuple[NamedCheck, ...]:
        """Every check that the run is judged by."""
        return (*ALWAYS, *parse(self.record["expect"]).checks)

    @property
    def names(self) -> list[str]:
        """Names of the checks that need no storage."""
        return [name for name, _ in self.checks if name not in STORED]

    def case(self, directory: Path = Path("nowhere"), unreadable: int = 0) -> Case:
        """As the checks see it, without touching a disk."""
        control = History.of(self.control.events) if self.control else None
        record = msgspec.convert(self.record, Record)
        return Case(directory, record, History.of(self.events, unreadable), control)

    def judged(self, *checks: NamedCheck) -> Judgement:
        """The judgement of the given checks, else of all that need no storage."""
        return judge(self.case(), checks or [(name, check) for name, check in self.checks if name not in STORED])

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
            if store:
                self.control.store(directory / "control")
        if store:
            self.store(directory)
        return directory

    def store(self, directory: Path) -> None:
        """Write the checkpoints that retention kept."""
        sizes = {event.attempt: event.world_size for event in self.select("attempt.start")}
        for commit in self.select("checkpoint.commit")[-self.record["keep"] :]:
            folder = directory / "storage" / EXPERIMENT / commit.data["checkpoint"]
            write_checkpoint(folder, commit.step or 0, sizes.get(commit.attempt, 0) if self.elastic else None)
        names = [{"checkpoint_dir_name": commit.data["checkpoint"]} for commit in self.select("checkpoint.commit")]
        record = {
            "checkpoint_results": names[-self.record["keep"] :],
            "latest_checkpoint_result": (names or [None])[-1],
        }
        (directory / "storage" / EXPERIMENT).mkdir(parents=True, exist_ok=True)
        (directory / "storage" / EXPERIMENT / registry.FILE).write_bytes(msgspec.json.encode(record))


def _changed(event: Event, changes: dict[str, Any]) -> Event:
    fields = {name: new for name, new in changes.items() if name in FIELDS}
    data = {**event.data, **{name: new for name, new in changes.items() if name not in FIELDS}}
    return msgspec.structs.replace(event, **{"data": data, **fields})


@functools.cache
def _stored(step: int) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that nothing is distributed here, which is intended
        state_dict_saver.save(tree(step), checkpoint_id=folder, no_dist=True)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def write_checkpoint(folder: Path, step: int, world: int | None = None) -> None:
    """Write the state at a step as torch.distributed.checkpoint does; cut among so many ranks of an elastic job."""
    folder.mkdir(parents=True)
    for name, text in (_stored(step) if world is None else stored(step, world)).items():
        (folder / name).write_bytes(text)


def _record(teller: Teller, attempts: list[Attempt], control: bool, expects: Expectation) -> dict[str, Any]:
    return {
        "schema": 2,
        "run": "0badcafe",
        "scenario": "kill-worker",
        "title": "One training worker is killed.",
        "command": "aftershock run kill-worker",
        "seed": 7,
        "workers": (teller.worlds or (teller.world_size,))[0],
        "steps": teller.steps,
        "checkpoint_every": teller.every,
        "keep": 2,
        "max_failures": teller.max_failures,
        "poll_s": 0.5,
        "control": control,
        "expect": str(expects),
        "timeouts": {name: timeout.default_s for name, timeout in TIMEOUTS.items()} | {"poll": 0.5},
        "injections": [dataclasses.asdict(injection) for hits in attempts for _, injection in hits],
        "settings": {},
        "versions": {"aftershock": "0.1.0"},
        "epoch_samples": teller.epoch or ENDLESS,
    }


def _armed(attempts: tuple[tuple[Hit, ...], ...]) -> list[Attempt]:
    """The injections of all hits, named as the schedule names them."""
    counts: Counter[str] = Counter()
    armed: list[Attempt] = []
    for number, hits in enumerate(attempts):
        armed.append([])
        for hit in hits:
            armed[-1].append((hit, hit.injection(f"{hit.fault}-{counts[hit.fault]}", number)))
            counts[hit.fault] += 1
    return armed


@functools.cache
def faulty(
    *attempts: tuple[Hit, ...],
    steps: int = 12,
    every: int = 4,
    control: bool = True,
    epoch: int | None = None,
    max_failures: int = 3,
    expects: Expectation = HEALTHY,
    gives_up: bool = False,
    worlds: tuple[int, ...] = (),
    resizes: tuple[tuple[int, int], ...] = (),
) -> Run:
    """A run in which everything went as it should after faults, given by the attempt that they hit.

    ``epoch``: samples of the data set; None for one endless epoch. ``gives_up``: the last hit ends the job.
    ``worlds`` and ``resizes``: of an elastic job, see ``Teller``; its state is cut among the ranks.
    """
    armed = _armed(attempts)
    batch = BATCH * max(worlds or (2,))
    teller = Teller(steps, every, epoch, max_failures, batch=batch, worlds=worlds, resizes=resizes)
    teller.tell("run.start", schema=1, process_started=BEGIN_NS / 1e9 - 1.5)
    teller.tell("cluster.node.start", 10, name="head", address="127.0.0.2")
    teller.tell("cluster.up", 4000, nodes=3)
    for injection in (injection for hits in armed for _, injection in hits):
        told = {"injection": injection.id, "fault": injection.fault, "target": injection.where}
        teller.tell("fault.armed", 1, **told, trigger=str(injection.trigger), values=injection.values)
    teller.story(armed, gives_up)
    other = None
    if control:
        second = Teller(steps, every, epoch, max_failures, teller.now_ns, batch=batch, worlds=worlds[:1])
        second.story([])
        other = Run(_record(second, [], False, expects), tuple(second.events), elastic=bool(worlds))
        teller.now_ns = second.now_ns
    teller.tell("run.healed", 2000, errors=[])
    teller.tell("run.end", 10)
    record = _record(teller, armed, control, expects)
    return Run(record, tuple(sorted(teller.events, key=lambda e: e.wall_ns)), other, bool(worlds))


def healthy(kills: tuple[tuple[int, int], ...] = ((1, 6),), **shape: Any) -> Run:
    """The same after kills, each of a rank after a step, one an attempt."""
    return faulty(*((Hit(rank, step),) for rank, step in kills), **shape)


def worst(expectation: Expectation, run: Run, directory: Path) -> Verdict:
    """The worst verdict of its checks over a stored run."""
    found = {check(run.case(directory)).verdict for _, check in expectation.checks}
    return next(v for v in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS, Verdict.NOT_APPLICABLE) if v in found)


def sampled(run: Run, **values: Sequence[float]) -> Run:
    """With other samples of what it takes of the machine, one for each restarted attempt."""
    for name, told in values.items():
        for attempt, sample in enumerate(told, 1):
            run = run.change("probe.resources", {"attempt": attempt}, **{name: sample})
    return run
