"""What ``aftershock list`` shows: scenarios, faults, triggers, targets and the words of expectations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.faults.base import Attack, Fault, all_faults, settings
from chaos.targets import TARGETS
from chaos.triggers import PHASES, TRIGGERS
from metrics.expectations import TERMS
from scenarios import extensions
from scenarios.scenario import Scenario, Suite, all_scenarios

Item = dict[str, Any]

KINDS = {"scenarios": "scenario", "faults": "fault", "expectations": "word"}
"""Lists that may hold the user's own, and what each calls an item."""


def items(what: str) -> list[Item]:
    """The records of one list, each with ``name`` and ``title`` first."""
    found = LISTS[what]()
    for item in found:
        if origin := extensions.origin(KINDS.get(what, ""), item["name"].split("(")[0]):
            item["from"] = origin
    return found


def show(found: list[Item], console: Console) -> None:
    """Print one row for each, and below it what else is known of it."""
    table = Table(box=None, padding=(0, 2, 0, 0), width=100, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for item in found:
        table.add_row(Text(item["name"], style="bold"), Text(item["title"]))
        for key, value in item.items():
            if key not in ("name", "title") and value not in ("", [], {}, None):
                table.add_row("", Text(f"{key.replace('_', ' ')}: {_told(value)}", style="dim"))
    console.print(table)


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={inner}" for key, inner in value.items())
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def _scenarios() -> list[Item]:
    found = []
    for name, one in all_scenarios().items():
        extra = {"members": list(one.members)} if isinstance(one, Suite) else _expects(one)
        found.append({"name": name, "title": one.title, **extra})
    return found


def _expects(scenario: Scenario) -> Item:
    return {
        "expects": str(scenario.expectation(scenario.shape)),
        "needs": list(scenario.needs),
        "known_issue": scenario.known_issue,
    }


def _faults() -> list[Item]:
    return [
        {
            "name": name,
            "title": _first_line(fault),
            "settings": settings(fault),
            "confirmed_by": fault.effect,
            "certifies": fault.certifies,
            "does_not_certify": fault.not_certified,
            "capabilities": _capabilities(fault),
            "only_in": list(fault.points),
        }
        for name, fault in all_faults().items()
    ]


def _capabilities(fault: type[Fault]) -> list[str]:
    """Where it acts, what it does to the job, how it heals."""
    outside = issubclass(fault, Attack)
    return [
        "from outside, the victim held at its point" if outside else "inside the process, at the point",
        "breaks the job" if fault.breaks else "negative control: the job must not restart",
        "heals by itself or at the end of the run" if outside else "ends with its process",
    ]


def _triggers() -> list[Item]:
    found: list[Item] = [_callable(build) for build in TRIGGERS]
    joins = {
        "a & b": "Both at once.",
        "a >> b": "First the one, at a later moment the other.",
        "a.repeat(n)": "Each of the first n times that the moment comes.",
    }
    found += [{"name": name, "title": title} for name, title in joins.items()]
    return found + [{"name": f"  phase {name}", "title": meaning} for name, meaning in PHASES.items()]


def _targets() -> list[Item]:
    return [_callable(target) for target in TARGETS]


def _expectations() -> list[Item]:
    return [_callable(word) for word in TERMS.values()]


def _callable(build: Callable[..., Any]) -> Item:
    """A function as a user writes it, with its defaults."""
    parameters = [
        name if parameter.default is inspect.Parameter.empty else f"{name}={parameter.default}"
        for name, parameter in inspect.signature(build).parameters.items()
    ]
    return {"name": f"{build.__name__}({', '.join(parameters)})", "title": _first_line(build)}


def _first_line(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").split("\n")[0].replace("``", "")


LISTS: dict[str, Callable[[], list[Item]]] = {
    "scenarios": _scenarios,
    "faults": _faults,
    "triggers": _triggers,
    "targets": _targets,
    "expectations": _expectations,
}
