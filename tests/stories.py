"""What happens in a synthetic run, told event by event: the life of a training script and the faults that hit it."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from typing import Any

import torch

from chaos.agent.plan import Injection
from chaos.digest import tree_digests
from chaos.faults.base import Proof, find_fault
from chaos.history import Event
from chaos.triggers import at_step, in_phase, on_attempt
from tests.shards import shares

BEGIN_NS = 1_700_000_000_000_000_000
MS = 1_000_000
BATCH = 4
STEP_MS = 200
DELAY_MS = 5000
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

EARLY = ("rendezvous", "restore", "first-step")
"""Phases before the first step of an attempt."""

ERRORS = {"exception": "InjectedError", "memory-limit": "MemoryError", "oom": "OutOfMemoryError"}
"""What the controller is told of a rank that a fault has hit; of all other faults, that it answers no more."""

FIELDS = set(Event.__struct_fields__)


@dataclass(frozen=True)
class Hit:
    """A fault that hits a rank right after a step, or in another phase of its attempt.

    ``detect_ms``: how long the controller takes to act on it.
    """

    rank: int
    step: int = 0
    phase: str = "step"
    fault: str = "kill"
    detect_ms: int = PHASE_MS["detect"]

    @property
    def breaks(self) -> bool:
        return find_fault(self.fault).breaks

    def injection(self, name: str, attempt: int) -> Injection:
        trigger = at_step(self.step) if self.phase == "step" else in_phase(self.phase) & on_attempt(attempt)
        values = dataclasses.asdict(find_fault(self.fault))
        return Injection(id=name, fault=self.fault, rank=self.rank, trigger=trigger, values=values)


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


Attempt = list[tuple[Hit, Injection]]
"""What befalls one life of the worker group."""


@dataclass
class Teller:
    """Tells the events of one run, in order, on a clock that moves by what each step of the story takes.

    ``batch``: samples of one step over all ranks. ``worlds``: world size of each attempt of an elastic job, the last
    one for all that follow. ``resizes``: the step after which the controller ends an attempt to change it, by attempt.
    """

    steps: int
    every: int
    epoch: int | None
    max_failures: int
    now_ns: int = BEGIN_NS
    world_size: int = 2
    events: list[Event] = field(default_factory=list)
    committed: int = 0
    batch: int = 2 * BATCH
    worlds: tuple[int, ...] = ()
    resizes: tuple[tuple[int, int], ...] = ()

    def parts(self, rank: int, step: int) -> dict[str, str]:
        """Digests of what one rank holds at a step: its shards, in an elastic job."""
        return shares(rank, self.world_size, step) if self.worlds else parts(rank, step)

    def tell(self, kind: str, ms: float = 0, *, rank: int | None = None, **fields: Any) -> None:
        """Let some milliseconds pass, then record an event; what is no field of events goes into its data."""
        self.now_ns += int(ms * MS)
        own = {name: fields.pop(name) for name in tuple(fields) if name in FIELDS}
        pid = 100 + 10 * own.get("attempt", 0) + rank if rank is not None else 99
        mono = self.now_ns - BEGIN_NS + 1_000
        told = {"node": "127.0.0.1", "pid": pid, "rank": rank, "data": fields, **own}
        self.events.append(Event(kind=kind, wall_ns=self.now_ns, mono_ns=mono, **told))

    def tell_at(self, at_ns: int, kind: str, **fields: Any) -> None:
        self.now_ns = at_ns
        self.tell(kind, **fields)

    def on_ranks(self, kind: str, ms: float, **fields: Any) -> None:
        """The same event on every rank; the slowest is there after ``ms``."""
        self.now_ns += int(ms * MS) - (self.world_size - 1) * MS
        for rank in range(self.world_size):
            made = {name: make(rank) if callable(make) else make for name, make in fields.items()}
            self.tell(kind, 1 if rank else 0, rank=rank, world_size=self.world_size, **made)

    def state(self, ms: float, number: int, before: str, after: str, error: str = "") -> None:
        told = {"error": error, "message": f"{error} of attempt {number}"} if error else {}
        self.tell("controller.state", ms, attempt=number, **{"from": before, "to": after, **told})

    def attempt(self, number: int, hits: Attempt, gives_up: bool = False) -> None:
        """One life of the worker group: to the last step, or to the first hit that breaks it."""
        resumed = self.committed
        if self.worlds:
            self.world_size = self.worlds[min(number, len(self.worlds) - 1)]
        breaking = [(hit, injection) for hit, injection in hits if hit.breaks]
        phase = breaking[0][0].phase if breaking else ""
        self._begin(number, resumed, phase)
        until = dict(self.resizes).get(number, self.steps)
        until = resumed if phase in EARLY else breaking[0][0].step if breaking else until
        for step in range(resumed + 1, until + 1):
            self._step(number, step, first=step == resumed + 1)
            for hit, injection in hits:
                if hit.step == step and not hit.breaks:
                    self._strike(number, step, hit, injection, self.now_ns + MS, self.now_ns)
        if breaking:
            self._break(number, until, breaking, gives_up)
            return
        if number in dict(self.resizes):
            self._resize(number)
            return
        self.state(50, number, "RUNNING", "SHUTTING_DOWN")
        self.tell("attempt.shutdown", attempt=number)
        self.on_ranks("process.exit", 100, attempt=number, seen="at once", cause="exit code 1")
        self.state(0, number, "SHUTTING_DOWN", "FINISHED")

    def _resize(self, number: int) -> None:
        """The controller takes the group down to start one of another size: no fault, no error, no decision."""
        self.state(50, number, "RUNNING", "RESIZING")
        self.state(1, number, "RESIZING", "SCHEDULING")
        self.tell("attempt.shutdown", attempt=number)
        self.on_ranks("process.exit", PHASE_MS["teardown"], attempt=number, seen="at once", cause="SIGKILL")

    def _break(self, number: int, step: int, hits: Attempt, gives_up: bool) -> None:
        """The first hit starts the clock; one in teardown comes when the controller has acted."""
        first, fired_ns = hits[0][0], self.now_ns + MS
        left_ns = fired_ns + first.detect_ms * MS
        for place, (hit, injection) in enumerate(hits):
            at_ns = left_ns + 20 * MS if hit.phase == "teardown" else fired_ns + place * MS
            self._strike(number, step, hit, injection, at_ns, left_ns)
        starting = first.phase == "rendezvous"
        errors = {hit.rank: ERRORS.get(hit.fault, "WorkerHealthCheckFailedError") for hit, _ in hits}
        for rank in () if starting else range(self.world_size):
            error = errors.get(rank, "RuntimeError")
            self.tell_at(left_ns - 2 * MS, "worker.error", rank=rank, attempt=number, error=error, message="told")
        self.tell_at(left_ns, "controller.decision", attempt=number, decision="RAISE" if gives_up else "RETRY")
        before, error = ("SCHEDULING", "ControllerError") if starting else ("RUNNING", "WorkerGroupError")
        after = "SHUTTING_DOWN" if gives_up else "RESCHEDULING" if starting else "RESTARTING"
        self.state(0, number, before, after, error)
        self.tell("attempt.shutdown", attempt=number)
        self.state(1, number, after, *(("ERRORED", error) if gives_up else ("SCHEDULING",)))
        self.now_ns = left_ns + PHASE_MS["teardown"] * MS
        dead = {hit.rank for hit, _ in hits if find_fault(hit.fault).proof is Proof.EXIT}
        for rank in (rank for rank in range(self.world_size) if rank not in dead):
            cause = "SIGKILL" if rank in errors else "exit code 1"
            self.tell("process.exit", rank=rank, attempt=number, seen="at once", cause=cause)

    def _strike(self, number: int, step: int, hit: Hit, injection: Injection, at_ns: int, left_ns: int) -> None:
        """A fault fires, and its effect is seen: 50 ms later, or when the controller acts, or when it has ended."""
        fault, where = find_fault(hit.fault), {"rank": hit.rank, "attempt": number, "step": step}
        told = {"injection": injection.id, "fault": hit.fault, "phase": hit.phase, "node": f"w{hit.rank}"}
        self.tell_at(at_ns, "fault.fired", **where, data=told)
        after_ms, evidence = 50.0, fault.effect
        if fault.proof is Proof.EXIT:
            self.tell("process.exit", 50, rank=hit.rank, attempt=number, seen="at once", cause=fault.cause)
            evidence = f"process left the process table, ended by {fault.cause}"
        elif fault.proof is Proof.ERROR:
            after_ms = (left_ns - at_ns) / MS
        elif not fault.breaks:
            after_ms = float(DELAY_MS)
        effect = {"injection": injection.id, "evidence": evidence, "after_ms": after_ms, "seen": "at once"}
        self.tell_at(at_ns + int(after_ms * MS) + MS, "fault.confirmed", **where, **effect)

    def _begin(self, number: int, resumed: int, phase: str) -> None:
        """From the placement group to the first step, or to the phase in which a fault ends it."""
        given = checkpoint_name(resumed) if resumed else None
        self.tell("schedule.begin", attempt=number, workers=self.world_size)
        start_ms = PHASE_MS["schedule"] + PHASE_MS["start"]
        self.on_ranks("worker.start", start_ms - 10, attempt=number, checkpoint=given, steps=resumed)
        ready = {"world_size": self.world_size, "placement_ms": float(PHASE_MS["schedule"])}
        self.tell("attempt.start", 10, attempt=number, **ready)
        if phase == "rendezvous":
            return
        self.tell("pg.init.end", PHASE_MS["rendezvous"], attempt=number)
        self.state(5, number, "SCHEDULING", "RUNNING")
        if given is None:
            self.on_ranks("data.begin", PHASE_MS["setup"] - 5, attempt=number)
            return
        self.on_ranks("restore.begin", PHASE_MS["setup"] - 5, attempt=number, checkpoint=given)
        if phase == "restore":
            return
        self.on_ranks("restore.end", PHASE_MS["restore"], attempt=number, exact=True)
        loaded = self.now_ns
        self.on_ranks("state", 5, attempt=number, step=resumed, name="restored", parts=lambda r: self.parts(r, resumed))
        self.now_ns = loaded

    def _step(self, number: int, step: int, first: bool) -> None:
        begin, share = (step - 1) * self.batch % (self.epoch or 1 << 40), self.batch // self.world_size
        self.on_ranks(
            "step.end",
            STEP_MS,
            attempt=number,
            step=step,
            loss=lambda rank: 5.0 - 0.1 * step + 0.01 * (rank - (self.world_size - 1) / 2),
            lr=0.001 * step,
            samples=lambda rank: [[begin + share * rank, begin + share * (rank + 1) - 1]],
        )
        if first:
            self.tell("probe.resources", attempt=number, processes=28, files=1250, rss_mib=4580)
        if step % self.every == 0:
            before = self.now_ns
            self.on_ranks("state", 20, attempt=number, step=step, name="saved", parts=lambda r: self.parts(r, step))
            self.tell("checkpoint.commit", 10, attempt=number, step=step, checkpoint=checkpoint_name(step))
            self.committed = step
            self.now_ns = before

    def story(self, attempts: list[Attempt], gives_up: bool = False) -> None:
        """The training script's life: attempts until one reaches the end, or until the job gives up."""
        self.tell("workload.start", 100)
        start = {"workers": self.world_size, "max_failures": self.max_failures, "keep": 2}
        self.tell("controller.start", 900, experiment=f"/elsewhere/storage/{EXPERIMENT}", **start)
        whole = bool(attempts) and (gives_up or not any(hit.breaks for hit, _ in attempts[-1]))
        lives = [*attempts] if whole else [*attempts, []]
        lives += [[]] * (max((number + 2 for number, _ in self.resizes), default=0) - len(lives))
        for number, hits in enumerate(lives):
            self.attempt(number, hits, gives_up and number == len(lives) - 1)
        self.tell("workload.exit", 300, code=int(gives_up))
        self.tell("residue.checked", 700, workers=[], actors=[], placement_groups=[], seconds=0.5)
