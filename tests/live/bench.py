"""Training runs on one shared cluster: each in a directory of its own, judged as the command judges them."""

from __future__ import annotations

import dataclasses
import sys
import uuid
from pathlib import Path

import msgspec

from chaos.agent.plan import Injection, Plan
from chaos.cluster.local import LocalCluster
from chaos.history import HistoryWriter
from chaos.ledger import Ledger, registry
from chaos.runner import Conduct
from chaos.workload import Workload
from metrics.publish import judge_run
from metrics.verdict import RECORD, Case, Judgement
from scenarios.execute import arguments, record, workload
from scenarios.request import Options, Request, resolve, with_data

SETTINGS = {"steps": "9", "checkpoint_every": "4", "poll_s": "0.1", "corpus_bytes": "60000", "max_failures": "1"}
"""Short runs: saved at step 4, killed after step 7, ended at step 9."""

DEADLINE_S = 240


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
        assert self._ledger.close() == []
        assert not (registry() / self._ledger.run_id).exists()

    def request(self, step: int = 7, **settings: str) -> Request:
        """A kill-worker request with the short run's numbers."""
        asked = resolve("kill-worker", Options(rank=1, step=step, settings={**SETTINGS, **settings}))
        return with_data(asked, self.folder)

    @property
    def control(self) -> Path:
        """Directory of the shared control run: same seed and configuration, no fault."""
        if self._control is None:
            self._control = self.train(self.request(), "control", injections=())
        return self._control

    def train(
        self, request: Request, name: str, injections: tuple[Injection, ...] | None = None, mutant: str = ""
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
        conduct = Conduct(directory, program, plan, self.cluster, writer, DEADLINE_S)
        conduct.run()
        conduct.drain()
        writer.emit("run.healed", data={"errors": []})
        writer.emit("run.end")
        writer.close()
        stored = record(request, name)
        (directory / RECORD).write_bytes(msgspec.json.encode(stored))
        return directory

    def judge(self, directory: Path) -> tuple[Case, Judgement]:
        """Judge a run against the shared control run."""
        (directory / "control").symlink_to(self.control)
        return judge_run(directory)

    @staticmethod
    def _program(request: Request, directory: Path, mutant: str) -> Workload:
        program = workload(request, directory)
        if not mutant:
            return program
        script = Path(__file__).parent.parent / "mutants" / "train.py"
        config = dataclasses.replace(request.config, storage=str(directory / "storage"), observer="chaos.observe")
        return dataclasses.replace(program, command=(sys.executable, str(script), mutant, *arguments(config)))
