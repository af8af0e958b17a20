"""The program under test: the reference trainer, or the command that follows ``--``."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from chaos.exits import ExitCode, UsageError
from scenarios.program import Script
from scenarios.request import Options, resolve_script
from scenarios.scenario import find
from tests.scenarios.test_cli import is_one_line


@pytest.fixture
def script(place):
    """A training script in the present folder."""
    (place / "train.py").write_text("print('trains')\n")
    return place / "train.py"


def test_a_script_runs_where_the_user_stands_with_what_the_user_has(script, tmp_path):
    program = Script.of(("python", "train.py", "--epochs", "3"))
    assert program.words == (sys.executable, "train.py", "--epochs", "3")
    workload = program.workload(tmp_path, {"RAY_X": "1"}, 2, 40)
    assert (workload.command, workload.cwd, workload.isolated) == (program.words, Path.cwd(), False)
    assert workload.environment == {"RAY_X": "1"}


def test_any_command_may_start_it(script):
    assert Script.of(("env", "MODE=fast", "train.py")).words[0] == "env"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("pythonn", "train.py"), "there is no command 'pythonn'"),
        (("python", "-u", "trian.py"), "there is no file trian.py in "),
    ],
)
def test_a_command_or_a_script_that_is_not_there_is_refused(script, words, why):
    with pytest.raises(UsageError, match=why):
        Script.of(words)


MISTAKES = {
    "nothing follows": ("run kill-worker --", "nothing follows --"),
    "no such script": ("run kill-worker -- python none.py", "there is no file none.py"),
    "workers": ("run kill-worker --workers 3 -- python train.py", "the script's own ScalingConfig decides"),
    "no control": ("run kill-worker --no-control -- python train.py", "its undisturbed run tells"),
    "trainer's setting": ("run kill-worker --set dropout=0 -- python train.py", "only a scenario's settings"),
    "room without a script": ("run kill-worker --cpus-per-node 4", "for a COMMAND of your own"),
    "too few nodes": ("run kill-worker --nodes 1", "nodes=1 cannot hold 2 workers"),
    "unknown scenario": ("run kill-worke -- python train.py", "did you mean 'kill-worker'?"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_64(command, script, mistake):
    arguments, message = MISTAKES[mistake]
    is_one_line(command(*arguments.split()), ExitCode.USAGE, message)


def test_what_follows_the_dashes_is_the_scripts(command, script):
    result = command("run", "--dry-run", "kill-worker", "--", "python", "train.py", "--json", "--seed", "x")
    assert result.exit_code == ExitCode.PASS, result.output
    assert "2 nodes for: " in result.stdout
    assert "train.py --json --seed x" in result.stdout
    assert "follows from its undisturbed run" in result.stdout


def test_what_only_the_undisturbed_run_will_tell_is_null(command, script):
    plan = json.loads(command("run", "--dry-run", "--json", "kill-worker", "--", "python", "train.py").stdout)
    assert (plan["workers"], plan["steps"], plan["checkpoint_every"], plan["injections"]) == (None, None, None, [])


def test_a_cluster_of_the_users_size_is_made_for_a_script():
    program = Script((sys.executable, "train.py"), Path())
    shape = resolve_script(find("drop-node"), Options(nodes=4, cpus_per_node=8), program).shape
    assert (shape.node_count, shape.cpus_per_node) == (4, 8)
    shape = resolve_script(find("drop-node"), Options(), program).shape
    assert (shape.node_count, shape.cpus_per_node) == (2, 3)


def test_the_same_command_shares_a_control_run_and_another_does_not(script):
    one, same, other = (Script.of(("python", "train.py", *more)) for more in ((), (), ("--epochs", "9")))
    keys = [resolve_script(find("kill-worker"), Options(), program).workload_key for program in (one, same, other)]
    assert keys[0] == keys[1] != keys[2]


def test_the_command_that_repeats_a_run_ends_with_the_script_as_it_was_given(script, monkeypatch):
    words = ["aftershock", "run", "kill-worker", "segfault", "--resume", "--", "python", "train.py", "kill-worker"]
    monkeypatch.setattr(sys, "argv", words)
    request = resolve_script(find("segfault"), Options(), Script.of(("python", "train.py", "kill-worker")))
    asked = dataclasses.replace(request, asked=("kill-worker", "segfault"))
    assert asked.command == "aftershock run segfault -- python train.py kill-worker"
