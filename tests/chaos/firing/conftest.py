"""Fixtures of the tests of firing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.agent.plan import NODE
from chaos.faults import base
from chaos.faults.base import register
from tests.chaos.firing.world import NOTED, Note, NoteHere, NoteTogether, World


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The faults above are known in this module only; what they have noted in one test."""
    monkeypatch.setattr(base, "_REGISTER", base.all_faults())
    for fault in (Note, NoteHere, NoteTogether):
        register(fault)
    monkeypatch.delenv(NODE, raising=False)
    NOTED.clear()
    yield NOTED


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    """Make a run of some injections, or of armings."""
    return functools.partial(World, tmp_path / "run")
