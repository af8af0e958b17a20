"""``python -m trainer``: one option for each field, and one line for a mistake."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from chaos.workload import INSTALLATION
from trainer.__main__ import main, parser
from trainer.config import TrainerConfig
from trainer.observer import Silent, find_observer

FIELDS = dataclasses.fields(TrainerConfig)


def options(*arguments):
    return vars(parser().parse_args(arguments))


def test_there_is_one_option_for_each_field_with_its_default():
    assert options() == dataclasses.asdict(TrainerConfig())


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_an_option_is_read_as_the_type_of_its_field(field):
    value = options(f"--{field.name.replace('_', '-')}=7")[field.name]
    assert value == type(field.default)(7)
    assert type(value) is type(field.default)


def test_the_help_explains_every_option():
    text = " ".join(parser().format_help().split())
    for field in FIELDS:
        assert f"--{field.name.replace('_', '-')}" in text
        assert field.metadata["help"] in text


@pytest.mark.parametrize(
    "arguments", [["--workers", "5"], ["--steps", "0"], ["--dtype", "float16"], ["--width=65"], ["--seed=-1"]]
)
def test_a_bad_value_is_one_line_and_64(capsys, arguments):
    assert main(arguments) == 64
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert error.startswith("trainer: ")


def test_the_module_exits_with_64_and_one_line():
    command = [sys.executable, "-m", "trainer", "--workers", "5"]
    environment = {**os.environ, "PYTHONPATH": str(INSTALLATION)}
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.splitlines() == [done.stderr.strip()]
    assert "workers=5 does not divide micro_batches=6" in done.stderr


def test_the_observer_is_found_by_name_and_silent_without_one():
    assert isinstance(find_observer(""), Silent)
    observer = find_observer("chaos.observe")
    assert all(callable(getattr(observer, name)) for name in ("samples", "loss", "state"))
    assert [Silent().samples([1]), Silent().loss(1.0), Silent().state("saved", {})] == [None] * 3
