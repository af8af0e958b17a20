"""What the tests of the scenarios room share: a place of their own, the command in this process, scenarios made up."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos.faults.kill import Kill
from chaos.ledger import Ledger
from chaos.runner import Conduct
from chaos.schedule import Arming
from chaos.targets import Rank
from chaos.triggers import at_step
from chaos.watch import restore_signals
from scenarios import execute as executing
from scenarios.cli import cli
from scenarios.library.workers import KILL_WORKER
from scenarios.request import Options, resolve
from scenarios.scenario import find
from scenarios.suite import SuiteRun
from tests.scenarios.members import NAMES, Cluster, Runner
from tests.scenarios.pretended import Conducted, Script


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


@pytest.fixture
def run(place):
    """Run a suite of these scenarios with a runner; returns its record."""

    def go(runner, *names, share=True, skipped=None, **options):
        requests = [resolve(find(name), Options(out=place, **options)) for name in names or NAMES]
        directory = place / "suite"
        directory.mkdir(exist_ok=True)
        return SuiteRun("made-up", requests, runner, directory, {"seed": 0}, share, None, skipped or {}).run()

    yield go
    restore_signals()


@pytest.fixture
def fake_runs(monkeypatch):
    """The command runs nothing: members end with the codes of this runner."""

    def install(*codes):
        runner = Runner(*codes)
        monkeypatch.setattr("scenarios.cli._run_one", lambda request, as_json, quiet, pool=None: runner(request, pool))
        return runner

    monkeypatch.setattr("chaos.workload.check_own_chaos", lambda: None)
    return install


@pytest.fixture
def script(short_registry, place, monkeypatch):
    """No process is started: neither cluster nor training nor watcher; what Ray runs here besides is not seen."""
    script = Script()

    class Fake(Cluster):
        def start(self):
            script.clusters.append(self)
            if script.start_error:
                raise script.start_error
            super().start()
            (self.workspace / "w0" / "session_2" / "logs").mkdir(parents=True, exist_ok=True)

    assert set(Conduct.__dataclass_fields__) >= set(Conducted.__dataclass_fields__) - {"script", "drained"}
    monkeypatch.setattr(executing, "LocalCluster", Fake)
    monkeypatch.setattr(executing, "Conduct", lambda *arguments: script.conducted(script, *arguments))
    monkeypatch.setattr(executing, "with_data", lambda request, directory: request)
    monkeypatch.setattr(executing.psutil, "process_iter", lambda attributes: [])
    monkeypatch.setattr(Ledger, "_watch", lambda ledger, folder: None)
    yield script
    restore_signals()
