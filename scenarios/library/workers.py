"""Scenarios in which training workers die."""

from __future__ import annotations

from collections.abc import Callable

from chaos.faults.abort import Abort
from chaos.faults.async_exception import AsyncException
from chaos.faults.base import Fault
from chaos.faults.exception import Raise
from chaos.faults.exit import Exit
from chaos.faults.kill import Kill
from chaos.faults.segfault import Segfault
from chaos.schedule import Arming
from chaos.targets import All, Rank, Some
from chaos.triggers import at_step, in_phase, on_attempt
from metrics.expectations import HEALTHY, Expectation, fails, names, restarts, stays_flat
from scenarios.scenario import Inject, Scenario, Shape, register


def once(fault: Fault) -> Inject:
    """That fault, once, on the rank and right after the step of the shape."""
    return lambda shape: (Arming(fault, at_step(shape.step), Rank(shape.rank)),)


def lasting(fault: Callable[..., Fault]) -> Inject:
    """The same for a fault that lasts, for as many seconds as the shape says."""
    return lambda shape: once(fault(seconds=shape.seconds))(shape)


def again_and_again(shape: Shape) -> tuple[Arming, ...]:
    """Kills every second step from ``step`` on, ``rank`` first and then the next, as many as the budget allows."""
    return tuple(
        Arming(Kill(), at_step(shape.step + 2 * i), Rank((shape.rank + i) % shape.workers))
        for i in range(shape.max_failures)
    )


KILL_WORKER = register(
    Scenario(
        name="kill-worker",
        title="One training worker is killed with SIGKILL; the job must come back whole.",
        inject=once(Kill()),
    )
)

KILL_RANK_ZERO = register(
    Scenario(
        name="kill-rank-zero",
        title="Rank 0, which others look to, is killed with SIGKILL.",
        inject=once(Kill()),
        shape=Shape(rank=0),
    )
)

KILL_TWO_AT_ONCE = register(
    Scenario(
        name="kill-two-at-once",
        title="Two of three workers, drawn from the seed, are killed after the same step: one restart, not two.",
        inject=lambda shape: (Arming(Kill(), at_step(shape.step), Some(2, All())),),
        shape=Shape(workers=3),
        expects=HEALTHY.but(restarts(times=1)),
    )
)

SEGFAULT = register(
    Scenario(
        name="segfault",
        title="A worker reads address zero in native code and dies of SIGSEGV.",
        inject=once(Segfault()),
    )
)

WORKER_ABORT = register(
    Scenario(
        name="worker-abort",
        title="A worker aborts, as an assertion in native code would.",
        inject=once(Abort()),
    )
)

WORKER_EXIT = register(
    Scenario(
        name="worker-exit",
        title="A worker leaves with exit code 0, which must not pass for success.",
        inject=once(Exit(code=0)),
    )
)

WORKER_EXCEPTION = register(
    Scenario(
        name="worker-exception",
        title="The training loop of one worker raises an exception.",
        inject=once(Raise()),
        expects=HEALTHY & names(error="InjectedError"),
    )
)

WORKER_INTERRUPTED = register(
    Scenario(
        name="worker-interrupted",
        title="An asynchronous exception hits the training thread of one worker between two bytecodes.",
        inject=once(AsyncException()),
        expects=HEALTHY & names(error="InjectedError"),
    )
)


def _crashes_at_every_start(shape: Shape) -> tuple[Arming, ...]:
    """A first crash after some steps, then one in the first forward pass of every attempt that the budget allows."""
    later = (at_step(shape.step) >> in_phase("first-step")).repeat(shape.max_failures)
    return tuple(Arming(Exit(code=1), trigger, Rank(shape.rank)) for trigger in (at_step(shape.step), later))


def _ends_when_the_budget_is_gone(shape: Shape) -> Expectation:
    return restarts(times=shape.max_failures) & fails(error="WorkerGroupError")


CRASH_LOOP = register(
    Scenario(
        name="crash-loop",
        title="A worker crashes at every start: exactly max_failures restarts, then a clear end.",
        inject=_crashes_at_every_start,
        expects=_ends_when_the_budget_is_gone,
        shape=Shape(steps=20, checkpoint_every=4, step=5, max_failures=2),
        recovers=False,
        control=False,
    )
)

KILL_REPEATEDLY = register(
    Scenario(
        name="kill-repeatedly",
        title="A worker is killed again and again, once for each failure that the budget allows.",
        inject=again_and_again,
        shape=Shape(steps=24, checkpoint_every=4, step=3, max_failures=5),
    )
)

RESTART_TEN_TIMES = register(
    Scenario(
        name="restart-ten-times",
        title="Ten restarts in a row: time, processes, open files and memory must not grow.",
        inject=again_and_again,
        expects=HEALTHY & stays_flat(),
        shape=Shape(steps=24, checkpoint_every=4, step=3, max_failures=10),
        known_issue="Ray 2.60's own processes keep 13 to 15 more open files after each restart; up to 20 are accepted.",
    )
)


def _again_while_recovering(shape: Shape) -> tuple[Arming, ...]:
    other = (shape.rank + 1) % shape.workers
    return (
        Arming(Kill(), at_step(shape.step), Rank(shape.rank)),
        Arming(Kill(), in_phase("first-step") & on_attempt(1), Rank(other)),
    )


KILL_DURING_RECOVERY = register(
    Scenario(
        name="kill-during-recovery",
        title="A worker is killed, and another one while the job is coming back: still one clean recovery.",
        inject=_again_while_recovering,
        expects=HEALTHY.but(restarts(times=2)),
    )
)
