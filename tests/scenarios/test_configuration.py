"""Defaults of a project: from a file, from variables, from flags, in one order; mistakes with their line."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from chaos.exits import UsageError
from scenarios import asking, configuration
from scenarios.cli import cli
from scenarios.configuration import Settings, line_of, load


@pytest.fixture
def configure(place):
    """Write a ``pyproject.toml`` whose section has these lines, from line 4 on."""

    def write(*lines, folder=place):
        folder.mkdir(parents=True, exist_ok=True)
        head = ("[project]", "name = 'x'", "[tool.aftershock]")
        (folder / "pyproject.toml").write_text("\n".join((*head, *lines)) + "\n")

    return write


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """No setting comes from where the tests are run."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"AFTERSHOCK_{name.upper()}", raising=False)


# One order


def planned(command, *options):
    result = command("run", "kill-worker", "--dry-run", "--json", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_flag_comes_before_a_variable_that_before_the_file_that_before_the_default(command, configure, monkeypatch):
    assert planned(command)["seed"] == 0
    configure("seed = 1")
    assert planned(command)["seed"] == 1
    monkeypatch.setenv("AFTERSHOCK_SEED", "2")
    assert planned(command)["seed"] == 2
    assert planned(command, "--seed", "3")["seed"] == 3


def test_every_setting_of_a_run_is_taken_from_the_file(command, configure):
    options = "workers = 3", "deadline = 99", "control = false", "expect = 'recovers(within=7)'"
    configure(*options, "[tool.aftershock.set]", "steps = 30", "checkpoint-every = 5")
    plan = planned(command)
    assert (plan["workers"], plan["deadline_s"], plan["control_run"]) == (3, 99.0, False)
    assert (plan["steps"], plan["checkpoint_every"]) == (30, 5)
    assert "recovers(within=7)" in plan["expects"]


def test_each_key_of_set_has_its_own_order(command, configure, monkeypatch):
    configure("set = { steps = 30, checkpoint_every = 5 }")
    monkeypatch.setenv("AFTERSHOCK_SET", "checkpoint-every=6 keep=3")
    plan = planned(command, "--set", "keep=4")
    assert (plan["steps"], plan["checkpoint_every"]) == (30, 6)


def test_a_flag_can_take_back_what_the_file_says(command, configure):
    configure("control = false", "strict = true")
    assert planned(command, "--control")["control_run"] is True


@pytest.mark.parametrize("name", [n for n in Settings.model_fields if n not in ("set", "keep", *configuration.OWN)])
def test_every_setting_is_an_option_of_run(name):
    assert name in {p.name for p in cli.commands["run"].params}


def test_the_defaults_are_those_of_the_commands():
    for command in ("run", "prune"):
        for parameter in cli.commands[command].params:
            field = Settings.model_fields.get(parameter.name)
            default = parameter.get_default(click.Context(cli.commands[command])) if field else None
            if field and parameter.name in ("out", "seed", "keep", "share", "expect"):
                assert str(field.default) == str(default), parameter.name


def test_prune_takes_its_settings_too(command, configure, place):
    configure("out = 'elsewhere'", "keep = 2")
    (place / "elsewhere").mkdir()
    told = json.loads(command("prune", "--json").stdout)
    assert (Path(told["out"]).name, told["keep"]) == ("elsewhere", 2)


def test_help_needs_no_configuration(command, configure):
    configure("nosuch = 1")
    assert command("run", "--help").exit_code == 0
    assert command("run", "kill-worker", "--dry-run").exit_code == 64


# Where it lies


def test_the_nearest_file_above_that_has_a_section_counts(place, configure):
    configure("seed = 5")
    inner = place / "a" / "b"
    inner.mkdir(parents=True)
    (place / "a" / "pyproject.toml").write_text("[project]\nname = 'aftershock-user'\n")
    assert load(inner, {}).values["seed"].value == 5


def test_paths_of_the_file_are_seen_from_it_and_those_of_a_variable_from_here(place, configure):
    configure("out = 'runs'", "faults = ['own/*.py']")
    (place / "own").mkdir()
    for name in ("b.py", "a.py"):
        (place / "own" / name).touch()
    found = load(place, {"AFTERSHOCK_CHECKS": "x.py:y.py"})
    assert found.values["out"].value == place / "runs"
    assert found.own == (place / "own/a.py", place / "own/b.py", Path("x.py"), Path("y.py"))


# Mistakes


MISTAKES = {
    "seeds = 1": "pyproject.toml:4: unknown setting 'seeds': did you mean 'seed'?",
    "zzz = 1": "unknown setting 'zzz': known are out, seed, ",
    "seed = 'three'": "pyproject.toml:4: seed = 'three': input should be a valid integer",
    "seed = true": "input should be a valid integer",
    "seed = -1": "input should be greater than or equal to 0",
    "quiet = 'yes'": "input should be a valid boolean",
    "deadline = 0": "input should be greater than 0",
    "deadline = inf": "input should be a finite number",
    "expect = 3": "input should be a valid string",
    "faults = 'a.py'": "pyproject.toml:4: faults = 'a.py': input should be",
    "faults = ['own/*.py']": "no file fits own/*.py",
    "set = 3": "input should be a valid dictionary",
    "seed = = 3": "pyproject.toml: Invalid value",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_in_the_file_is_told_with_its_line(command, configure, line):
    configure(line)
    result = command("run", "kill-worker", "--dry-run")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (64, "", 1)
    assert MISTAKES[line] in result.stderr


def test_all_mistakes_are_told_at_once(place, configure):
    configure("", "seeds = 1", "# a note", "quiet = 3")
    with pytest.raises(UsageError) as caught:
        load(place, {"AFTERSHOCK_SEED": "x"})
    assert [part.split(": ")[0] for part in str(caught.value).split("; ")] == [
        "pyproject.toml:5", "pyproject.toml:7", "AFTERSHOCK_SEED=x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("AFTERSHOCK_SEED", "x", "AFTERSHOCK_SEED=x: input should be a valid integer"),
        ("AFTERSHOCK_SEEDS", "1", "AFTERSHOCK_SEEDS: unknown setting: did you mean AFTERSHOCK_SEED?"),
        ("AFTERSHOCK_SET", "steps", "'steps' is no KEY=VALUE"),
        ("AFTERSHOCK_QUIET", "maybe", "input should be a valid boolean"),
    ],
)
def test_a_mistake_in_a_variable_is_told(place, variable, text, message):
    with pytest.raises(UsageError) as caught:
        load(place, {variable: text})
    assert message in str(caught.value)


def test_variables_that_are_empty_or_somebody_elses_say_nothing(place):
    others = {"AFTERSHOCK_SEED": "", "AFTERSHOCK_TOKEN_OF_CI": "x", "AFTERSHOCK_RUN": "id", "AFTERSHOCK_NODE": "w0"}
    assert load(place, others).given == {}


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("[tool.aftershock]\n\nseed=1", "seed", 3),
        ("[tool.x]\nseed = 1\n[ tool.aftershock ]\n'seed' = 1", "seed", 4),
        ("[tool.aftershock.set]\nsteps = 1", "steps", 2),
        ("[tool.aftershock]\nset = { a = 1, steps = 2 }", "steps", 2),
        ("[tool.aftershock]\nset.steps = 2", "steps", 2),
        ("[tool]\naftershock = { seed = 1 }", "seed", 1),
        ("[x]\n[tool.aftershock]\n[tool.aftershock.sets]\na = 1", "sets", 3),
    ],
)
def test_the_line_of_a_key_is_found_in_the_text(text, key, line):
    assert line_of(text, key) == line


# Told


def test_the_command_tells_each_value_and_where_it_came_from(command, configure, monkeypatch):
    configure("seed = 1", "set = { dropout = 0.5 }", "scenarios = ['mine.py']")
    monkeypatch.setenv("AFTERSHOCK_QUIET", "1")
    told = json.loads(command("config", "--json").stdout)
    assert told["seed"] == {"value": 1, "from": "pyproject.toml:4"}
    assert told["set.dropout"] == {"value": "0.5", "from": "pyproject.toml:5"}
    assert told["quiet"] == {"value": True, "from": "AFTERSHOCK_QUIET"}
    assert told["keep"] == {"value": 10, "from": "default"}
    assert told["scenarios"]["value"][0].endswith("mine.py")
    lines = command("config").stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.split()[:3] == ["seed", "1", "pyproject.toml:4"] for line in lines)


def test_what_is_set_by_options_and_by_the_file_is_joined(configure):
    configure("set = { steps = 30, keep = 3 }")
    assert asking.settings(("keep=4",)) == {"steps": "30", "keep": "4"}
