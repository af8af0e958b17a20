"""What ``aftershock plan`` prints."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from metrics.plan.fleet import FleetPlan
from metrics.plan.measured import Measured
from metrics.plan.quantities import DAY_S, GB, HOUR_S, MINUTE_S
from metrics.plan.simulate import BUCKETS
from metrics.plan.sizing import ADVICE, Bound, Sizing, Strategy
from scenarios.plan_request import PlanRecord, Simulated
from scenarios.view import WIDTH

COLOURS = {Bound.COMPUTE: "green", Bound.TIGHT: "yellow", Bound.NETWORK: "red"}


def show(record: PlanRecord, screen: Console) -> None:
    """Print a plan: what it goes by, the fleet, the model, the simulation, and what to know before it is believed."""
    _inputs(record.fleet, screen)
    if record.measured:
        _measured(record.measured, screen)
    _periods(record.fleet, screen)
    _reserves(record.fleet, screen)
    _knobs(record.fleet, screen)
    if record.sizing:
        _sizing(record.sizing, record.period_steps, screen)
    if record.simulation:
        _simulation(record.simulation, screen)
    for note in (*record.fleet.notes, *record.warnings):
        _say(screen, "note", note, "yellow")


def duration(seconds: float) -> str:
    """A duration in the unit that suits it, three digits long."""
    for unit, length in (("days", DAY_S), ("h", HOUR_S), ("min", MINUTE_S), ("s", 1.0)):
        if seconds >= 2 * length or unit == "s":
            break
    value = seconds / length
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _size(count: float) -> str:
    """Bytes in the unit that suits them."""
    return f"{count / 1e12:.2f} TB" if count >= 1e12 else f"{count / GB:,.1f} GB"


def _say(screen: Console, word: str, sentence: str, style: str = "") -> None:
    """A word and a sentence, hanging; a screen of any width."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=8, no_wrap=True)
    grid.add_column(ratio=1)
    grid.width = min(WIDTH, screen.width)
    grid.add_row(Text(word, style=style), Text(sentence))
    screen.print(grid)


def _table(*columns: str, words: Iterable[str] = ()) -> Table:
    """A table; the columns named in ``words`` hold words, the others numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, justify="left" if name in words else "right", style="dim" if name in words else "")
    table.columns[0].justify, table.columns[0].style = "left", ""
    return table


def _inputs(fleet: FleetPlan, screen: Console) -> None:
    _say(screen, "plan", f"{fleet.gpus:,} GPUs on {fleet.machines:,} machines")
    table = _table("goes by", "", "from", words=("from",))
    table.width = WIDTH
    for name, given in fleet.inputs.items():
        table.add_row(name if name != "mtbf" else "MTBF of the job", duration(given.seconds), Text(given.source))
    table.add_row("a machine fails", f"{1000 * fleet.per_machine_day:.2f}", "times in 1000 days, to have that MTBF")
    screen.print(table)


def _measured(measured: Measured, screen: Console) -> None:
    phases = ", ".join(f"{name} {seconds:.3f}" for name, seconds in measured.phases_s.items())
    left = f"; not whole, so left out: {measured.partial}" if measured.partial else ""
    _say(
        screen,
        "measured",
        f"{measured.scenario}, {measured.workers} workers, medians in seconds: {phases}{left}. Downtime is detect to "
        f"setup; replay is lost work, which the plan counts itself. A larger job restarts more slowly: give "
        "--downtime-s and --restore-s if you know better",
    )


def _periods(fleet: FleetPlan, screen: Console) -> None:
    screen.print()
    table = _table("checkpoint period", "one every", "ETTR", "formula", words=("formula",))
    for choice in fleet.periods:
        best = "bold green" if choice == fleet.best else ""
        table.add_row(
            Text(choice.name, style=best),
            duration(choice.period_s),
            Text(f"{choice.ettr:.4f}", style=best),
            choice.meaning,
        )
    screen.print(table)
    _say(
        screen,
        "goodput",
        f"{fleet.best.ettr:.1%} of the time makes progress: the work of {fleet.gpus_worth:,.0f} GPUs that never fail; "
        f"{fleet.lost_gpu_hours:,.0f} GPU hours lost a day; Meta's expected ETTR, first order: {fleet.meta_ettr:.3f}",
    )


def _reserves(fleet: FleetPlan, screen: Console) -> None:
    budget, reserve = fleet.budget, fleet.reserve
    told = (
        f"{budget.expected:,.1f} failures expected in {duration(budget.horizon_s)}; max_failures={budget.max_failures} "
        f"lets the job live with probability {budget.survive:g} (dies: {budget.dies:.2%})"
    )
    if budget.given is not None and budget.given_dies is not None:
        told += f"; with max_failures={budget.given} it dies with probability {budget.given_dies:.2%}"
    _say(screen, "budget", told)
    _say(
        screen,
        "spares",
        f"{reserve.spares} machines, enough with probability {reserve.survive:g} where each is away "
        f"{reserve.away:.3%} of the time, {duration(reserve.repair_s)} for each failure",
    )


def _knobs(fleet: FleetPlan, screen: Console) -> None:
    screen.print()
    table = _table("what would help", "ETTR", "gain", "GPUs more")
    for knob in fleet.knobs:
        table.add_row(knob.name, f"{knob.ettr:.4f}", f"{knob.gain:+.4f}", f"{knob.gpus:,.0f}")
    screen.print(table)


def _sizing(sizing: Sizing, period_steps: int | None, screen: Console) -> None:
    training = sizing.training
    screen.print()
    _say(
        screen,
        "model",
        f"{training.parameters / 1e9:,.1f} billion parameters, {_size(sizing.state_bytes)} of state; a step of "
        f"{training.tokens_per_gpu:,.0f} tokens a GPU computes {duration(sizing.compute_s)}; a checkpoint takes "
        f"{duration(sizing.checkpoint_s)} at {training.storage_bytes_s / GB:g} GB/s: "
        f"the best period is {period_steps:,} steps",
    )
    table = _table(
        "strategy", "state a GPU", "left of memory", "NIC a step", "NIC time", "efficiency", "tokens/s", "knee",
    )  # fmt: skip
    for strategy in sizing.strategies:
        table.add_row(*_strategy(strategy))
    screen.print(table)
    for strategy in sizing.strategies:
        _say(screen, strategy.name, f"{strategy.meaning}: {_judged(strategy)}", COLOURS[strategy.bound])


def _strategy(strategy: Strategy) -> tuple[str, ...]:
    return (
        strategy.name,
        _size(strategy.state_bytes),
        _size(strategy.left_bytes) if strategy.fits else "does not fit",
        _size(strategy.nic_bytes),
        duration(strategy.nic_s),
        f"{strategy.efficiency:.1%}",
        f"{strategy.tokens_s:,.0f}",
        "none" if strategy.knee is None else f"{strategy.knee:,}",
    )


def _judged(strategy: Strategy) -> str:
    if not strategy.fits:
        return "its state does not fit into the memory of a GPU"
    return f"{strategy.bound}{f', {ADVICE}' if strategy.bound is Bound.NETWORK else ''}"


def _simulation(simulated: Simulated, screen: Console) -> None:
    found = simulated.outcome
    screen.print()
    _say(
        screen,
        "simulate",
        f"ETTR {found.ettr:.4f} ± {found.error:.4f} (standard error of {found.replicas:,} replicas of "
        f"{duration(found.horizon_s)}, seed {found.seed}); nine in ten lie within {found.low:.4f} to {found.high:.4f}; "
        f"the formula gives {simulated.exact_ettr:.4f}",
    )
    survived = "" if found.survived is None else f"; {found.survived:.2%} of the replicas kept to the budget"
    _say(screen, "", f"{found.failures:,.1f} failures, in 99 % at most {found.most_failures:,.0f}{survived}")
    _say(screen, "", f"one checkpoint every {duration(simulated.period_s)}; {simulated.spares} spares; the job goes on "
         f"with {simulated.least_gpus:,} GPUs or more")  # fmt: skip
    for line in simulated.setting:
        _say(screen, "", line)
    table = _table("bucket", "share", "what it spans", words=("what it spans",))
    for bucket, share in found.shares.items():
        table.add_row(bucket, f"{share:.3%}", BUCKETS[bucket])
    screen.print(table)
