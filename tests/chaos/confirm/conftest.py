"""Fixtures of the tests of confirming."""

from __future__ import annotations

import dataclasses

import pytest

from chaos.agent.plan import Injection
from chaos.confirm import Confirm
from chaos.triggers import at_step

SECOND = 10**9
START = 1000 * SECOND


@pytest.fixture
def observe(plan, writer):
    """Arm faults by name and settings, each an injection ``NAME-0``; returns the observer."""

    def arm(**faults):
        injections = tuple(
            Injection(id=f"{name}-0", fault=name, rank=1, trigger=at_step(3), values=values)
            for name, values in ((name.replace("_", "-"), values) for name, values in faults.items())
        )
        return Confirm(dataclasses.replace(plan, injections=injections), writer)

    return arm


@pytest.fixture
def fired(event):
    """A fault that its victim, rank 1 in attempt 0, has fired after step 3."""

    def make(name, *, wall=START, pid=7, **fields):
        data = {"injection": f"{name}-0", "fault": name, "phase": "step", "node": "w0"}
        return event("fault.fired", wall=wall, pid=pid, **{"attempt": 0, "rank": 1, "step": 3, **fields}, data=data)

    return make


@pytest.fixture
def gone(event):
    """The exit of a process, some seconds after the fault."""

    def make(*, pid=7, after=0.01, seen="at once", cause=""):
        wall = START + round(after * SECOND)
        return event("process.exit", wall=wall, attempt=0, rank=1, data={"pid": pid, "seen": seen, "cause": cause})

    return make
