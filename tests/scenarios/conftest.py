"""What the tests of the scenarios room share: a place of their own, the command in this process, scenarios made up."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos.faults.kill import Kill
from chaos.schedule import Arming
from chaos.targets import Rank
from chaos.triggers import at_step
from scenarios.cli import cli
from scenarios.library.workers import KILL_WORKER
from scenarios.request import Options, resolve


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """No run of anybody else is in reach, and nothing is written into the project."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def short_registry(monkeypatch):
    """A registry whose path is short enough for runs."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        yield Path(short)


@pytest.fixture
def command():
    """The command with these arguments, in this process."""
    return lambda *arguments: CliRunner().invoke(cli, arguments, prog_name="aftershock")


@pytest.fixture
def armed():
    """A scenario that is kill-worker but for what is given; by default it kills once, at ``trigger``, on ``target``."""

    def make(trigger=at_step(25), target=Rank(1), fault=Kill(), **changes):  # noqa: B008
        changes.setdefault("inject", lambda shape: (Arming(fault, trigger, target),))
        return dataclasses.replace(KILL_WORKER, **changes)

    return make


@pytest.fixture
def requested(armed):
    """The request of such a scenario."""
    return lambda *parts, settings=None, **options: resolve(armed(*parts), Options(settings=settings or {}, **options))
