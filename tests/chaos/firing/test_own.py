"""Faults of the user's own in a training process that has never heard of them: loaded from a copy, and fired."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos import own
from chaos.agent.plan import Injection
from chaos.faults import base
from chaos.triggers import at_step
from tests.chaos.firing.world import World

TEXT = """
import helping
from chaos.faults.base import Fault, Proof, register

@register
class Whisper(Fault):
    name = "whisper"
    effect, certifies, not_certified = "a whisper", "nothing", "anything"
    proof = Proof.TOLD

    def fire(self):
        helping.HEARD.append(__file__)
        print("whispered")
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A file of a fault, gone since the run began, and the run's copy of it beside the module that it imports."""
    monkeypatch.setattr(own, "_LOADED", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    copies = tmp_path / "run" / "sources" / "0"
    copies.mkdir(parents=True)
    (copies / "whisper.py").write_text(TEXT)
    (copies / "helping.py").write_text("HEARD = []\n")
    yield {str(tmp_path / "whisper.py"): str(copies / "whisper.py")}
    for name in ("helping", "whisper"):
        sys.modules.pop(name, None)


def test_it_is_loaded_and_fires_at_its_moment(world: Callable[..., World], sources: dict[str, str]) -> None:
    run = world(Injection(id="whisper-0", fault="whisper", rank=0, trigger=at_step(3)))
    run.plan = dataclasses.replace(run.plan, sources=sources)
    assert "whisper" not in base._REGISTER
    for step in (2, 3, 4):
        run.reach("step", step=step)
    heard = sys.modules["helping"].HEARD
    assert heard == list(sources)
    assert [(e.kind, e.step) for e in run.seen("fault.fired", "fault.failed")] == [("fault.fired", 3)]
