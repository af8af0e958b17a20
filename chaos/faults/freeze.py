"""Stop the process with SIGSTOP: it exists, holds its sockets, and does nothing."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from chaos.faults.base import Attack, Scene, register
from chaos.process import Identity

LOOK_S = 0.001


@register
@dataclass(frozen=True)
class Freeze(Attack):
    """SIGSTOP, and SIGCONT when the time is over or the run ends, unless the process was killed before.

    ``seconds``: how long it stays frozen at most.
    """

    name = "freeze"
    effect = "the kernel shows the process as stopped (state T)"
    certifies = "the time-out paths: peers wait for the process group, the controller for an answer; then one restart"
    not_certified = "a failed network card or a frozen machine, whose kernel answers nothing either"
    noticed_by = ("process_group", "worker_health")

    seconds: float = 600.0

    def attack(self, victim: Identity, scene: Scene) -> Generator[float]:
        """Stop, confirm, wait, continue."""
        return hold(victim, self.seconds, scene, f"process {victim.pid}")


def hold(process: Identity, seconds: float, scene: Scene, told: str) -> Generator[float]:
    """Keep a process stopped for so many seconds, then let it go on, whatever happens; ``told``: how to call it."""
    try:
        yield from stop(process)
        scene.release()
        if process.stopped():
            scene.confirm(f"{told} is stopped (state T)")
        yield seconds
    finally:
        process.send(signal.SIGCONT)


def stop(victim: Identity) -> Iterator[float]:
    """Send SIGSTOP and wait until the kernel shows the effect, or the victim is gone."""
    victim.send(signal.SIGSTOP)
    while victim.alive() and not victim.stopped():
        yield LOOK_S
