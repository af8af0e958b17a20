"""Commands that lie in modules of their own."""

from __future__ import annotations

import sys
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from scenarios.group import Group


@click.command()
def shout():
    """Say it aloud."""
    click.echo("AHA")


@pytest.fixture
def group(monkeypatch):
    module = ModuleType("apart")
    module.shout = shout
    monkeypatch.setitem(sys.modules, "apart", module)
    return Group("made-up", later={"shout": "apart", "absent": "there.is.no.such.module"})


def test_a_command_in_a_module_of_its_own_is_imported_when_it_is_asked_for(group):
    assert CliRunner().invoke(group, ["shout"]).output == "AHA\n"
    assert group.list_commands(click.Context(group)) == ["absent", "shout"]
    assert set(group.commands) == {"shout"}


def test_an_unknown_command_is_none(group):
    assert group.get_command(click.Context(group), "whisper") is None
