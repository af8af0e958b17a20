"""Reading the documentation: pages, sections, tables, code blocks; and the library that it is compared with."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path
from typing import Any

import click

from metrics.expectations import TERMS, Expectation
from scenarios.cli import cli
from scenarios.request import Options, Request, resolve
from scenarios.scenario import Scenario, Suite, all_scenarios

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))

QUOTED = re.compile(r"`([^`]+)`")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """The part of a page below a heading of the second level."""
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def tables(text: str, first: str) -> list[dict[str, str]]:
    """The rows of every table whose first column is called ``first``, each by column."""
    rows: list[dict[str, str]] = []
    columns: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not columns:
            columns = cells
        elif columns[0] == first and not set(line) <= set("|- "):
            assert len(cells) == len(columns), line
            rows.append(dict(zip(columns, cells, strict=True)))
    return rows


def bare(cell: str) -> str:
    return cell.strip("`")


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a page in that language."""
    return [body for told, body in BLOCK.findall(text) if told == language]


def docstrings_of(file: str, name: str) -> dict[str, str]:
    """The text below each member of an enum, by the member's name."""
    body = next(
        node for node in ast.parse((ROOT / file).read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == name
    ).body  # fmt: skip
    return {
        getattr(member.targets[0], "id", ""): text.value.value
        for member, text in itertools.pairwise(body)
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }  # fmt: skip


def scenarios() -> dict[str, Scenario]:
    return {name: found for name, found in all_scenarios().items() if isinstance(found, Scenario)}


def suites() -> dict[str, Suite]:
    return {name: found for name, found in all_scenarios().items() if isinstance(found, Suite)}


def requested(scenario: Scenario) -> Request:
    return resolve(scenario, Options())


def commands() -> dict[str, click.Command]:
    """Every command by its name, also those in modules of their own."""
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def quoted(cell: str) -> list[str]:
    """The words in backticks of a cell; none for a dash."""
    return QUOTED.findall(cell)


def words() -> dict[str, Expectation]:
    """Every word of expectations with what it needs, in order."""
    needed: dict[str, dict[str, Any]] = {
        "fails": {"error": "E"},
        "names": {"error": "E"},
        "beats_defaults": {"times": 2},
        "stays_productive": {"share": 0.5},
        "resizes": {"worlds": "3, 2"},
        "preempts": {"times": 1},
        "reschedules": {"times": 2},
    }
    return {name: build(**needed.get(name, {})) for name, build in TERMS.items()}
