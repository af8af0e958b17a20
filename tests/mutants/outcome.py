"""How a program fared on trial: what one line of the results says, and the table of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from chaos.exits import ExitCode

RESULTS = "results.jsonl"
WIDTH = 100


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One program's. ``caught_by`` and ``also``: as declared, empty for a healthy variant.

    ``red``, ``unknown``: checks that failed, and that could not answer. ``seconds``: the control run included, where it
    was made for this one. ``error``: why there is no verdict, empty where there is one.
    """

    name: str
    theme: str = ""
    caught_by: str = ""
    also: list[str] = []
    red: list[str] = []
    unknown: list[str] = []
    exit_code: int = ExitCode.UNKNOWN
    seconds: float = 0.0
    error: str = ""
    directory: str = ""

    @property
    def caught(self) -> bool:
        """Whether the declared check is red, and the run is failed for it."""
        return self.caught_by in self.red and self.exit_code == ExitCode.FAIL

    @property
    def off(self) -> list[str]:
        """Checks whose colour was not declared: ``+`` red, ``-`` not red."""
        red, declared = set(self.red) - {self.caught_by}, set(self.also)
        return [f"+{name}" for name in sorted(red - declared)] + [f"-{name}" for name in sorted(declared - red)]

    @property
    def good(self) -> bool:
        """Whether all is as declared: for a variant, every check green."""
        if self.caught_by:
            return self.caught and not self.off
        return self.exit_code == ExitCode.PASS

    @property
    def verdict(self) -> str:
        """In words, for a mutant which check has caught it."""
        if self.error:
            return f"no verdict: {self.error}"
        if not self.caught_by:
            return "green" if self.good else _not_green(self)
        if self.caught:
            return f"right: {self.caught_by}"
        if self.exit_code != ExitCode.FAIL:
            return f"missed: exit code {self.exit_code}"
        return f"wrong: {', '.join(self.red)}"

    @property
    def rest(self) -> str:
        """Whether the other red checks are those declared."""
        if self.error or not self.caught_by:
            return ""
        return ", ".join(self.off) or "as declared"


def _not_green(outcome: Outcome) -> str:
    told = [*outcome.red, *(f"{name} unknown" for name in outcome.unknown)]
    return f"exit code {outcome.exit_code}: {', '.join(told) or 'no check'}"


def is_mutant(outcome: Outcome) -> bool:
    """Whether it is of a program with a mistake."""
    return bool(outcome.caught_by)


def show(outcomes: Iterable[Outcome], mutants: int, variants: int, console: Console) -> bool:
    """Print the table and the counts of so many programs asked for; returns whether all is as it should be."""
    found = sorted(outcomes, key=lambda outcome: not is_mutant(outcome))
    table = Table(box=None, padding=(0, 2, 0, 0), width=WIDTH)
    table.add_column("trainer", no_wrap=True)
    table.add_column("caught by", ratio=1)
    table.add_column("also red", ratio=1)
    table.add_column("seconds", justify="right", no_wrap=True)
    for one in found:
        style = "" if one.good else "red"
        table.add_row(one.name, one.verdict, one.rest, f"{one.seconds:.0f}", style=style)
    console.print(table)
    buggy, healthy = ([one for one in found if is_mutant(one) is wanted] for wanted in (True, False))
    if missing := mutants + variants - len(found):
        console.print(f"{missing} not tried", highlight=False)
    for line in (
        f"exactly the declared checks red in {sum(one.good for one in buggy)} of {mutants}",
        f"caught {sum(one.caught for one in buggy)} of {mutants}",
        f"false positives {sum(not one.good for one in healthy)} of {variants}",
    ):
        console.print(line, highlight=False)
    return not missing and all(one.good for one in found)


def keep(outcome: Outcome, directory: Path) -> None:
    """Add an outcome to the results."""
    with (directory / RESULTS).open("ab") as file:
        file.write(msgspec.json.encode(outcome) + b"\n")


def kept(directory: Path) -> dict[str, Outcome]:
    """The outcomes with a verdict in the results, by name; a line cut short is left out."""
    file = directory / RESULTS
    found: dict[str, Outcome] = {}
    for line in file.read_bytes().splitlines() if file.exists() else ():
        try:
            outcome = msgspec.json.decode(line, type=Outcome)
        except msgspec.MsgspecError:
            continue
        if not outcome.error:
            found[outcome.name] = outcome
    return found
