"""From the options of ``aftershock plan`` to a plan: what is given, what is measured, what is assumed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from metrics.plan.distributions import Constant, Distribution, Empirical, Exponential, parse
from metrics.plan.failures import job_mtbf_s
from metrics.plan.fleet import Fleet, FleetPlan, Input, plan
from metrics.plan.formulas import efficiency
from metrics.plan.hazard import Bathtub, Burst, Hazard, Replay, Steady
from metrics.plan.measured import Measured, measure
from metrics.plan.presets import preset
from metrics.plan.quantities import DAY_S, GB, HOUR_S, PlanError, require, require_positive
from metrics.plan.simulate import Outcome, simulate
from metrics.plan.sizing import Sizing, Training, parameters, size
from metrics.plan.system import Kind, System
from metrics.plan.trace import Trace, read

SCHEMA = 1

ASSUMED_S = {"checkpoint": 300.0, "downtime": 600.0, "restore": 300.0}
"""What a job is taken to cost where nothing is known: a slow one, with NCCL's default of ten minutes for a hang."""

ASSUMED_PRESET = "rsc1"

SOURCES = ("mtbf_preset", "mtbf_h", "failure_rate")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of the command, by name; see its help."""

    gpus: int
    gpus_per_machine: int
    mtbf_preset: str | None
    mtbf_h: float | None
    failure_rate: float | None
    trace: Path | None
    run: Path | None
    checkpoint_s: str | None
    downtime_s: str | None
    restore_s: str | None
    period_s: float | None
    horizon_days: float
    survive: float
    max_failures: int | None
    repair_h: float
    model: str | None
    tokens_per_gpu: float
    tflops: float
    nic_gbps: float
    nics: int
    gpu_memory_gb: float
    storage_gb_s: float
    simulate: bool
    replicas: int
    seed: int
    spares: int | None
    least_gpus: int | None
    kinds: tuple[str, ...]
    burst: str | None
    infant: str | None


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """A simulation beside the plan. ``exact_ettr``: by the formula, for the same period; ``setting``: what was varied.

    ``least_gpus``: with which the job goes on; ``spares``: machines beside those that it wants.
    """

    outcome: Outcome
    exact_ettr: float
    period_s: float
    least_gpus: int
    spares: int
    setting: list[str]


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that the command tells; what was not asked for is null.

    ``period_steps``: steps of the model's computing between two checkpoints at the best period. ``warnings``: on the
    record of failures.
    """

    schema: int
    fleet: FleetPlan
    sizing: Sizing | None
    period_steps: int | None
    measured: Measured | None
    simulation: Simulated | None
    warnings: list[str]


class Cost(NamedTuple):
    """A duration as the simulation takes it, and where it comes from."""

    distribution: Distribution
    source: str

    @property
    def input(self) -> Input:
        """As the closed forms take it: its mean."""
        varies = "" if isinstance(self.distribution, (Constant, Empirical)) else f", the mean of {self.distribution}"
        return Input(self.distribution.mean_s, self.source + varies)


def make(asked: Asked) -> PlanRecord:
    """Make the plan that was asked for.

    Raises PlanError for what no plan can be made with.
    """
    trace = read(asked.trace) if asked.trace else None
    measured = measure(asked.run) if asked.run else None
    sizing = size(_training(asked)) if asked.model else None
    costs = _costs(asked, measured, sizing)
    fleet = _fleet(asked, costs, trace)
    planned = plan(fleet)
    return PlanRecord(
        schema=SCHEMA,
        fleet=planned,
        sizing=sizing,
        period_steps=_steps(planned, sizing) if sizing else None,
        measured=measured,
        simulation=_simulated(asked, fleet, planned, costs, trace) if asked.simulate else None,
        warnings=list(trace.gaps) if trace else [],
    )


def _steps(planned: FleetPlan, sizing: Sizing) -> int:
    work_s = planned.best.period_s - planned.inputs["checkpoint"].seconds
    return max(1, round(work_s / sizing.compute_s))


def _training(asked: Asked) -> Training:
    return Training(
        parameters=parameters(asked.model or ""),
        gpus=asked.gpus,
        gpus_per_machine=asked.gpus_per_machine,
        tokens_per_gpu=asked.tokens_per_gpu,
        flops_per_gpu=asked.tflops * 1e12,
        nic_gbps=asked.nic_gbps,
        nics=asked.nics,
        gpu_memory_bytes=asked.gpu_memory_gb * GB,
        storage_bytes_s=asked.storage_gb_s * GB,
    )


def _costs(asked: Asked, measured: Measured | None, sizing: Sizing | None) -> dict[str, Cost]:
    """Checkpoint, downtime and restore: as given, else measured, else computed, else assumed."""
    found = {name: Cost(Constant(seconds), "assumed") for name, seconds in ASSUMED_S.items()}
    if sizing:
        told = f"the model's {sizing.state_bytes / GB:,.0f} GB at {asked.storage_gb_s:g} GB/s, all stalled"
        found["checkpoint"] = Cost(Constant(sizing.checkpoint_s), told)
    if measured:
        found["downtime"] = Cost(Empirical(tuple(measured.downtime_s)), measured.told(measured.downtime_s))
        if measured.restore_s:
            found["restore"] = Cost(Empirical(tuple(measured.restore_s)), measured.told(measured.restore_s))
        if measured.checkpoint_s:
            told = f"measured: mean of {measured.saves} saves by {measured.workers} workers"
            found["checkpoint"] = Cost(Constant(measured.checkpoint_s), told)
    given = {name: getattr(asked, f"{name}_s") for name in found}
    return found | {name: Cost(_duration(f"--{name}-s", text), "given") for name, text in given.items() if text}


def _duration(option: str, text: str) -> Distribution:
    try:
        return parse(text)
    except PlanError as error:
        raise PlanError(f"{option} {text}: {error}") from error


def _fleet(asked: Asked, costs: dict[str, Cost], trace: Trace | None) -> Fleet:
    return Fleet(
        gpus=asked.gpus,
        gpus_per_machine=asked.gpus_per_machine,
        mtbf=_mtbf(asked, trace),
        from_rate=asked.mtbf_h is None and trace is None,
        horizon_s=_horizon_s(asked, trace),
        survive=asked.survive,
        max_failures=asked.max_failures,
        repair_s=asked.repair_h * HOUR_S,
        period_s=asked.period_s,
        **{name: cost.input for name, cost in costs.items()},
    )


def _horizon_s(asked: Asked, trace: Trace | None) -> float:
    """As asked; of a record no more than it covers."""
    return min(asked.horizon_days * DAY_S, trace.end_s) if trace else asked.horizon_days * DAY_S


def _mtbf(asked: Asked, trace: Trace | None) -> Input:
    """The job's MTBF, from the one source that was named."""
    named = [f"--{name.replace('_', '-')}" for name in (*SOURCES, "trace") if getattr(asked, name) is not None]
    if len(named) > 1:
        raise PlanError(f"{' and '.join(named)} each tell how often the job fails: leave all but one out")
    if trace:
        return Input(trace.mtbf_s, f"{len(trace.times_s)} failures in {trace.end_s / HOUR_S:,.1f} h of {asked.trace}")
    if asked.mtbf_h is not None:
        require_positive("mtbf_h", asked.mtbf_h, 1e6, "hours between two failures of the whole job")
        return Input(asked.mtbf_h * HOUR_S, "given")
    if asked.failure_rate is not None:
        return Input(job_mtbf_s(asked.gpus, asked.failure_rate, asked.gpus_per_machine), "from the given rate")
    found = preset(asked.mtbf_preset or ASSUMED_PRESET)
    source = found.source if asked.mtbf_preset else f"assumed: {found.source}"
    return Input(job_mtbf_s(asked.gpus, found.per_machine_day), source)  # its machines have eight GPUs


def _simulated(
    asked: Asked, fleet: Fleet, planned: FleetPlan, costs: dict[str, Cost], trace: Trace | None
) -> Simulated:
    """Simulate the fleet with the period that was given, or the best one."""
    system = _system(asked, fleet, planned, costs, trace)
    return Simulated(
        outcome=simulate(system, asked.replicas, asked.seed),
        exact_ettr=efficiency(fleet.costs, system.period_s),
        period_s=system.period_s,
        least_gpus=system.smallest * fleet.gpus_per_machine,
        spares=system.spares,
        setting=_setting(system, trace),
    )


def _system(asked: Asked, fleet: Fleet, planned: FleetPlan, costs: dict[str, Cost], trace: Trace | None) -> System:
    least = None if asked.least_gpus is None else -(-asked.least_gpus // fleet.gpus_per_machine)
    budget = planned.budget
    require("seed", asked.seed, 0, 2**63)
    return System(
        machines=fleet.machines,
        hazard=_hazard(asked, fleet, trace),
        checkpoint_s=fleet.checkpoint.seconds,
        period_s=fleet.period_s or planned.best.period_s,
        horizon_s=fleet.horizon_s,
        restart=costs["downtime"].distribution,
        restore=costs["restore"].distribution,
        kinds=_kinds(asked, fleet),
        spares=planned.reserve.spares if asked.spares is None else asked.spares,
        least=least,
        burst=Burst(**_values("--burst", asked.burst, {"probability": "probability", "within_s": "within_s"})),
        max_failures=budget.max_failures if budget.given is None else budget.given,
    )


def _hazard(asked: Asked, fleet: Fleet, trace: Trace | None) -> Hazard:
    if trace:
        if asked.infant:
            raise PlanError(f"--infant {asked.infant}: a recorded fleet has its age already; leave it out")
        return Replay(trace)
    if not asked.infant:
        return Steady(fleet.mtbf.seconds)
    told = _values("--infant", asked.infant, {"times": "infant", "days": "infant_s", "wear_days": "wear_s"})
    told |= {name: told[name] * DAY_S for name in ("infant_s", "wear_s") if name in told}
    return Bathtub(mtbf_s=fleet.mtbf.seconds, until_s=fleet.horizon_s, **told)


def _kinds(asked: Asked, fleet: Fleet) -> tuple[Kind, ...]:
    """The kinds of failures that were told; what is left of the share takes one machine to repair."""
    kinds = tuple(_kind(text, fleet) for text in asked.kinds)
    left = 1 - sum(kind.share for kind in kinds)
    if left < -1e-9:
        raise PlanError(f"--kind: the shares sum to {1 - left:g}; they must leave 0 or more of 1")
    rest = Kind(share=left, machines=1, repair=Exponential(fleet.repair_s)) if left > 1e-9 else None
    return (*kinds, rest) if rest else kinds


def _kind(text: str, fleet: Fleet) -> Kind:
    name, _, rest = text.partition(":")
    parts = _pairs(f"--kind {text}", rest, ("share", "detect", "machines", "repair_h"))
    if "share" not in parts:
        raise PlanError(f"--kind {text}: write for example hang:share=0.1,detect=600,machines=0")
    repair_s = _number(f"--kind {text}", "repair_h", parts.get("repair_h", f"{fleet.repair_s / HOUR_S}")) * HOUR_S
    return Kind(
        name=name,
        share=_number(f"--kind {text}", "share", parts["share"]),
        detect=_duration(f"--kind {text}: detect", parts.get("detect", "0")),
        machines=int(_number(f"--kind {text}", "machines", parts.get("machines", "1"))),
        repair=Exponential(repair_s),
    )


def _values(option: str, text: str | None, names: dict[str, str]) -> dict[str, float]:
    """The numbers of KEY=VALUE,..., by the names that they have in the model."""
    pairs = _pairs(f"{option} {text}", text, tuple(names)) if text else {}
    return {names[key]: _number(f"{option} {text}", key, value) for key, value in pairs.items()}


def _pairs(where: str, text: str, names: tuple[str, ...]) -> dict[str, str]:
    """The values of KEY=VALUE,..., where a value may hold commas in parentheses."""
    found = {}
    for part in re.split(r",(?![^()]*\))", text):
        key, equals, value = part.strip().partition("=")
        if not equals or key not in names:
            raise PlanError(f"{where}: {part.strip()!r} is not understood; write KEY=VALUE with {', '.join(names)}")
        found[key] = value
    return found


def _number(where: str, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise PlanError(f"{where}: {name}={text} is no number") from None


def _setting(system: System, trace: Trace | None) -> list[str]:
    """What was simulated beyond what the formulas know, in words."""
    told = [f"the {len(trace.times_s)} recorded failures, the same in each replica"] if trace else []
    if isinstance(system.hazard, Bathtub):
        told.append("failures by the age of the fleet")
    if system.burst.probability:
        told.append(f"{system.burst.probability:.0%} of the failures bring another within {system.burst.within_s:g} s")
    for kind in system.kinds:
        repair_h = kind.repair.mean_s / HOUR_S
        away = f"takes {kind.machines} to repair for {repair_h:g} h" if kind.machines else "none lost"
        if trace:
            away = f"takes the recorded machines to repair for {repair_h:g} h"
        told.append(f"{kind.name} ({kind.share:.0%} of the failures, noticed in {kind.detect.mean_s:g} s): {away}")
    return told
