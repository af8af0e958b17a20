"""The command line: help at once, one line for a mistake, and the promised exit codes."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
import time

import click
import pytest

from chaos.exits import ExitCode, UsageError
from chaos.targets import NoTarget
from chaos.workload import INSTALLATION
from scenarios.cli import cli
from scenarios.execute import open_run
from scenarios.request import Options, resolve
from scenarios.scenario import find

HELP_S = 1.5
"""What ``--help`` may take of the processor, seconds, imports traced; the goal is 0.5 without."""

NAMES = cli.list_commands(click.Context(cli))

PATIENCE_S = 280
"""For a process of its own on a machine where much else runs."""


def process(*arguments, options=()):
    environment = {**os.environ, "PYTHONPATH": str(INSTALLATION)}
    whole = [sys.executable, *options, "-m", "aftershock", *arguments]
    return subprocess.run(whole, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def spent():
    """Seconds of the processor that processes of ours have taken until their end."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


# Mistakes

MISTAKES = {
    "unknown scenario": ("run kill-worke", "unknown scenario 'kill-worke': did you mean 'kill-worker'?"),
    "unknown suite": ("run kill-every-phas", "did you mean 'kill-every-phase'?"),
    "no scenario": ("run", "Missing argument 'SCENARIO...'"),
    "unknown among several": ("run kill-worker segfaul", "unknown scenario 'segfaul': did you mean 'segfault'?"),
    "resume of one": ("run kill-worker --resume", "kill-worker is a single scenario; only a suite can be resumed"),
    "resume of nothing": ("run preprod --resume", "no run of preprod below runs; leave --resume out"),
    "least above most": ("run drop-node-elastic --workers 1", "min_workers=2 is above workers=1: use at most 1"),
    "too few nodes": ("run kill-worker --set nodes=1", "nodes=1 cannot hold 2 workers, 1 on each: use 2 or more"),
    "rank outside": ("run kill-worker --rank 9", "rank=9 is outside the world of 2 workers: use 0 to 1"),
    "rank outside in a suite": ("run kill-every-phase --rank 9", "rank=9 is outside the world of 2 workers"),
    "step beyond the end": ("run kill-worker --step 999", "step=999 never comes"),
    "save beyond the end": (
        "run missing-report --set steps=15 --set checkpoint_every=15",
        "step=30 never comes",
    ),
    "attempt beyond the budget": ("run kill-in-restore --set max_failures=0", "attempt=1 never comes: the budget"),
    "setting without a value": ("run kill-worker --set foo", "--set foo: write --set KEY=VALUE"),
    "unknown setting": ("run kill-worker --set nosuch=1", "--set nosuch=1: unknown setting"),
    "setting of a wrong type": ("run kill-worker --set steps=many", "steps is of type int"),
    "time-out out of range": ("run hang-frozen --set timeout_s=0", "timeout_s=0 must be at least 1"),
    "no workers": ("run kill-worker --workers 0", "--workers 0: input should be greater than 0"),
    "workers that do not divide": ("run kill-worker --workers 5", "workers=5 does not divide micro_batches=6"),
    "workers that are no number": ("run kill-worker --workers two", "'two' is not a valid integer"),
    "negative seed": ("run kill-worker --seed -1", "--seed -1: input should be"),
    "no time": ("run kill-worker --deadline 0", "--deadline 0.0: input should be greater than 0"),
    "endless time": ("run kill-worker --deadline inf --dry-run", "--deadline inf: "),
    "unknown option": ("run kill-worker --nosuch", "No such option"),
    "unknown command": ("nosuch", "No such command 'nosuch'"),
    "unknown list": ("list nosuch", "'nosuch' is not one of 'scenarios', 'faults'"),
    "no run directory": ("analyze nosuchdir", "nosuchdir holds no scenario.json"),
    "no run": ("analyze", "Missing argument 'RUN'"),
}

EXPECTED_BADLY = {
    "recover(within=60)": "unknown word 'recover': did you mean 'recovers'?",
    "zzz()": "unknown word 'zzz': known are recovers, restarts, ",
    "recovers": "write recovers()",
    "recovers(60)": "'60': name the value, as in within=60 or steps<=10",
    "recovers(withn=60)": "recovers knows no 'withn': it takes within",
    "completes(steps<=1)": "completes knows no 'steps': it takes nothing",
    "recovers(within='60')": "recovers(within='60'): within is a number",
    "recovers(within=-1)": "-1",
    "recovers(within=1e999)": "within",
    "fails(error=3)": "fails(error=3): error is a text in quotes",
    "fails()": "fails needs a value for 'error'",
    "restarts(times=True)": "times is a whole number",
    "loses(steps<10)": "steps < 10: write steps <= 10",
    "loses(steps>=10)": "write steps <= 10",
    "restarts(times<=2)": "times <= 2: write times == 2",
    "recovers() and completes()": "is not understood; join words such as recovers(within=60) with & or |",
    "recovers() & ": "write for example 'recovers(within=60)'",
    "__import__('os')": "unknown word '__import__'",
    "recovers(within=steps)": "'steps' is no number or text",
    " ": "write for example 'recovers(within=60)'",
}


def is_one_line(result, code, message):
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("aftershock: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_64(command, mistake):
    arguments, message = MISTAKES[mistake]
    is_one_line(command(*arguments.split()), ExitCode.USAGE, message)


@pytest.mark.parametrize("text", EXPECTED_BADLY)
def test_an_expectation_that_is_not_understood_is_one_line_and_64(command, text):
    result = command("run", "kill-worker", "--dry-run", "--expect", text)
    is_one_line(result, ExitCode.USAGE, EXPECTED_BADLY[text])
    assert f"--expect {text!r}: " in result.stderr


def test_a_mistake_in_an_expectation_is_the_same_for_analyze(command):
    is_one_line(command("analyze", "nosuch", "--expect", "zzz()"), ExitCode.USAGE, "unknown word 'zzz'")


def test_a_target_that_matches_nobody_is_one_line_and_4(command):
    result = command("run", "oom-worker", "--workers", "1")
    is_one_line(result, ExitCode.NOT_INJECTED, "no target matched: a worker of node w1, in a world of 1 workers")


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    "arguments",
    ["kill-worker --rank 9", "oom-worker --workers 1", "kill-worker --expect zzz", "kill-every-phase --rank 9"],
)
def test_a_mistake_starts_nothing(command, place, arguments, dry):
    assert command("run", *arguments.split(), *dry).exit_code in (ExitCode.USAGE, ExitCode.NOT_INJECTED)
    assert list(place.iterdir()) == []


def test_settings_may_be_written_like_options(command):
    result = command("run", "kill-worker", "--set", "micro-batches=5", "--set", "batch-size=x")
    assert "--set batch_size=x: batch_size is of type int" in result.stderr


@pytest.mark.timeout(PATIENCE_S + 20)
def test_the_command_itself_exits_with_64_and_one_line():
    done = process("run", "kill-worker", "--rank", "9")
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.splitlines() == [
        "aftershock: rank=9 is outside the world of 2 workers: use 0 to 1, or more --workers"
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt, ExitCode.ABORTED),
        (UsageError("a mistake"), ExitCode.USAGE),
        (NoTarget("nobody"), ExitCode.NOT_INJECTED),
    ],
    ids=lambda v: str(v),
)
def test_an_interrupt_and_a_mistake_have_their_own_codes(command, monkeypatch, error, code):
    monkeypatch.setattr("scenarios.request.resolve", raising(error))
    result = command("run", "kill-worker")
    assert (result.exit_code, len(result.stderr.strip().splitlines())) == (code, 1)


def test_a_defect_of_the_harness_is_never_a_verdict(command, monkeypatch):
    monkeypatch.setattr("scenarios.request.resolve", raising(RuntimeError("a defect")))
    result = command("run", "kill-worker")
    assert result.exit_code == ExitCode.BUG
    assert result.stderr.splitlines()[-1] == "aftershock: a defect of the harness: RuntimeError('a defect')"


def raising(error):
    def fails(*arguments):
        raise error

    return fails


# Help


@pytest.mark.parametrize("arguments", ["--help", "-h", *(f"{name} --help" for name in NAMES), "heal -h"])
def test_help_is_no_mistake(command, arguments):
    result = command(*arguments.split())
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: aftershock ")


@pytest.mark.timeout(PATIENCE_S + 20)
def test_help_comes_at_once_without_anything_heavy():
    times = []
    for _ in range(3):
        before = spent()
        done = process("--help", options=("-X", "importtime"))
        times.append(spent() - before)
        assert done.returncode == 0
    imported = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "click" in imported
    assert imported.isdisjoint({"torch", "ray", "numpy", "pyarrow", "pydantic", "rich", "msgspec", "jinja2"})
    assert min(times) < HELP_S


def test_every_example_of_the_help_can_be_planned(command, place):
    (place / "train.py").touch()
    lines = [line.strip() for line in command("run", "--help").stdout.splitlines()]
    examples = [line for line in lines if line.startswith("aftershock run ")]
    assert len(examples) >= 5
    for example in examples:
        _, run, *words = shlex.split(example)
        result = command(run, "--dry-run", *words)
        assert result.exit_code == ExitCode.PASS, (example, result.output)


def test_the_version_is_told(command):
    result = command("--version")
    assert result.exit_code == 0
    assert "version" in result.stdout


def test_without_a_command_the_help_is_shown_as_help(command):
    result = command()
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: aftershock")


# What is in place


def test_where_nothing_is_left_there_is_nothing_to_heal(command):
    result = command("heal")
    assert (result.exit_code, result.stdout) == (0, "nothing to heal\n")
    assert json.loads(command("heal", "--json").stdout) == []


def test_where_nothing_is_left_nothing_is_in_place(command):
    result = command("status")
    assert (result.exit_code, result.stdout) == (0, "nothing is in place\n")
    assert json.loads(command("status", "--json").stdout) == []


def left(place, run="deadbeef", entries=()):
    """What a harness that is dead now left of a run: its working directory and its ledger."""
    folder = place / f"aftershock-{os.getuid()}" / run
    folder.mkdir(parents=True)
    directory = place / "run"
    directory.mkdir()
    nobody = {"pid": 2**22 + 1, "start": 1}
    head = {"schema": 1, "run": run, "owner": nobody, "opened": time.time() - 100, "ttl_s": 400.0}
    lines = [head, {"entry": 0, "kind": "directory", "path": str(folder)}, *entries]
    (directory / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "ledger").write_text(json.dumps({"ledger": str(directory / "ledger.jsonl"), **nobody}))
    return folder


def test_status_shows_what_a_dead_harness_has_left_and_touches_nothing(command, place):
    folder = left(place, entries=[{"entry": 1, "kind": "injection", "injection": "kill-0", "fault": "kill"}])
    lines = command("status").stdout.splitlines()
    assert lines[0].startswith("run deadbeef: left by a dead harness, ")
    assert f"  open: directory {folder}" in lines
    assert "  open: injection kill kill-0" in lines
    (told,) = json.loads(command("status", "--json").stdout)
    assert (told["run_id"], told["processes"], told["stopped"]) == ("deadbeef", [], [])
    assert 290 < told["left_s"] <= 300
    assert folder.exists()


def test_heal_removes_what_a_dead_harness_has_left(command, place):
    folder = left(place)
    assert command("heal").stdout == "run deadbeef: healed\n"
    assert not folder.exists()
    assert command("status").stdout == "nothing is in place\n"


def test_what_cannot_be_undone_exits_with_5(command, place):
    left(place, entries=[{"entry": 1, "kind": "directory", "path": str(place)}])
    result = command("heal")
    assert result.exit_code == ExitCode.NOT_HEALED
    assert result.stdout.startswith("run deadbeef: not healed\n  directory 1: ")
    assert place.exists()


def test_a_run_directory_that_cannot_be_made_is_a_mistake(place, short_registry):
    (place / "file").touch()
    with pytest.raises(UsageError, match=r"--out .*file: .*; name a directory that can be written"):
        open_run(resolve(find("kill-worker"), Options(out=place / "file")), [])
