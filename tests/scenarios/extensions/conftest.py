"""What the tests of users' own files share: registers that forget afterwards, and files in the test's place."""

from __future__ import annotations

import sys
import textwrap

import pytest

from chaos import own as loading
from chaos.faults import base
from metrics import terms
from scenarios import extensions, scenario

SCENARIO = """
    from scenarios.words import HEALTHY, Arming, Exit, Rank, Scenario, at_step, recovers, register

    register(
        Scenario(
            name="leave",
            title="Rank 0 leaves with exit code 3.",
            inject=lambda shape: (Arming(Exit(code=3), at_step(12), Rank(0)),),
            expects=HEALTHY.but(recovers(within=60)),
        )
    )
"""

FAULT = """
    import os
    from chaos.faults.base import Fault, Proof, register

    @register
    class Vanish(Fault):
        \"\"\"Leave.\"\"\"

        name = "vanish"
        effect = "the process has left"
        certifies = "that a job survives"
        not_certified = "the loss of a machine"
        proof = Proof.EXIT

        def fire(self) -> None:
            \"\"\"Leave, here.\"\"\"
            os._exit(9)
"""

CHECK = """
    from scenarios.words import Case, Finding, Verdict, check

    @check
    def few_events(case: Case, most: int = 100) -> Finding:
        \"\"\"The history is no longer than that.\"\"\"
        print("looking")
        seen = len(list(case.history))
        verdict = Verdict.PASS if seen <= most else Verdict.FAIL
        return Finding("few-events", verdict, f"at most {most} events", f"{seen} events")
"""


@pytest.fixture(autouse=True)
def forget(place, monkeypatch):
    """What a test loads is forgotten after it, or when it calls this, as a fresh process would not know it."""
    extensions._known()
    registers = base._REGISTER, scenario._REGISTER, terms.TERMS, loading._LOADED, extensions._TAKEN
    known, modules = [dict(register) for register in registers], set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def clear():
        for register, before in zip(registers, known, strict=True):
            register.clear()
            register.update(before)
        for name in set(sys.modules) - modules:
            file = str(getattr(sys.modules[name], "__file__", ""))
            if name.startswith("own_") or file.startswith(str(place)):
                del sys.modules[name]

    yield clear
    clear()


@pytest.fixture
def write(place):
    """Write a file into the test's place; returns its path."""

    def make(name, text):
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).strip() + "\n")
        return path

    return make


@pytest.fixture
def files(write):
    """A scenario, a fault and a check of somebody's own, in ``leave.py``, ``vanish.py`` and ``few.py``."""
    return write("leave.py", SCENARIO), write("vanish.py", FAULT), write("few.py", CHECK)
