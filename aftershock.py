"""The command's own entry: puts this installation first, so that a project's own ``metrics`` cannot clash."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run the command line and exit with its code."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from scenarios.cli import cli

    cli.main(prog_name="aftershock")


if __name__ == "__main__":
    main()
