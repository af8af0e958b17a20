"""Scenarios that break training workers."""

from __future__ import annotations

from chaos.agent.plan import Injection
from scenarios.scenario import Scenario, Shape, register


def _one_kill(shape: Shape) -> tuple[Injection, ...]:
    return (Injection(id="kill-0", fault="kill", rank=shape.rank, step=shape.step),)


def _many_kills(shape: Shape) -> tuple[Injection, ...]:
    """Kills every second step from ``step`` on, ``rank`` first and then the next, as many as the budget allows."""
    return tuple(
        Injection(id=f"kill-{i}", fault="kill", rank=(shape.rank + i) % shape.workers, step=shape.step + 2 * i)
        for i in range(shape.max_failures)
    )


KILL_WORKER = register(
    Scenario(
        name="kill-worker",
        title="One training worker is killed with SIGKILL; the job must come back whole.",
        expects="one restart, resume from the last committed checkpoint, nothing lost beyond the interval",
        inject=_one_kill,
    )
)

KILL_REPEATEDLY = register(
    Scenario(
        name="kill-repeatedly",
        title="A worker is killed again and again, once for each failure that the budget allows.",
        expects="as many restarts as kills, each kill exactly at its step, the whole run still exact",
        inject=_many_kills,
        shape=Shape(steps=24, checkpoint_every=4, step=3, max_failures=5),
    )
)
