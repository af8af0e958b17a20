"""From what a scenario arms to the injections of one run: every draw from the seed, nothing left open.

The same seed and the same world give the same plan, byte for byte.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from chaos.agent.plan import Injection
from chaos.exits import UsageError
from chaos.faults.base import Fault
from chaos.targets import Hit, Inventory, Target, resolve
from chaos.triggers import Trigger


@dataclass(frozen=True)
class Arming:
    """A fault, when it fires and whom it hits, before anything is drawn."""

    fault: Fault
    trigger: Trigger
    target: Target


def plan(armings: Iterable[Arming], world: Inventory, seed: int) -> tuple[Injection, ...]:
    """Draw targets and times: one injection for each firing on each victim, in the order armed.

    Raises NoTarget when a target matches nobody, UsageError when nothing would be injected.
    """
    injections: list[Injection] = []
    count: Counter[str] = Counter()
    for number, arming in enumerate(armings):
        source = random.Random(f"{seed}/{number}/{arming.fault.name}")
        for hit in resolve(arming.target, world, source):
            previous = ""
            for trigger in arming.trigger.drawn(source):
                name = f"{arming.fault.name}-{count[arming.fault.name]}"
                count[arming.fault.name] += 1
                injections.append(_injection(name, arming.fault, hit, trigger, previous))
                previous = name
    if not injections:
        raise UsageError(f"nothing would be injected with these settings and seed={seed}: allow more, or draw again")
    return tuple(injections)


def _injection(name: str, fault: Fault, hit: Hit, trigger: Trigger, previous: str) -> Injection:
    rank, node = (hit, "") if isinstance(hit, int) else (None, hit)
    values = dataclasses.asdict(fault)
    return Injection(id=name, fault=fault.name, rank=rank, node=node, trigger=trigger, values=values, follows=previous)
