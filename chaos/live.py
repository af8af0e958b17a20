"""What is known of a run while it goes on: a fold over its events, for the runner's conditions and the live view."""

from __future__ import annotations

from dataclasses import dataclass, field

from chaos.history import Event

ENDED = ("FINISHED", "ERRORED", "ABORTED")
"""States of a controller that has taken back what it had asked the cluster for."""


@dataclass
class Live:
    """Steps, attempts and injections so far. Call it with each event."""

    attempt: int = 0
    world_size: int = 0
    state: str = ""
    steps: dict[int, dict[int, int]] = field(default_factory=dict)
    fired: dict[str, Event] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)
    committed: int = 0

    def __call__(self, event: Event) -> None:
        """Take in one event."""
        match event.kind:
            case "attempt.start":
                self.attempt, self.world_size = event.attempt or 0, event.world_size or 0
            case "step.end" if event.attempt is not None and event.rank is not None and event.step is not None:
                self.steps.setdefault(event.attempt, {})[event.rank] = event.step
            case "controller.state":
                self.state = event.data["to"]
            case "checkpoint.commit":
                self.committed = event.step or self.committed
            case "fault.fired":
                self.fired[event.data["injection"]] = event
            case "fault.confirmed":
                self.confirmed.add(event.data["injection"])

    def step_of_all(self, attempt: int) -> int:
        """The last step that every rank of an attempt has completed; 0 when some rank has none."""
        steps = self.steps.get(attempt, {})
        return min(steps.values()) if steps and len(steps) >= self.world_size > 0 else 0

    @property
    def step(self) -> int:
        """The last step that every rank of the latest attempt has completed."""
        return self.step_of_all(self.attempt)

    @property
    def over(self) -> bool:
        """Whether the controller came to an end of its own."""
        return self.state in ENDED

    @property
    def furthest(self) -> int:
        """The furthest step that any rank has completed in any attempt."""
        return max((step for ranks in self.steps.values() for step in ranks.values()), default=0)
