"""The command ``aftershock observability``: the rules, the dashboard and the examples that come with the metrics."""

from __future__ import annotations

import json
from pathlib import Path

import click

from chaos.exits import ExitCode, UsageError
from scenarios import asking

EXAMPLES = """\b
Examples:
  aftershock observability
  aftershock observability --out monitoring
  aftershock observability --out monitoring --overwrite --json
"""


@click.command(epilog=EXAMPLES)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write them below this directory.")
@click.option("--overwrite", is_flag=True, help="Replace files there that differ.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def observability(out: Path | None, overwrite: bool, as_json: bool) -> int:
    """List or write what to monitor with: Prometheus rules, a Grafana dashboard, and examples for nightly runs."""
    from metrics.observability import FILES

    if out is not None:
        write(out, overwrite)
    if as_json:
        listed = [{"path": str(out / name) if out else name, "title": title} for name, title in FILES.items()]
        click.echo(json.dumps(listed, indent=1))
    else:
        _show(out)
    return ExitCode.PASS


def write(out: Path, overwrite: bool) -> None:
    """Write every file below a directory, or none.

    Raises UsageError for a file that differs from ours, unless it may be replaced, and when nothing can be written.
    """
    from metrics.observability import FILES, read

    try:
        other = [name for name in FILES if (out / name).exists() and (out / name).read_bytes() != read(name)]
        if other and not overwrite:
            raise UsageError(f"--out {out}: {out / other[0]} is another file; name another directory, or --overwrite")
        for name in FILES:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(read(name))
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror or error}; name a directory that can be written") from error


def _show(out: Path | None) -> None:
    from rich.table import Table

    from metrics.observability import FILES
    from scenarios.view import WIDTH, short

    table = Table(box=None, padding=(0, 2, 0, 0), width=WIDTH)
    table.add_column("file", no_wrap=True)
    table.add_column("what it is", ratio=1)
    for name, title in FILES.items():
        table.add_row(name, title)
    console = asking.console()
    console.print(table)
    told = f"written below {short(out.absolute())}" if out else "aftershock observability --out DIR writes them"
    console.print(told, highlight=False, soft_wrap=True, markup=False)
