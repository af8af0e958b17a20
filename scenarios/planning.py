"""The command ``aftershock plan``: its options; everything else is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from scenarios import asking

EXAMPLES = """\b
Examples:
  aftershock plan --gpus 16384 --mtbf-preset llama3
  aftershock plan --gpus 16384 --mtbf-preset llama3 --checkpoint-s 10 --downtime-s 300 --restore-s 60
  aftershock plan --gpus 2048 --mtbf-h 12 --from runs/<run> --horizon-days 90 --max-failures 100
  aftershock plan --gpus 32 --model 7b --nic-gbps 400 --nics 8
  aftershock plan --gpus 4096 --mtbf-preset rsc1 --simulate --spares 4 --least-gpus 3968 --repair-h 48
  aftershock plan --gpus 4096 --mtbf-preset rsc1 --simulate --kind hang:share=0.1,detect=600,machines=0
  aftershock plan --gpus 4096 --trace failures.csv --simulate --json
"""


@click.command(epilog=EXAMPLES)
@click.option("--gpus", type=int, required=True, help="GPUs of the job.")
@click.option("--gpus-per-machine", type=int, default=8, show_default=True, help="GPUs that fail together.")
@click.option("--mtbf-preset", help="Published failure rate: llama3, rsc1, rsc2, ft-hsdp.  [default: rsc1]")
@click.option("--mtbf-h", type=float, help="Hours between two failures of the whole job.")
@click.option("--failure-rate", type=float, metavar="RATE", help="Failures of one machine in a day, such as 0.0065.")
@click.option("--trace", type=click.Path(path_type=Path), metavar="CSV", help="Recorded failures, to go by and replay.")
@click.option(
    "--from", "run", type=click.Path(path_type=Path), metavar="RUN", help="Take costs from a stored run of aftershock."
)
@click.option("--checkpoint-s", metavar="S", help="Stall of one checkpoint.  [default: of --from or --model, else 300]")
@click.option("--downtime-s", metavar="S", help="Failure to load of the checkpoint.  [default: of --from, else 600]")
@click.option("--restore-s", metavar="S", help="Load of the checkpoint.  [default: of --from, else 300]")
@click.option("--period-s", type=float, help="From one checkpoint to the next, as it is now.")
@click.option("--horizon-days", type=float, default=30.0, show_default=True, help="How long the job must last.")
@click.option("--survive", type=float, default=0.99, show_default=True, help="Wanted probability that it does.")
@click.option("--max-failures", type=int, help="Budget of failures that it has now.")
@click.option("--repair-h", type=float, default=24.0, show_default=True, help="How long a failed machine is away.")
@click.option("--model", metavar="SIZE", help="Size a model of so many parameters, such as 7b.")
@click.option("--tokens-per-gpu", type=float, default=32768, show_default=True, help="In one step.")
@click.option("--tflops", type=float, default=400, show_default=True, help="TFLOP/s that a GPU really does.")
@click.option("--nic-gbps", type=float, default=400, show_default=True, help="Gbit/s of one network card.")
@click.option("--nics", type=int, default=8, show_default=True, help="Network cards of one machine.")
@click.option("--gpu-memory-gb", type=float, default=80, show_default=True, help="Memory of one GPU.")
@click.option("--storage-gb-s", type=float, default=2, show_default=True, help="GB/s that all ranks write together.")
@click.option("--simulate", is_flag=True, help="Simulate the fleet many times, too.")
@click.option("--replicas", type=int, default=1000, show_default=True, help="How often.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the simulation.")
@click.option("--spares", type=int, help="Machines that stand by.  [default: as planned]")
@click.option("--least-gpus", type=int, help="An elastic job goes on with so many.  [default: all]")
@click.option(
    "--kind", "kinds", multiple=True, metavar="NAME:KEY=VALUE,...",
    help="A kind of failures: share, detect (s), machines, repair_h. What is left takes one machine.",
)  # fmt: skip
@click.option("--burst", metavar="KEY=VALUE,...", help="Failures bring others: probability, within_s.")
@click.option("--infant", metavar="KEY=VALUE,...", help="A new fleet fails more: times, days; wears out: wear_days.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(as_json: bool, **values: Any) -> None:
    """Plan a fleet: how often to save, what failures cost, what to keep in reserve; and size a model.

    Durations are in seconds; in a simulation those of downtime, restore and detect may vary: write
    exponential(600) or lognormal(600, 0.5).
    """
    import msgspec

    from chaos.exits import UsageError
    from metrics.plan.quantities import PlanError
    from scenarios import plan_request, plan_view

    try:
        record = plan_request.make(plan_request.Asked(**values))
    except PlanError as error:
        raise UsageError(str(error)) from error
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(record), indent=1).decode())
    else:
        plan_view.show(record, asking.console())
