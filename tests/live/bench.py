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
from chaos.history import History, HistoryWriter
from chaos.ledger import TTL_S, Ledger, registry
from chaos.runner import Conduct
from chaos.schedule import Arming
from chaos.workload import Workload
from metrics.expectations import HEALTHY, Expectation
from metrics.publish import judge_run
from metrics.verdict import RECORD, Case, Judgement
from scenarios.execute import record, workload
from scenarios.library.workers import KILL_WORKER
from scenarios.program import arguments
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

CONTROL = "control-"
"""What the name of a control run begins with."""


class Bench:
    """A cluster with its ledger, by default of two workers, else as a request needs it.

    ``controls``: directories of control runs, by what they serve for; each is made when first asked for.
    """

    def __init__(self, folder: Path, needs: Request | None = None, controls: dict[str, Path] | None = None) -> None:
        self.folder = folder
        self.controls = {} if controls is None else controls
        self._needs = needs or self.request()
        self._ledger = Ledger.open(folder, uuid.uuid4().hex[:8])
        self._writer = HistoryWriter(folder)
        self._count = 0

    def __enter__(self) -> Bench:
        shape, scenario = self._needs.shape, self._needs.scenario
        self.cluster = LocalCluster(
            shape.node_count,
            shape.cpus_per_node,
            self._ledger.workspace(),
            self._ledger,
            self._writer.emit,
            workload(self._needs, self.folder).base_environment(),
            scenario.node_environment(shape),
        )
        try:
            self.cluster.start()
        except BaseException:
            self.__exit__()
            raise
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
        """Directory of the control run of ``request``."""
        return self.control_of(self.request())

    def control_of(self, request: Request, program: str = "") -> Path:
        """Directory of a run without a fault that trains like a request, of the reference trainer or another program.

        Raises RuntimeError when it does not end well.
        """
        key = f"{request.workload_key}{'-' * bool(program)}{program}"
        if key not in self.controls:
            made = self.train(request.undisturbed, CONTROL + key, injections=(), program=program)
            if not is_sound(made):
                raise RuntimeError(f"the control run in {made} did not end well, see its logs/driver.log")
            self.controls[key] = made
        return self.controls[key]

    def train(
        self,
        request: Request,
        name: str,
        injections: tuple[Injection, ...] | None = None,
        program: str = "",
        recovers: bool = True,
    ) -> Path:
        """Train once in a new directory, with the request's injections unless others are given."""
        self._ledger.extend(TTL_S)
        if any(node.lost for node in self.cluster.nodes):
            self.cluster.restore()
        self._count += 1
        directory = self.folder / f"{self._count:02d}-{name}"
        directory.mkdir()
        writer = HistoryWriter(directory)
        writer.emit("run.start", data={"schema": 1})
        injected = request.injections if injections is None else injections
        for injection in injected:
            writer.emit("fault.armed", data={"injection": injection.id})
        plan = Plan(run_id=self._ledger.run_id, directory=str(directory), injections=injected)
        deadline_s = max(DEADLINE_S, request.deadline_s)
        script = self._script(request, directory, program)
        conduct = Conduct(directory, script, plan, self.cluster, writer, deadline_s, recovers)
        self.cluster.emit = writer.emit
        try:
            conduct.run()
        finally:
            self.cluster.emit = self._writer.emit
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
    def _script(request: Request, directory: Path, program: str) -> Workload:
        """The reference trainer, or a program of the catalogue."""
        script = workload(request, directory)
        if not program:
            return script
        file = Path(__file__).parent.parent / "mutants" / "train.py"
        config = replace(request.config, storage=str(directory / "storage"), observer="chaos.observe")
        return replace(script, command=(sys.executable, str(file), program, *arguments(config)))


def is_sound(directory: Path) -> bool:
    """Whether a run ended well."""
    ended = History.load(directory).first("workload.exit")
    return ended is not None and ended.data["code"] == 0
