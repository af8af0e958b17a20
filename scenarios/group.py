"""How commands end: mistakes of the user's, interruptions and defects of the harness each have their exit code."""

from __future__ import annotations

import importlib
import sys
import traceback
from typing import Any

import click

from chaos.exits import ExitCode, UsageError
from chaos.targets import NoTarget


class Group(click.Group):
    """Commands whose mistakes of the user's are one line and exit code 64.

    ``later``: commands by name that lie in modules of their own, each imported when it is asked for.
    """

    def __init__(self, *args: Any, later: dict[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.later = later or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *self.later})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name: the attribute of that name in its module."""
        if cmd_name in self.later and cmd_name not in self.commands:
            self.add_command(getattr(importlib.import_module(self.later[cmd_name]), cmd_name))
        return super().get_command(ctx, cmd_name)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command and exit with its code."""
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.exceptions.Exit as error:
            code = error.exit_code
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
            code = ExitCode.PASS
        except click.ClickException as error:
            click.echo(f"aftershock: {' '.join(error.format_message().split())}", err=True)
            code = ExitCode.USAGE
        except UsageError as error:
            click.echo(f"aftershock: {error}", err=True)
            code = ExitCode.USAGE
        except NoTarget as error:
            click.echo(f"aftershock: {error}", err=True)
            code = ExitCode.NOT_INJECTED
        except (click.Abort, KeyboardInterrupt):
            click.echo("aftershock: interrupted", err=True)
            code = ExitCode.ABORTED
        except Exception as error:
            click.echo(f"{traceback.format_exc()}aftershock: a defect of the harness: {error!r}", err=True)
            code = ExitCode.BUG
        sys.exit(int(code or 0))
