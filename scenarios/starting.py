"""The command ``aftershock new``: a starting point for a scenario, a fault or a check of one's own, with its test."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from chaos.exits import ExitCode, UsageError

KINDS = ("scenario", "fault", "check")

EXAMPLES = """\b
Examples:
  aftershock new scenario tests/my_scenario.py
  aftershock new fault tests/my_fault.py
  aftershock new check tests/my_check.py
"""


@click.command(epilog=EXAMPLES)
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("file", type=click.Path(path_type=Path))
def new(kind: str, file: Path) -> int:
    """Write FILE, a starting point, and its test.

    The test lies beside FILE. Nothing is overwritten.
    """
    for path, text in starting_point(kind, file).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(f"wrote {os.path.relpath(path)}")
    click.echo(f"next: aftershock validate {os.path.relpath(file)}")
    return ExitCode.PASS


def starting_point(kind: str, file: Path) -> dict[Path, str]:
    """The texts of a file and of its test.

    Raises UsageError when the name is none for a Python module, or one of the files is there already.
    """
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise UsageError(f"{file}: name a Python file of letters, digits and underscores, such as my_{kind}.py")
    test = file.with_name(f"test_{file.name}")
    for path in (file, test):
        if path.exists():
            raise UsageError(f"{os.path.relpath(path)} is there already: name another file, or remove it")
    from importlib import resources

    folder = resources.files("scenarios.starters")
    names = {file: f"{kind}.py", test: f"test_{kind}.py"}
    return {path: _named((folder / name).read_text(encoding="utf-8"), file.stem, kind) for path, name in names.items()}


def _named(text: str, stem: str, kind: str) -> str:
    """A starting point under the user's name, written as a file, a word, a class and a name are."""
    hyphens = re.sub(r"_+", "-", stem.strip("_").lower())
    camel = "".join(part.capitalize() for part in hyphens.split("-"))
    replacements = {
        f"starter-{kind}": hyphens, f"starter_{kind}": hyphens.replace("-", "_"), "starter": stem, "Starter": camel,
    }  # fmt: skip
    for mine, theirs in replacements.items():
        text = text.replace(mine, theirs)
    return text
