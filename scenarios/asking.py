"""What the commands share: how they take their options, and where they print."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from chaos.exits import ExitCode, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from scenarios.request import Options

T = TypeVar("T")


def options(**values: Any) -> Options:
    """The options of a command, validated.

    Raises UsageError naming the first that cannot be taken.
    """
    import pydantic

    from scenarios.request import Options

    try:
        return Options(**values)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"--{where} {first['input']}: {first['msg'].lower()}") from error


def settings(sets: tuple[str, ...]) -> dict[str, str]:
    """What ``--set`` sets, by name.

    Raises UsageError when one is no KEY=VALUE.
    """
    found = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text}: write --set KEY=VALUE")
        found[key.replace("-", "_")] = value
    return found


def console(stderr: bool = False) -> Console:
    """Where to print; 100 columns wide where there is no terminal."""
    from scenarios.view import PatientConsole

    made = PatientConsole(stderr=stderr)
    if not made.is_terminal:
        made.width = 100
    return made


def while_there_is_room(action: Callable[[], T]) -> T | ExitCode:
    """What an action that runs and judges gives; a code, after a message, when the disk takes nothing more."""
    from scenarios.execute import FULL, StorageFailed

    try:
        return action()
    except StorageFailed as error:
        click.echo(f"aftershock: {error}", err=True)
        return ExitCode.ABORTED
    except OSError as error:
        if error.errno not in FULL:
            raise
        click.echo(f"aftershock: the run is stored and healed, but not judged: {error}", err=True)
        return ExitCode.UNKNOWN
