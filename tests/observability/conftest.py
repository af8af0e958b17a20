"""A real Prometheus and Pushgateway on loopback, in a temporary folder, for what Aftershock serves and pushes."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest
import yaml

from chaos.history import Event
from metrics import prometheus
from metrics.prometheus import SuiteFacts
from metrics.prometheus.board import Board
from metrics.prometheus.facts import facts
from metrics.prometheus.live import LiveRun
from metrics.prometheus.pushing import Gateway
from metrics.prometheus.serving import Address, MetricsServer
from metrics.summary import CheckRecord, summarize
from tests.histories import healthy
from tests.metrics.prometheus.test_textfile import handed_over
from tests.promql import RULES

NEEDED = ("prometheus", "prometheus-pushgateway")
PATIENCE_S = 60.0


def finished(directory, scenario="kill-worker", spoil=lambda run: run):
    """The facts of a synthetic run that is stored, of which all that can be known is known."""
    run = spoil(handed_over(healthy().asked(scenario=scenario)))
    run = run.again("run.end", kind="run.judged", data={"seconds": {"checkpoints": 0.5}})
    case = run.case(run.write(directory / scenario))
    summary = summarize(case, run.judged())
    stored = CheckRecord(name="checkpoints", verdict="pass", expected="", seen="", where="", evidence={})
    summary.checks.append(stored)
    return facts(case, summary)


@dataclass
class Stack:
    """What is up: where Prometheus and the Pushgateway answer, and the board that is served."""

    prometheus: str
    pushgateway: str
    board: Board

    def ask(self, path, **query):
        """The data of an answer of Prometheus' API."""
        url = f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def result(self, query):
        """The series that a query gives now."""
        return self.ask("query", query=query)["result"]

    def state(self, query):
        """What a query gives and how each target fares, for the message of a failure."""
        found = [series["metric"].get("scenario") for series in self.result(query)]
        return found, {t["labels"]["job"]: t["lastError"] or t["health"] for t in self.ask("targets")["activeTargets"]}

    def until(self, what):
        """Wait until that is true; what it last was."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := what()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def _running(*command, cwd):
    """A process of ours, ended by its own handle."""
    with (cwd / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=cwd, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(url, process, log):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"{url} did not come up: {log.read_text()}")


def _configuration(served, gateway):
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": "live", "static_configs": [{"targets": [served]}]},
            {"job_name": "pushgateway", "honor_labels": True, "static_configs": [{"targets": [gateway]}]},
        ],
    }


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Both servers, with a run that passed, one that failed, a suite, and a run that goes on; until all is scraped."""
    if lacking := [name for name in NEEDED if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(lacking)} (Debian's packages of that name)")
    folder, board = tmp_path_factory.mktemp("stack"), Board()
    board.finish(finished(folder))
    board.finish(finished(folder, "segfault", lambda run: run.change("workload.exit", code=1)))
    verdicts = {"pass": 1, "fail": 1, "unknown": 0, "skipped": 1}
    board.finish_suite(
        SuiteFacts(suite="nightly", exit_code=1, finished_s=time.time(), verdicts=verdicts, skipped=("oom",))
    )
    board.begin(live := LiveRun("hang-frozen", 40))
    live(Event(kind="run.phase", wall_ns=1, mono_ns=1, node="harness", pid=1, data={"phase": "inject"}))
    with ExitStack() as up:
        server = MetricsServer(Address("127.0.0.1", 0), board.registry)
        up.callback(server.close)
        own, gateway = (f"127.0.0.1:{_free_port()}" for _ in range(2))
        (folder / "prometheus.yml").write_text(yaml.safe_dump(_configuration(str(server.address), gateway)))
        pushing = up.enter_context(
            _running(
                "prometheus-pushgateway",
                f"--web.listen-address={gateway}",
                f"--persistence.file={folder / 'pushed'}",  # Debian's has one for all by default
                "--log.level=warn",
                cwd=folder,
            )
        )
        scraping = up.enter_context(
            _running(
                "prometheus",
                "--config.file=prometheus.yml",
                f"--web.listen-address={own}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--enable-feature=exemplar-storage",
                "--log.level=warn",
                cwd=folder,
            )
        )
        made = Stack(f"http://{own}", f"http://{gateway}", board)
        _ready(made.pushgateway, pushing, folder / "prometheus-pushgateway.log")
        _ready(made.prometheus, scraping, folder / "prometheus.log")
        Gateway.parse(made.pushgateway).push(prometheus.registry(finished(folder, "pushed")), scenario="pushed")
        recorded = "scenario:aftershock_recovery_seconds:p95"
        assert made.until(lambda: len(made.result(recorded)) == 3), made.state(recorded)
        yield made
