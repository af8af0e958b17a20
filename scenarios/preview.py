"""``--dry-run``: the plan of a run with everything resolved, and its blast radius; nothing is touched."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.agent.plan import Injection
from chaos.exits import ExitCode
from chaos.faults.base import all_faults
from chaos.timeouts import TIMEOUTS, floor_s
from scenarios import asking
from scenarios.request import Request


def tell(requests: Sequence[Request], as_json: bool) -> int:
    """Print the plans of these requests; returns the exit code."""
    if as_json:
        plans = [preview(request) for request in requests]
        click.echo(json.dumps(plans if len(plans) > 1 else plans[0], indent=1))
    else:
        for request in requests:
            show(request, asking.console())
    return ExitCode.PASS


PLAIN: dict[str, Any] = {"highlight": False, "soft_wrap": True, "markup": False}


def preview(request: Request) -> dict[str, Any]:
    """The plan as a record: the same request gives the same record.

    Null is what only the undisturbed run of a user's script will tell.
    """
    shape, known = request.shape, not request.program.script
    return {
        "scenario": request.scenario.name,
        "title": request.scenario.title,
        "seed": request.options.seed,
        "workers": shape.workers if known else None,
        "nodes": [f"w{number}" for number in range(shape.node_count)],
        "steps": shape.steps if known else None,
        "checkpoint_every": shape.checkpoint_every if known else None,
        "injections": [_told(injection) for injection in request.injections],
        "blast_radius": _blast_radius(request),
        "timeouts_s": shape.timeouts,
        "noticed_by_default_after_s": _floor(request),
        "expects": str(request.expects),
        "known_issue": request.scenario.known_issue,
        "control_run": request.control,
        "deadline_s": request.deadline_s,
    }


def _told(injection: Injection) -> dict[str, Any]:
    return {
        "id": injection.id,
        "fault": injection.fault,
        "target": injection.where,
        "when": str(injection.trigger),
        "settings": injection.values,
    }


def _blast_radius(request: Request) -> dict[str, Any]:
    """Who is hurt, at most: the victims themselves, and the job as far as it must restart."""
    shape, known = request.shape, all_faults()
    breaking = [i for i in request.injections if known[i.fault].breaks]
    victims = sorted({injection.where for injection in request.injections})
    return {
        "victims": victims,
        "share_of_workers": min(1.0, len(victims) / shape.workers),
        "restarts_at_most": min(len(breaking), shape.max_failures) if shape.max_failures >= 0 else len(breaking),
        "steps_at_risk_for_each": shape.checkpoint_every if breaking else 0,
        "touches": "training processes of this run, on a cluster made for it on this machine; nothing else",
    }


def _floor(request: Request) -> float | None:
    """How long Ray's defaults leave the plan's faults unnoticed, seconds; None where they do not decide or never do."""
    known = all_faults()
    floors = [floor_s(known[i.fault].noticed_by) for i in request.injections if known[i.fault].noticed_by]
    return max((floor for floor in floors if floor is not None), default=None)


def show(request: Request, console: Console) -> None:
    """Print the plan as tables."""
    plan = preview(request)
    console.print(f"{plan['scenario']}: {plan['title']}", highlight=False, style="bold", markup=False)
    if request.program.script:
        console.print(f"plan     {len(plan['nodes'])} nodes for: {shlex.join(request.program.script)}", **PLAIN)
        console.print("         what is hit, and when, follows from its undisturbed run", **PLAIN)
    else:
        console.print(
            f"plan     {plan['workers']} workers on {len(plan['nodes'])} nodes, {plan['steps']} steps, "
            f"a checkpoint every {plan['checkpoint_every']}, seed {plan['seed']}",
            highlight=False,
        )
        console.print(_injections(plan["injections"]))
    for word, line in _lines(request, plan).items():
        if line:
            console.print(f"{word:<8} {line}", **PLAIN)
    console.print("nothing was started or touched (--dry-run)", style="dim")


def _injections(told: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("injection", "fault", "target", "when", "settings"):
        table.add_column(column)
    for injection in told:
        settings = " ".join(f"{key}={value}" for key, value in injection["settings"].items())
        table.add_row(*(Text(injection[key]) for key in ("id", "fault", "target", "when")), Text(settings))
    return table


def _lines(request: Request, plan: dict[str, Any]) -> dict[str, str]:
    """What there is to say beside the injections, by a word; empty where there is nothing."""
    blast = plan["blast_radius"]
    hurts = (
        f"{', '.join(blast['victims'])}: {blast['share_of_workers']:.0%} of the workers; "
        f"restarts at most: {blast['restarts_at_most']}"
    )
    return {
        "hurts": hurts if blast["victims"] else "",
        "touches": blast["touches"],
        "expects": plan["expects"],
        "control": "a run without a fault is made to compare with" if plan["control_run"] else "none",
        "notices": _time_outs(request),
        "known": plan["known_issue"],
        "deadline": f"{plan['deadline_s']:g} s for each training script",
    }


def _time_outs(request: Request) -> str:
    """The time-outs that must notice the faults, as set, beside the defaults; empty where none is needed."""
    known = all_faults()
    names = dict.fromkeys(name for i in request.injections for name in known[i.fault].noticed_by)
    return "; ".join(f"{name} {_seconds(request, name)} ({TIMEOUTS[name].setting})" for name in names)


def _seconds(request: Request, name: str) -> str:
    own, default = request.shape.timeouts[name], TIMEOUTS[name].default_s
    told = "never" if own is None else f"{own:g} s"
    return f"{told}, by default {'never' if default is None else f'{default:g} s'}"
