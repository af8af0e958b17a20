"""Training runs on one shared cluster: each in a directory of its own, judged as the command judges them."""

from __future__ import annotations

import sys
import uuid
from dataclasses import replace
from pathlib import Path

import msgspec

from chaos import healing
from chaos.agent.plan import Injection, Plan
from chaos.cluster.local import LocalCluster
from chaos.history import HistoryWriter
from chaos.ledger import Ledger, registry
from chaos.runner import Conduct
from chaos.schedule import Arming
from chaos.workload import Workload
from metrics.expectations import HEALTHY, Expectation
from metrics.publish import judge_run
from metrics.verdict import RECORD, Case, Judgement
from scenarios.execute import arguments, record, workload
from scenarios.library.workers import KILL_WORKER
from scenarios.request import Options, Request, resolve, with_data

SETTINGS = {
    "steps": "24",
    "checkpoint_every": "4",
    "poll_s": "0.1",
    "corpus_bytes": "120000",
    "max_failures": "1",
    "timeout_s": "10",
    "health_s": "10",
    "report_s": "10",
    "shutdown_s": "3",
}
"""Short runs: saved at step 4, killed after step 7, ended at step 24; time-outs that hangs can be tested with."""

DEADLINE_S = 400


class Bench:
    """A cluster of two workers with its ledger; ``control`` is the shared control run, made when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ledger = Ledger.open(folder, uuid.uuid4().hex[:8])
        self._control: Path | None = None
        self._count = 0

    def __enter__(self) -> Bench:
        workspace = self._ledger.workspace()
        writer = HistoryWriter(self.folder)
        base = workload(self.request(), self.folder).base_environment()
        self.cluster = LocalCluster(2, 2, workspace, self._ledger, writer.emit, base)
        self.cluster.start()
        return self

    def __exit__(self, *error: object) -> None:
        assert healing.close(self._ledger) == []
        assert not (registry() / self._ledger.run_id).exists()

    def request(self, step: int = 7, **settings: str) -> Request:
        """A kill-worker request with the short run's numbers."""
        asked = resolve(KILL_WORKER, Options(rank=1, step=step, settings={**SETTINGS, **settings}))
        return with_data(asked, self.folder)

    def scenario(self, *armings: Arming, expects: Expectation = HEALTHY, **settings: str) -> Request:
        """A request with these faults in one run, as many failures allowed as there are injections."""
        scenario = replace(KILL_WORKER, inject=lambda shape: armings, expects=expects)
        options = {**SETTINGS, "max_failures": str(len(armings)), **settings}
        return with_data(resolve(scenario, Options(settings=options)), self.folder)

    @property
    def control(self) -> Path:
        """Directory of the shared control run: same seed and configuration, no fault."""
        if self._control is None:
            self._control = self.train(self.request(), "control", injections=())
        return self._control

    def train(
        self,
        request: Request,
        name: str,
        injections: tuple[Injection, ...] | None = None,
        mutant: str = "",
        recovers: bool = True,
    ) -> Path:
        """Train once in a new directory, with the request's injections unless others are given."""
        self._count += 1
        directory = self.folder / f"{self._count:02d}-{name}"
        directory.mkdir()
        writer = HistoryWriter(directory)
        writer.emit("run.start", data={"schema": 1})
        injected = request.injections if injections is None else injections
        for injection in injected:
            writer.emit("fault.armed", data={"injection": injection.id})
        plan = Plan(run_id=self._ledger.run_id, directory=str(directory), injections=injected)
        program = self._program(request, directory, mutant)
        conduct = Conduct(directory, program, plan, self.cluster, writer, DEADLINE_S, recovers)
        conduct.run()
        conduct.drain()
        writer.emit("run.healed", data={"errors": []})
        writer.emit("run.end")
        writer.close()
        stored = record(request, name)
        (directory / RECORD).write_bytes(msgspec.json.encode(stored))
        return directory

    def judge(self, directory: Path, control: Path | None = None) -> tuple[Case, Judgement]:
        """Judge a run against a control run, by default the shared one."""
        (directory / "control").symlink_to(control or self.control)
        return judge_run(directory)

    @staticmethod
    def _program(request: Request, directory: Path, mutant: str) -> Workload:
        program = workload(request, directory)
        if not mutant:
            return program
        script = Path(__file__).parent.parent / "mutants" / "train.py"
        config = replace(request.config, storage=str(directory / "storage"), observer="chaos.observe")
        return replace(program, command=(sys.executable, str(script), mutant, *arguments(config)))
