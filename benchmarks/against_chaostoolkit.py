"""The same kill and the same question, asked by Aftershock and by Chaos Toolkit, on the same workload and cluster.

Each of the two starts the reference trainer on a shared cluster, kills the worker of rank 1 after step 25 and asks:
does training come back past that step within the bound, and how long does it take? Asked twice, once with a budget
that lets the job recover, once without. The Chaos Toolkit experiment is written as its documentation teaches it: a
steady-state hypothesis, an action, a pause, the hypothesis again; it sees the job through its log, as an outsider does.
In its runs our agent rides along and fires nothing, so that the history tells the truth of both.

    python benchmarks/against_chaostoolkit.py        (about six minutes; needs the extra `bench`)
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from chaos import healing
from chaos.agent.plan import Plan
from chaos.cluster.local import LocalCluster
from chaos.exits import ExitCode
from chaos.history import History, HistoryWriter
from chaos.ledger import Ledger
from chaos.runner import Conduct
from metrics.publish import judge_run, publish
from metrics.verdict import RECORD
from scenarios.execute import record, workload
from scenarios.library.workers import KILL_WORKER
from scenarios.request import Options, Request, resolve, with_data

BOUND_S = 90.0
POLL_S = 1.0
STEP = 25
PROGRESS = re.compile(r"^step +(\d+)/", re.M)
WORKER = re.compile(r"pid=(\d+)\) world_rank=1")


# What the Chaos Toolkit experiment calls: this file is its provider module. It sees a log and pids, nothing else.


def last_step(log: str) -> int:
    """The last step that the training script has printed; 0 for none."""
    path = Path(log)
    found = PROGRESS.findall(path.read_text(errors="replace")) if path.exists() else []
    return int(found[-1]) if found else 0


def reaches(log: str, step: int, seconds: float) -> bool:
    """Probe: whether the script prints that step, or a later one, within the time."""
    end = time.monotonic() + seconds
    while last_step(log) < step:
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


def comes_back(log: str, note: str, seconds: float) -> bool:
    """Probe: whether the script says that it resumed, and then prints a step beyond the one printed before the kill.

    Without the first, lines that were on their way when the worker died would pass for progress.
    """
    before = int(Path(note).read_text().split()[1])
    end = time.monotonic() + seconds
    while time.monotonic() < end and has_not_failed(log):
        _, resumed, after = Path(log).read_text(errors="replace").partition("resumed at step")
        if resumed and any(int(step) > before for step in PROGRESS.findall(after)):
            return True
        time.sleep(POLL_S)
    return False


def has_not_failed(log: str) -> bool:
    """Probe: whether the script has not said that it failed."""
    path = Path(log)
    return path.exists() and "trainer: training failed" not in path.read_text(errors="replace")


def kill_rank_one(log: str, note: str) -> int:
    """Action: SIGKILL to the worker of rank 1, by the pid that Ray's log gives; time and last step go to a note."""
    pid = int(WORKER.findall(Path(log).read_text(errors="replace"))[-1])
    Path(note).write_text(f"{time.time_ns()} {last_step(log)}")
    os.kill(pid, 9)
    return pid


def experiment(log: Path, note: Path) -> dict[str, Any]:
    """The experiment: the job trains, rank 1 is killed, the job trains on past the step that it had reached."""

    def call(name: str, kind: str, function: str, **arguments: Any) -> dict[str, Any]:
        provider = {"type": "python", "module": "against_chaostoolkit", "func": function, "arguments": arguments}
        return {"name": name, "type": kind, "provider": provider}

    where = {"log": str(log), "note": str(note)}
    healthy = call("the job has not failed", "probe", "has_not_failed", log=str(log))
    return {
        "title": "Training survives the death of a worker",
        "description": "Kill the worker of rank 1 after step 25; training must pass the step that it had reached.",
        "steady-state-hypothesis": {"title": "Training is well", "probes": [{**healthy, "tolerance": True}]},
        "method": [
            call("step 25 is reached", "probe", "reaches", log=str(log), step=STEP, seconds=BOUND_S),
            call("kill rank 1", "action", "kill_rank_one", **where),
            call("training comes back", "probe", "comes_back", **where, seconds=BOUND_S),
        ],
        "rollbacks": [],
    }


@dataclass(frozen=True)
class Answer:
    """What a tool said. ``told_s``: recovery time; ``truth_s``: the same by the history; ``cpu_s``: the tool's own."""

    tool: str
    recovers: bool
    exit_code: int
    told_s: float | None
    truth_s: float | None
    cpu_s: float


def request(folder: Path, recovers: bool) -> Request:
    """The workload: enough steps that the kill comes in the middle; each step is printed."""
    settings = {"steps": "60", "max_failures": "1" if recovers else "0", "log_every": "1"}
    asked = resolve(
        KILL_WORKER, Options(step=STEP, settings=settings, control=False, expect=f"recovers(within={BOUND_S})")
    )
    return with_data(asked, folder)


def recovered_ns(history: History, since_ns: int) -> int | None:
    """When every rank had completed a step beyond all those before the kill, in nanoseconds since the epoch."""
    steps = history.select("step.end")
    furthest = max((e.step or 0 for e in steps if not e.attempt), default=0)
    after = [e for e in steps if e.wall_ns > since_ns and (e.step or 0) > furthest and e.attempt]
    first = {rank: min(e.wall_ns for e in after if e.rank == rank) for rank in {e.rank for e in after}}
    return max(first.values()) if len(first) == 2 else None


def ours(cluster: LocalCluster, ledger: Ledger, folder: Path, *, recovers: bool) -> Answer:
    """Aftershock: run, judge, publish."""
    asked = request(folder.parent, recovers)
    folder.mkdir()
    writer = HistoryWriter(folder)
    writer.emit("run.start", data={"schema": 1})
    for injection in asked.injections:
        writer.emit("fault.armed", data={"injection": injection.id})
    plan = Plan(run_id=ledger.run_id, directory=str(folder), injections=asked.injections)
    begin = _own_cpu()
    conduct = Conduct(folder, workload(asked, folder), plan, cluster, writer, 240.0)
    conduct.run()
    conduct.drain()
    writer.emit("run.healed", data={"errors": []})
    writer.emit("run.end")
    writer.close()
    (folder / RECORD).write_bytes(msgspec.json.encode(record(asked, ledger.run_id)))
    case, judgement = judge_run(folder)
    summary = publish(case, judgement)
    cpu = _own_cpu() - begin
    told = next((r.total_s for r in summary.recoveries if not r.missing), None)
    fired = case.history.first("fault.fired")
    assert fired is not None
    end = recovered_ns(case.history, fired.wall_ns)
    truth = None if end is None else (end - fired.wall_ns) / 1e9
    return Answer("aftershock", recovers, summary.exit_code, told, truth, cpu)


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def chaostoolkit(cluster: LocalCluster, ledger: Ledger, folder: Path, *, recovers: bool) -> Answer:
    """Chaos Toolkit: the script is started, then the experiment is run against it."""
    asked = request(folder.parent, recovers)
    folder.mkdir()
    HistoryWriter(folder).emit("run.start", data={"schema": 1})
    log, note, journal = folder / "driver.log", folder / "killed", folder / "journal.json"
    plan = Plan(run_id=ledger.run_id, directory=str(folder))
    driver = workload(asked, folder).launch(cluster.client_environment(), plan.write(), log)
    text = folder / "experiment.json"
    text.write_text(json.dumps(experiment(log, note), indent=1))
    command = [str(Path(sys.executable).parent / "chaos"), "run", "--journal-path", str(journal), str(text)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    code = done.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    driver.wait(240)
    return Answer("chaos toolkit", recovers, code, *_told_and_true(folder, note, journal), cpu)


def _told_and_true(folder: Path, note: Path, journal: Path) -> tuple[float | None, float | None]:
    """The duration of the experiment's last probe, if it succeeded; and the truth by the history."""
    killed = int(note.read_text().split()[0]) if note.exists() else 0
    end = recovered_ns(History.load(folder), killed)
    truth = None if end is None else (end - killed) / 1e9
    last = json.loads(journal.read_text())["run"][-1]
    told = last["duration"] if last.get("output") is True else None
    return told, truth


def show(answers: list[Answer]) -> None:
    """Print one row for each run."""
    table = Table(title="one kill, one question: is training back past step 25 within 90 s?", title_justify="left")
    for column in ("tool", "the job", "exit code", "told", "truth", "error", "own CPU time"):
        table.add_column(column, justify="left" if column in ("tool", "the job") else "right")
    for a in answers:
        error = "-" if a.told_s is None or a.truth_s is None else f"{a.told_s - a.truth_s:+.3f} s"
        told, truth = (("-" if s is None else f"{s:.3f} s") for s in (a.told_s, a.truth_s))
        what = "recovers" if a.recovers else "ends in error"
        table.add_row(a.tool, what, str(a.exit_code), told, truth, error, f"{a.cpu_s:.1f} s")
    Console(width=100).print(table)


def main() -> int:
    """Run all four; 0 when Aftershock's exit codes are right."""
    tools: tuple[Callable[..., Answer], ...] = (ours, chaostoolkit)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        ledger = Ledger.open(folder, uuid.uuid4().hex[:8])
        try:
            environment = workload(request(folder, recovers=True), folder).base_environment()
            cluster = LocalCluster(2, 2, ledger.workspace(), ledger, HistoryWriter(folder).emit, environment)
            cluster.start()
            answers = [
                tool(cluster, ledger, folder / f"{tool.__name__}-{recovers}", recovers=recovers)
                for recovers in (True, False)
                for tool in tools
            ]
        finally:
            left = healing.close(ledger)
    show(answers)
    mine = [a for a in answers if a.tool == "aftershock"]
    good = [a.exit_code == (ExitCode.PASS if a.recovers else ExitCode.FAIL) for a in mine]
    return 0 if all(good) and not left else 1


if __name__ == "__main__":
    sys.exit(main())
