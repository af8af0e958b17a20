"""The command line: help at once, one line for a mistake, and the promised exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

import pytest
from click.testing import CliRunner

from chaos.exits import ExitCode, UsageError
from chaos.workload import INSTALLATION
from scenarios.cli import cli
from scenarios.execute import open_run
from scenarios.request import Options, resolve
from scenarios.scenario import all_scenarios

HELP_S = 1.5
"""What ``--help`` may take here, in seconds, on a busy machine; the goal is 0.5."""


@pytest.fixture(autouse=True)
def own_registry(tmp_path, monkeypatch):
    """No run of anybody else is in reach, and nothing is written into the project."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def command(*arguments):
    return CliRunner().invoke(cli, arguments, prog_name="aftershock")


def process(*arguments, options=()):
    environment = {**os.environ, "PYTHONPATH": str(INSTALLATION)}
    whole = [sys.executable, *options, "-m", "aftershock", *arguments]
    return subprocess.run(whole, env=environment, capture_output=True, text=True, check=False, timeout=30)


MISTAKES = {
    "unknown scenario": ("run kill-worke", "unknown scenario 'kill-worke': did you mean 'kill-worker'?"),
    "no scenario": ("run", "Missing argument 'SCENARIO'"),
    "rank outside": ("run kill-worker --rank 9", "rank=9 is outside"),
    "step beyond the end": ("run kill-worker --step 999", "step=999 never comes"),
    "setting without a value": ("run kill-worker --set foo", "--set foo: write --set KEY=VALUE"),
    "unknown setting": ("run kill-worker --set nosuch=1", "--set nosuch=1: unknown setting"),
    "setting of a wrong type": ("run kill-worker --set steps=many", "steps is of type int"),
    "no workers": ("run kill-worker --workers 0", "--workers 0: input should be greater than 0"),
    "workers that do not divide": ("run kill-worker --workers 5", "workers=5 does not divide micro_batches=6"),
    "workers that are no number": ("run kill-worker --workers two", "'two' is not a valid integer"),
    "negative seed": ("run kill-worker --seed -1", "--seed -1: input should be"),
    "no time": ("run kill-worker --deadline 0", "--deadline 0.0: input should be greater than 0"),
    "unknown option": ("run kill-worker --nosuch", "No such option"),
    "unknown command": ("nosuch", "No such command 'nosuch'"),
    "no run directory": ("analyze nosuchdir", "nosuchdir holds no scenario.json"),
    "no run": ("analyze", "Missing argument 'RUN'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_64(mistake):
    arguments, message = MISTAKES[mistake]
    result = command(*arguments.split())
    assert (result.exit_code, result.stdout) == (64, "")
    assert result.stderr.startswith("aftershock: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_a_mistake_starts_nothing(tmp_path):
    command("run", "kill-worker", "--rank", "9")
    assert list(tmp_path.iterdir()) == []


def test_settings_may_be_written_like_options():
    result = command("run", "kill-worker", "--set", "micro-batches=5", "--set", "batch-size=x")
    assert "--set batch_size=x: batch_size is of type int" in result.stderr


def test_the_command_itself_exits_with_64_and_one_line():
    done = process("run", "kill-worker", "--rank", "9")
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.splitlines() == [
        "aftershock: rank=9 is outside the world of 2 workers: use 0 to 1, or more --workers"
    ]


@pytest.mark.parametrize("arguments", ["--help", "-h", "run --help", "analyze --help", "list --help", "heal -h"])
def test_help_is_no_mistake(arguments):
    result = command(*arguments.split())
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: aftershock ")


def test_help_comes_at_once_without_anything_heavy():
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        done = process("--help", options=("-X", "importtime"))
        times.append(time.perf_counter() - begin)
        assert done.returncode == 0
    imported = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "click" in imported
    assert imported.isdisjoint({"torch", "ray", "numpy", "pyarrow", "pydantic", "rich", "msgspec", "jinja2"})
    assert min(times) < HELP_S


def test_list_names_every_scenario():
    result = command("list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(all_scenarios())


def test_list_as_json_holds_the_same():
    listed = json.loads(command("list", "--json").stdout)
    assert [entry["name"] for entry in listed] == list(all_scenarios())
    assert all(entry["title"] and entry["expects"] for entry in listed)


def test_where_nothing_is_left_there_is_nothing_to_heal():
    result = command("heal")
    assert (result.exit_code, result.stdout) == (0, "nothing to heal\n")
    assert json.loads(command("heal", "--json").stdout) == []


def test_the_version_is_told():
    result = command("--version")
    assert result.exit_code == 0
    assert "version" in result.stdout


@pytest.mark.parametrize("error", [KeyboardInterrupt, UsageError("a mistake")])
def test_an_interrupt_and_a_mistake_have_their_own_codes(monkeypatch, error):
    monkeypatch.setattr("scenarios.request.resolve", raising(error))
    result = command("run", "kill-worker")
    expected = ExitCode.ABORTED if error is KeyboardInterrupt else ExitCode.USAGE
    assert (result.exit_code, len(result.stderr.split())) == (expected, 2 if expected is ExitCode.ABORTED else 3)


def test_a_defect_of_the_harness_is_never_a_verdict(monkeypatch):
    monkeypatch.setattr("scenarios.request.resolve", raising(RuntimeError("a defect")))
    assert command("run", "kill-worker").exit_code == ExitCode.BUG


def test_without_a_command_the_help_is_shown_as_help():
    result = command()
    assert "aftershock: Usage" not in result.output


def raising(error):
    def fails(*arguments):
        raise error

    return fails


@pytest.fixture
def short_registry(monkeypatch):
    """A registry whose path is short enough for runs."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr("tempfile.tempdir", short)
        yield


def test_a_run_directory_that_cannot_be_made_is_a_mistake(tmp_path, short_registry):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--out .*file: .*; name a directory that can be written"):
        open_run(resolve("kill-worker", Options(out=tmp_path / "file")), [])
