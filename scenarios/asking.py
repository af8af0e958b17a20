"""What the commands share: how they take their options, and where they print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chaos.exits import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from scenarios.request import Options


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
