"""How fast fleets are simulated, beside an event-by-event model of the same system in SimPy, and whether both agree.

    .venv/bin/python benchmarks/simulator.py [--replicas 10000] [--events 200]

The system: 16,384 GPUs on 2,048 machines for 54 days at the failure rate of Llama 3, a checkpoint of 5 minutes at the
best period, 10 minutes down and 5 to restore, every failure takes a machine away for a day, 15 spares. Printed are the
seconds of processor time for each replica (which other load on the machine hardly changes), their ratio, both shares of
kept work with standard errors, the exact efficiency, and the peak of the resident memory. Then the simulator alone
against the exact efficiency, from an MTBF of 10 checkpoints to one of 10,000. Exit code 1 when --replicas take 10 s or
more, or 1 GiB; when SimPy is less than 100 times slower; or when the shares differ by more than four standard errors.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import simpy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from metrics.plan.distributions import Constant
from metrics.plan.failures import job_mtbf_s
from metrics.plan.formulas import Costs, efficiency, optimum_s
from metrics.plan.hazard import Steady
from metrics.plan.presets import preset
from metrics.plan.quantities import DAY_S
from metrics.plan.simulate import simulate
from metrics.plan.system import Kind, System

SECONDS, MEMORY_MIB, FASTER, ERRORS, RELATIVE = 10.0, 1024.0, 100.0, 4.0, 0.005

COSTS = Costs(
    checkpoint_s=300, restore_s=300, downtime_s=600, mtbf_s=job_mtbf_s(16384, preset("llama3").per_machine_day)
)
SYSTEM = System(
    machines=2048, spares=15, hazard=Steady(COSTS.mtbf_s), checkpoint_s=300, period_s=optimum_s(COSTS),
    horizon_s=54 * DAY_S, restart=Constant(600), restore=Constant(300),
    kinds=(Kind(machines=1, repair=Constant(DAY_S)),),
)  # fmt: skip


class Job:
    """One replica in SimPy: a process that trains, one that breaks it, and one for each machine in repair."""

    def __init__(self, system: System, dice: random.Random) -> None:
        self.system, self.dice, self.env = system, dice, simpy.Environment()
        self.machines = simpy.Container(self.env, init=system.fleet)
        self.kept = 0.0
        self.env.process(self.train())

    def run(self) -> float:
        self.env.run(until=self.system.horizon_s)
        return self.kept / self.system.horizon_s

    def train(self) -> Iterator[simpy.Event]:
        system, loading = self.system, 0.0
        yield self.machines.get(system.machines)
        while True:
            self.env.process(self.break_(self.env.active_process))
            try:
                yield self.env.timeout(loading)
                while True:
                    began = self.env.now
                    yield self.env.timeout(system.period_s - system.checkpoint_s)
                    yield self.env.timeout(system.checkpoint_s)
                    self.kept += self.env.now - began - system.checkpoint_s
            except simpy.Interrupt:
                pass
            yield self.env.timeout(system.restart.mean_s)
            yield self.machines.get(1)
            loading = system.restore.mean_s

    def break_(self, job: simpy.Process) -> Iterator[simpy.Event]:
        yield self.env.timeout(self.dice.expovariate(1 / self.system.hazard.mtbf_s))
        self.env.process(self.repair())
        job.interrupt()

    def repair(self) -> Iterator[simpy.Event]:
        yield self.env.timeout(self.system.kinds[0].repair.mean_s)
        yield self.machines.put(1)


def event_by_event(replicas: int) -> tuple[float, float, float]:
    """Mean share of kept work, its standard error, and the processor time of one replica."""
    dice = random.Random(1)
    begin = time.process_time()
    shares = [Job(SYSTEM, dice).run() for _ in range(replicas)]
    spent = (time.process_time() - begin) / replicas
    return statistics.fmean(shares), statistics.stdev(shares) / replicas**0.5, spent


def against_exact() -> float:
    """The largest relative difference from the exact efficiency; prints each."""
    worst = 0.0
    print("MTBF / checkpoint   simulated   error    exact    difference")
    for ratio in (10, 30, 100, 300, 1000, 3000, 10_000):
        costs = Costs(checkpoint_s=60, restore_s=30, downtime_s=90, mtbf_s=60.0 * ratio)
        period = optimum_s(costs)
        job = System(
            machines=8, hazard=Steady(costs.mtbf_s), checkpoint_s=60, period_s=period, horizon_s=1000 * costs.mtbf_s,
            restart=Constant(90), restore=Constant(30),
        )  # fmt: skip
        found, exact = simulate(job, 1000), efficiency(costs, period)
        worst = max(worst, abs(found.ettr / exact - 1))
        told = f"{found.ettr:9.5f}  {found.error:7.5f}  {exact:7.5f}  {found.ettr / exact - 1:+9.3%}"
        print(f"{ratio:>17}   {told}")
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=200, help="replicas of the model in SimPy")
    asked = parser.parse_args()
    simulate(SYSTEM, 2)
    begin = time.process_time()
    found = simulate(SYSTEM, asked.replicas)
    spent = time.process_time() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    share, error, each = event_by_event(asked.events)
    ratio, apart = each / (spent / asked.replicas), abs(found.ettr - share) / (found.error**2 + error**2) ** 0.5
    exact = efficiency(COSTS, SYSTEM.period_s)
    ours = spent / asked.replicas * 1e6
    print(f"aftershock  {asked.replicas} replicas in {spent:.2f} s of the processor, {ours:.0f} us each")
    print(f"            {memory:.0f} MiB at most")
    print(f"SimPy       {asked.events} replicas, {each * 1e3:.1f} ms each: {ratio:.0f} times as long")
    print(f"            (promised: {FASTER:g})")
    print(f"kept work   {found.ettr:.5f} ± {found.error:.5f}, SimPy {share:.5f} ± {error:.5f}")
    print(f"            {apart:.1f} errors apart")
    print(f"exact       {exact:.5f}, without repairs and spares: {found.ettr / exact - 1:+.3%}")
    worst = against_exact()
    fast = spent < SECONDS * asked.replicas / 10_000 and memory < MEMORY_MIB and ratio >= FASTER
    return 0 if fast and apart < ERRORS and worst < RELATIVE else 1


if __name__ == "__main__":
    sys.exit(main())
