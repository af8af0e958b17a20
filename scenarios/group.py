"""How commands end: mistakes of the user's, interruptions and defects of the harness each have their exit code."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import click

from chaos.exits import ExitCode, UsageError
from chaos.targets import NoTarget


class Group(click.Group):
    """Commands whose mistakes of the user's are one line and exit code 64."""

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
