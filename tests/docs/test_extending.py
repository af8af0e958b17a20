"""The pages for those who bring their own: each example is executed, each table is compared with the code."""

from __future__ import annotations

import ast
import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import chaos
from chaos import driving, pytest_plugin
from chaos.results import Result
from scenarios import configuration, extensions
from scenarios.cli import cli
from scenarios.configuration import Settings
from tests.chaos.fakes import Fake, member_told, suite_told, told
from tests.docs.pages import ROOT, bare, blocks, page, quoted, section, tables

EXAMPLE = ROOT / "examples" / "test_my_job.py"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """The command is only pretended."""
    fake = Fake(tmp_path / "fake")
    monkeypatch.setattr(driving, "COMMAND", fake.command)
    return fake


# Configuration


def shown(default: Any) -> str:
    return "-" if default in (None, "", (), {}) else f"`{default}`"


def test_the_settings_are_told_with_their_defaults_and_meanings() -> None:
    rows = tables(section(page("configuration.md"), "Settings"), "setting")
    told_ = [(bare(row["setting"]), row["default"], row["meaning"]) for row in rows]
    assert told_ == [(name, shown(f.default), f.description) for name, f in Settings.model_fields.items()]


def test_the_example_of_a_configuration_is_one(tmp_path: Path) -> None:
    (text,) = blocks(page("configuration.md"), "toml")
    for kind in ("scenarios", "faults"):
        folder = tmp_path / "tests" / "resilience" / kind
        folder.mkdir(parents=True)
        (folder / "mine.py").touch()
    (tmp_path / "pyproject.toml").write_text(text)
    found = configuration.load(tmp_path, {})
    assert {name for name, value in found.values.items() if value.origin != "default"} == {
        *tomllib.loads(text)["tool"]["aftershock"].keys() - {"set"}, "set.micro_batches",
    }  # fmt: skip


def test_the_message_that_the_page_shows_is_the_one_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (message,) = blocks(section(page("configuration.md"), "Mistakes"), "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n[tool.aftershock]\nseeds = 1\n")
    assert CliRunner().invoke(cli, ["config"]).stderr == message


# In Python


def test_the_calls_and_the_fields_of_a_result_are_those_of_the_code() -> None:
    calls = [bare(row["call"]).split("(")[0] for row in tables(page("in-python.md"), "call")]
    assert sorted(calls) == sorted(name for name in chaos.__all__ if name.islower())
    rows = tables(section(page("in-python.md"), "Result"), "field")
    assert [bare(row["field"]) for row in rows] == [f.name for f in dataclasses.fields(Result)]


def test_the_options_are_those_of_the_code() -> None:
    text = page("in-python.md").split("Options are those of `aftershock run`: ")[1].split("; the last")[0]
    assert sorted(quoted(text)) == sorted(driving.Options.__annotations__)


def test_the_examples_in_python_run(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answer(run={"output": told()})
    names: dict[str, Any] = {}
    for example in blocks(page("in-python.md"), "python"):
        exec(compile(example, "in-python.md", "exec"), names)
    assert capsys.readouterr().out == "pass 0.604\n"
    assert [call[:2] for call in fake.calls] == [["run", "kill-worker"], ["run", "--json"], ["run", "my_scenario.py"]]


def test_what_a_failure_looks_like_is_what_a_result_prints(fake: Fake) -> None:
    text = blocks(page("in-pytest.md"), "")[0]
    directory = Path("out/20261130-051925-kill-worker-4937e630")
    fake.answer(run={"output": told(verdict="fail", code=1), "code": 1, "directories": [str(directory)]})
    assert str(chaos.run("kill-worker", quiet=True)) == text.strip("\n")


# In pytest


def test_the_example_of_a_test_is_two_tests_of_one_suite(fake: Fake, pytester: pytest.Pytester) -> None:
    pytester.copy_example(str(EXAMPLE))
    for name in ("kill-worker", "kill-rank-zero"):
        (pytester.path / name).mkdir()
        (pytester.path / name / "verdict.json").write_text(json.dumps(told(name)))
    members = [member_told(name, directory=name) for name in ("kill-worker", "kill-rank-zero")]
    fake.answer(run={"output": suite_told(*members), "directories": [str(pytester.path)]})
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)
    assert fake.calls == [["run", "kill-worker", "kill-rank-zero", "--json", "--expect", "recovers(within=60)"]]


def test_the_example_of_a_test_is_ten_lines() -> None:
    assert len([line for line in EXAMPLE.read_text().splitlines() if line.strip()]) <= 10


def test_the_fixtures_that_the_page_names_are_there() -> None:
    names = {"aftershock", "aftershock_result"}
    assert all(f"`{name}`" in page("in-pytest.md") and hasattr(pytest_plugin, name) for name in names)


# Files of one's own


@pytest.mark.parametrize("kind", ["scenario", "fault", "check"])
def test_the_first_example_of_each_guide_is_what_the_command_writes(kind: str) -> None:
    from scenarios.starting import starting_point

    file = Path(f"my_{kind}.py")
    example = blocks(page(f"writing-a-{kind}.md"), "python")[0]
    assert ast.parse(example)
    assert example.strip("\n") in starting_point(kind, file)[file]


def test_the_groups_of_entry_points_are_those_of_the_code() -> None:
    text = section(page("writing-a-scenario.md"), "Where your own are found")
    assert {word for word in quoted(text) if word.startswith("aftershock.")} == set(extensions.GROUPS)
