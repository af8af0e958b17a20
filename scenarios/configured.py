"""The command ``aftershock config``: every setting with its value, and where the value came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chaos.exits import ExitCode
from scenarios import asking

if TYPE_CHECKING:
    from rich.table import Table

    from scenarios.configuration import Value

EXAMPLES = """\b
Examples:
  aftershock config
  AFTERSHOCK_SEED=7 aftershock config --json
"""


@click.command(epilog=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def config(as_json: bool) -> int:
    """Show every setting, and where it comes from.

    That is an environment variable, a line of pyproject.toml, or the default.
    """
    from scenarios import configuration

    found = configuration.load().values
    if as_json:
        told = {name: {"value": _plain(one.value), "from": one.origin} for name, one in found.items()}
        click.echo(json.dumps(told, indent=1))
    else:
        asking.console().print(_table(dict(found)))
    return ExitCode.PASS


def _table(found: dict[str, Value]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from scenarios.configuration import Settings

    table = Table(box=None, padding=(0, 2, 0, 0), width=100)
    for column in ("setting", "value", "from"):
        table.add_column(column)
    table.add_column("meaning", ratio=1, style="dim")
    for name, one in found.items():
        field = Settings.model_fields.get(name)
        given = "" if one.origin == "default" else "bold"
        meaning = field.description if field else Settings.model_fields["set"].description
        table.add_row(Text(name, style=given), Text(_told(one.value)), Text(one.origin), Text(meaning or ""))
    return table


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [str(path) for path in value]
    return str(value) if isinstance(value, Path) else value


def _told(value: Any) -> str:
    plain = _plain(value)
    if isinstance(plain, list):
        return ", ".join(plain) or "none"
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    return "-" if plain in (None, "") else str(plain)
