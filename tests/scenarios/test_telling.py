"""``--serve-metrics`` and ``--push``: what a run tells while it goes on and when it is over, and what that may cost."""

from __future__ import annotations

import socket
import urllib.request

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from chaos.exits import ExitCode
from chaos.history import Event
from metrics.prometheus import Board
from metrics.prometheus.pushing import Gateway
from metrics.prometheus.serving import Address, MetricsServer
from scenarios import telling
from scenarios.telling import Teller
from tests.metrics.prometheus.conftest import Samples
from tests.scenarios.members import FAIL, PASS, summary
from tests.scenarios.pretended import Conducted

UNREACHABLE = "http://127.0.0.1:1"


@pytest.fixture
def read():
    return lambda registry: Samples(registry.collect())


@pytest.fixture
def judged(monkeypatch):
    """Every run is judged a pass; with ``by``, as that says."""

    def judge(by=lambda name: PASS):
        def verdict(directory, fresh):
            name = next(n for n in ("kill-worker", "segfault") if n in directory.name)
            return summary(name, by(name))

        monkeypatch.setattr("scenarios.cli._judge", verdict)

    monkeypatch.setattr("chaos.workload.check_own_chaos", lambda: None)
    monkeypatch.setattr("scenarios.doctor.require", lambda scenario: None)
    judge()
    return judge


@pytest.fixture
def pushed(monkeypatch):
    """What is pushed: the group and the samples of each push; an error in ``trouble`` is raised instead."""

    class Pushed(list):
        trouble = None

    found = Pushed()

    def push(gateway, registry, **group):
        if found.trouble:
            raise found.trouble
        found.append((group, Samples(registry.collect())))

    monkeypatch.setattr(Gateway, "push", push)
    return found


@pytest.fixture
def scraped(monkeypatch, script):
    """The server is scraped once in the middle of each run; nobody is waited for in the end. Its samples so far."""
    found, servers = [], []
    make = MetricsServer.__init__

    def made(server, address, registry):
        make(server, address, registry)
        servers.append(server)

    class Scraping(Conducted):
        def run(self):
            self.writer.emit("run.phase", data={"phase": "inject"})
            found.append(scrape(servers[-1]))
            return super().run()

    monkeypatch.setattr(MetricsServer, "__init__", made)
    monkeypatch.setattr(MetricsServer, "wait_for_last_scrape", lambda server: found.append(scrape(server)))
    script.conducted = Scraping
    return found


def scrape(server):
    with urllib.request.urlopen(server.url, timeout=60) as answer:
        return Samples(text_string_to_metric_families(answer.read().decode()))


# Options


def test_the_address_is_said_before_the_run_and_the_server_is_gone_after_it(command, script, judged, monkeypatch):
    result = command("run", "kill-worker", "--quiet", "--no-control", "--serve-metrics", "0")
    assert result.exit_code == ExitCode.PASS
    told = next(line for line in result.stderr.splitlines() if line.startswith("metrics: http://127.0.0.1:"))
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(told.split(":")[3].removesuffix("/metrics")))) != 0


def test_a_port_in_use_is_64_before_anything_is_started(command, script, judged, place):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = command("run", "kill-worker", "--serve-metrics", str(port))
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert result.stderr.count("\n") == 1
    assert f"--serve-metrics 127.0.0.1:{port}: another process listens there; name another port" in result.stderr
    assert (script.conducts, list(place.glob("runs/*"))) == ([], [])


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--serve-metrics", "http://x", "write a port, 0 to 65535, or HOST:PORT"),
        ("--push", "localhost:9091", "write the URL of a Pushgateway"),
    ],
)
def test_a_value_that_is_not_understood_is_64_in_a_dry_run_too(option, value, message, command):
    result = command("run", "kill-worker", "--dry-run", option, value)
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert f"{option} {value}: {message}" in result.stderr


def test_a_dry_run_opens_nothing(command):
    result = command("run", "kill-worker", "--dry-run", "--serve-metrics", "0", "--push", UNREACHABLE)
    assert result.exit_code == ExitCode.PASS
    assert "metrics:" not in result.stderr


def test_without_the_options_nobody_is_told(command, script, judged, monkeypatch):
    monkeypatch.setattr(Board, "__init__", lambda board: pytest.fail("a board was made"))
    assert command("run", "kill-worker", "--quiet", "--no-control").exit_code == ExitCode.PASS


# A run


def test_a_run_is_shown_while_it_goes_on_and_its_verdict_after_it(command, script, judged, scraped):
    judged(lambda name: FAIL)
    result = command("run", "kill-worker", "--quiet", "--no-control", "--serve-metrics", "0")
    assert result.exit_code == ExitCode.FAIL
    during, after = scraped
    assert (during.at("run_in_progress"), during.at("run_phase", phase="inject")) == (1, 1)
    assert during.at("run_target_step") == 40
    assert during.at("faults_armed_total", fault="kill") == 1
    assert during.named("verdict") == []
    assert (after.at("run_in_progress"), after.at("verdict", verdict="fail"), after.at("exit_code")) == (0, 1, 1)
    assert after.named("run_phase") == []


def test_the_metrics_of_a_run_are_pushed_by_its_scenario(command, script, judged, pushed):
    result = command("run", "kill-worker", "--quiet", "--no-control", "--push", "http://h:9091")
    assert result.exit_code == ExitCode.PASS
    ((group, samples),) = pushed
    assert group == {"scenario": "kill-worker"}
    assert samples.at("verdict", verdict="pass") == 1
    assert samples.named("run_in_progress") == []


@pytest.mark.parametrize("code", [PASS, FAIL])
def test_a_gateway_that_fails_is_a_warning_and_changes_no_verdict(code, command, script, judged, pushed):
    judged(lambda name: code)
    pushed.trouble = ConnectionRefusedError(111, "Connection refused")
    result = command("run", "kill-worker", "--quiet", "--no-control", "--push", "http://me:secret@h:9091")
    assert result.exit_code == code
    (line,) = [line for line in result.stderr.splitlines() if "warning: the metrics" in line]
    assert "the metrics of kill-worker could not be told to http://h:9091: " in line
    assert line.endswith("Connection refused; the verdict stands")
    assert "secret" not in result.stderr + result.stdout


def test_a_defect_of_the_exporter_is_a_warning_too(command, script, judged, monkeypatch):
    monkeypatch.setattr("metrics.prometheus.facts.facts", lambda case, summary: 1 / 0)
    result = command("run", "kill-worker", "--quiet", "--no-control", "--serve-metrics", "0")
    assert result.exit_code == ExitCode.PASS
    assert "could not be told: division by zero; the verdict stands" in result.stderr


def test_an_error_while_a_run_is_shown_ends_the_showing_and_not_the_run(capsys):
    told = telling.Telling(Teller(Board()), live=lambda event: 1 / 0)
    event = Event(kind="step.end", wall_ns=1, mono_ns=1, node="n", pid=1)
    told(event)
    told(event)
    (line,) = capsys.readouterr().err.splitlines()
    assert "warning: the progress of the run could not be told: step.end: ZeroDivisionError" in line


def test_a_run_that_could_not_be_stored_is_over_for_the_board(requested, read):
    board = Board()
    with pytest.raises(RuntimeError), Teller(board).of(requested()):
        assert read(board.registry).named("run_in_progress") == [1]
        raise RuntimeError
    assert read(board.registry).named("run_in_progress") == [0]


def test_ctrl_c_cuts_the_wait_for_a_last_scrape_short_and_the_server_is_closed(monkeypatch):
    def interrupted(server):
        raise KeyboardInterrupt

    monkeypatch.setattr(MetricsServer, "wait_for_last_scrape", interrupted)
    board = Board()
    server = MetricsServer(Address("127.0.0.1", 0), board.registry)
    Teller(board, server).close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.address.port)) != 0


def test_outside_a_command_nobody_is_told():
    assert click.get_current_context(silent=True) is None
    assert telling.current() == Teller()


# A suite


def test_the_members_of_a_suite_are_told_by_one_server_and_pushed_one_by_one(command, script, judged, scraped, pushed):
    arguments = ("--quiet", "--no-control", "--serve-metrics", "0", "--push", "http://h:9091")
    result = command("run", "kill-worker", "segfault", *arguments)
    assert result.exit_code == ExitCode.PASS
    assert result.stderr.count("metrics: http://") == 1
    *_, second, after = scraped
    assert second.at("verdict", verdict="pass") == 1
    assert second["aftershock_run_in_progress", frozenset({("scenario", "segfault")})] == 1
    assert len(after.named("exit_code")) == 2
    assert after["aftershock_suite_exit_code", frozenset({("suite", "selection")})] == 0
    assert [group for group, _ in pushed] == [
        {"scenario": "kill-worker"},
        {"scenario": "segfault"},
        {"suite": "selection"},
    ]


def test_a_suite_leaves_one_file_with_what_its_members_left(command, script, judged, place, monkeypatch):
    def verdict(directory, fresh):
        name = next(n for n in ("kill-worker", "segfault") if n in directory.name)
        (directory / "metrics.prom").write_text(f'aftershock_exit_code{{scenario="{name}"}} 0\n')
        return summary(name)

    monkeypatch.setattr("scenarios.cli._judge", verdict)
    assert command("run", "kill-worker", "segfault", "--quiet", "--no-control").exit_code == ExitCode.PASS
    (file,) = place.glob("runs/*/metrics.prom")
    samples = Samples(text_string_to_metric_families(file.read_text()))
    assert len(samples.named("exit_code")) == 2
    verdicts = {dict(labels)["verdict"]: v for (n, labels), v in samples.items() if n == "aftershock_suite_scenarios"}
    assert verdicts == {"pass": 2, "fail": 0, "unknown": 0, "skipped": 0}
