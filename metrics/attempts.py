"""The history folded into attempts: one life of the worker group each, and what survives of its steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from chaos.history import Event, History


@dataclass
class Attempt:
    """One life of the worker group. Dicts are by rank.

    ``steps``: the events ``step.end`` in order. ``starts``: the events ``worker.start``.
    """

    number: int
    world_size: int = 0
    start: Event | None = None
    group_ready: Event | None = None
    schedule: Event | None = None
    starts: dict[int, Event] = field(default_factory=dict)
    steps: dict[int, list[Event]] = field(default_factory=lambda: defaultdict(list))
    restore_begins: dict[int, Event] = field(default_factory=dict)
    restore_ends: dict[int, Event] = field(default_factory=dict)
    data_begins: dict[int, Event] = field(default_factory=dict)
    states: list[Event] = field(default_factory=list)
    commits: list[Event] = field(default_factory=list)
    exits: dict[int, Event] = field(default_factory=dict)

    @property
    def step_of_all(self) -> int:
        """The last step that every rank had completed: its own last one, else the one that it resumed from."""
        if len(self.starts) < self.world_size:
            return 0
        done = {rank: start.data["steps"] or 0 for rank, start in self.starts.items()}
        done |= {rank: events[-1].step or 0 for rank, events in self.steps.items() if events}
        return min(done.values(), default=0)

    @cached_property
    def complete(self) -> dict[int, int]:
        """When the slowest rank had completed each step that every rank completed (ns since the epoch), in order."""
        ends: dict[int, dict[int, int]] = defaultdict(dict)
        for rank, events in self.steps.items():
            for event in events:
                ends[event.step or 0][rank] = event.wall_ns
        return {step: max(by.values()) for step, by in sorted(ends.items()) if len(by) >= self.world_size > 0}

    @property
    def resumed(self) -> int:
        """The step that the group went on from, the earliest of its ranks'; one not known counts as 0."""
        return min((steps or 0 for steps in self.resume_steps.values()), default=0)

    @property
    def checkpoints_given(self) -> dict[int, str | None]:
        """The checkpoint that Ray Train handed to each rank, by directory name; None for none."""
        return {rank: event.data["checkpoint"] for rank, event in self.starts.items()}

    @property
    def resume_steps(self) -> dict[int, int | None]:
        """Steps done at the start by each rank's checkpoint; None where its step is not known."""
        return {rank: event.data["steps"] for rank, event in self.starts.items()}


def attempts_of(history: History) -> list[Attempt]:
    """Group the events of training processes by attempt, in the order of time."""
    found: dict[int, Attempt] = {}
    for event in history:
        if event.attempt is not None and event.kind not in ("controller.state", "controller.decision"):
            _take(found.setdefault(event.attempt, Attempt(event.attempt)), event)
    for attempt in found.values():
        _forget_failed_start(attempt)
    return [found[number] for number in sorted(found) if found[number].starts]


def _take(attempt: Attempt, event: Event) -> None:
    by_rank = {
        "restore.begin": attempt.restore_begins,
        "restore.end": attempt.restore_ends,
        "data.begin": attempt.data_begins,
        "process.exit": attempt.exits,
    }
    match event.kind:
        case "schedule.begin":
            attempt.schedule = event
        case "attempt.start":
            attempt.start, attempt.world_size = event, event.world_size or 0
        case "pg.init.end":
            attempt.group_ready = event
        case "step.end" if event.rank is not None:
            attempt.steps[event.rank].append(event)
        case "state":
            attempt.states.append(event)
        case "checkpoint.commit":
            attempt.commits.append(event)
        case "worker.start" if event.rank is not None:
            # A group that failed to start has the number of the next one, whose workers then take its place.
            attempt.starts[event.rank] = event
            attempt.exits.pop(event.rank, None)
        case kind if kind in by_rank and event.rank is not None:
            by_rank[kind].setdefault(event.rank, event)


def _forget_failed_start(attempt: Attempt) -> None:
    """Drop the ranks of a larger group that failed to start and left its number to this smaller one."""
    for rank in [rank for rank in attempt.starts if rank >= attempt.world_size > 0]:
        del attempt.starts[rank]
        attempt.exits.pop(rank, None)


def effective_steps(attempts: list[Attempt]) -> dict[int, list[Event]]:
    """The effective history of each rank: after a rollback, re-executed steps replace the lost ones.

    An attempt takes back every step beyond the one that it resumed from, on all ranks that there ever were: a rank that
    a smaller group no longer has loses its steps as well.
    """
    kept: dict[int, list[Event]] = {}
    for attempt in attempts:
        resumed = attempt.resumed
        kept = {rank: [e for e in events if (e.step or 0) <= resumed] for rank, events in kept.items()}
        for rank, events in attempt.steps.items():
            kept[rank] = kept.get(rank, []) + events
    return kept


def by_step(kept: Mapping[int, list[Event]]) -> dict[int, list[Event]]:
    """The same events by step instead of rank, in the order of steps."""
    found: dict[int, list[Event]] = defaultdict(list)
    for event in (event for events in kept.values() for event in events):
        found[event.step or 0].append(event)
    return dict(sorted(found.items()))


def after_fault(attempts: list[Attempt]) -> list[Attempt]:
    """The attempts that restarted; all where none did."""
    return [attempt for attempt in attempts if attempt.number > 0] or attempts


def commits_before(attempts: list[Attempt], number: int) -> list[Event]:
    """The checkpoints committed in attempts before that one, in order."""
    return [event for attempt in attempts if attempt.number < number for event in attempt.commits]
