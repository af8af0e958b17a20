"""What the commands share: how they take their options, and where they print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from chaos.exits import ExitCode, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from scenarios.request import Options

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Configured(click.Command):
    """A command whose options, where the command line is silent, are as the project is configured."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Take the configuration as defaults; to show the help needs none.

        Raises UsageError when it cannot be read.
        """
        if not {"-h", "--help"} & set(args):
            from scenarios import configuration

            extra["default_map"] = configuration.load().given
        return super().make_context(info_name, args, parent, **extra)


class WithScript(Configured):
    """A command after whose own words may come ``--`` and the command of a training script: see ``script``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what stands before the ``--``; keep what follows."""
        mine = args[: args.index("--")] if "--" in args else args
        ctx.meta[_SCRIPT] = tuple(args[len(mine) + 1 :])
        if "--" in args and not ctx.meta[_SCRIPT]:
            raise click.UsageError("nothing follows --: write -- python train.py")
        return super().parse_args(ctx, mine)


_SCRIPT = f"{__name__}.script"


def script() -> tuple[str, ...]:
    """The command of the training script that the present command was given; empty for none."""
    return tuple(click.get_current_context().meta[_SCRIPT])


def from_files(command: F) -> F:
    """The option ``--from``, for commands that take scenarios, faults and checks of the user's own."""
    return click.option(
        "--from", "sources", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
        help="A file of your own scenarios, faults or checks; may be repeated.",
    )(command)  # fmt: skip


def injections(command: F) -> F:
    """The option ``--inject`` of ``aftershock run``."""
    return click.option(
        "--inject", multiple=True, metavar="TEXT",
        help="In place of a SCENARIO: 'kill; at_step(25); Rank(1)'; may be repeated.",
    )(command)  # fmt: skip


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
    """What ``--set`` sets, by name, and what the configuration sets beside it.

    Raises UsageError when one is no KEY=VALUE.
    """
    from scenarios import configuration

    found = configuration.load().settings
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
