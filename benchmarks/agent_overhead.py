"""What the agent costs: the same training steps with its hooks on and off, in alternating blocks of one process.

Shared machines change their speed by a third from one second to the next. So each step is timed against a reference,
the same forward and backward pass without a hook, mean of the ones right before and after; a block's figure is the
median of step / reference over its steps. Printed is the ratio of these figures on / off, with a 95 % bootstrap
interval over pairs of neighbouring blocks, and apart from it the cost of the state digests, which are taken at saves
and loads only. Exits with 1 when the upper bound of the ratio is over 1.01.

    python benchmarks/agent_overhead.py [--blocks 40] [--steps 50] [--step-ms 50]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from chaos import observe
from chaos.agent import session
from chaos.agent.events import EventWriter
from chaos.agent.plan import Injection, Plan
from chaos.triggers import at_step
from trainer.config import TrainerConfig
from trainer.model import VOCABULARY, Decoder, next_token_loss

LIMIT = 1.01
BOOTSTRAPS = 20_000


class Job:
    """A decoder trained on random tokens, one process, a step of about the wanted length."""

    def __init__(self, step_ms: float) -> None:
        self.config = TrainerConfig(dropout=0.0)
        torch.manual_seed(0)
        self.model = Decoder(self.config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batch = 8
        for _ in range(3):  # the time of a step grows with its batch, less than in proportion
            seconds = statistics.median(timed(self.step) for _ in range(8))
            self.batch = max(4, round(self.batch * step_ms / 1000 / seconds))

    def backward(self, batch: int) -> torch.Tensor:
        """The loss on that many random sequences, its gradients added."""
        tokens = torch.randint(VOCABULARY, (batch, self.config.sequence_length + 1))
        loss = next_token_loss(self.model, tokens)
        loss.backward()
        return loss

    def step(self) -> None:
        """One step, told to the observer as the reference trainer tells it."""
        observe.samples(range(self.batch))
        observe.loss(self.backward(self.batch).item())
        self.optimizer.step()
        self.optimizer.zero_grad()

    def reference(self) -> None:
        """The computation of a step without its end, in which the agent has no part."""
        self.backward(self.batch)
        self.optimizer.zero_grad()


def timed(work: Callable[[], None]) -> float:
    """Seconds that a piece of work takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def agent(folder: Path) -> session.Session:
    """A session as in a training worker, with a fault armed that never comes due."""
    never = Injection(id="k", fault="kill", rank=0, trigger=at_step(10**9))
    plan = Plan(run_id="bench", directory=str(folder), injections=(never,))
    plan.write()
    writer = EventWriter(plan.events, "127.0.0.1")
    writer.common = {"attempt": 0, "rank": 0, "world_size": 1}
    return session.Session(plan, writer, rank=0, attempt=0, steps_done=0)


def block(job: Job, steps: int) -> float:
    """Median of step / reference in one block."""
    found = []
    before = timed(job.reference)
    for _ in range(steps):
        step = timed(job.step)
        after = timed(job.reference)
        found.append(2 * step / (before + after))
        before = after
    return statistics.median(found)


def with_agent(me: session.Session, work: Callable[[], float]) -> float:
    """Do the work with the agent's hooks on."""
    me.start(None)
    session.begin(me)
    try:
        return work()
    finally:
        session.begin(None)
        me.stop()


def ratios(job: Job, me: session.Session, blocks: int, steps: int) -> np.ndarray:
    """Ratio on / off of each pair of neighbouring blocks; which of the two comes first alternates."""
    found = []
    for pair in range(blocks // 2):
        if pair % 2:
            off = block(job, steps)
            on = with_agent(me, lambda: block(job, steps))
        else:
            on = with_agent(me, lambda: block(job, steps))
            off = block(job, steps)
        found.append(on / off)
        print(f"\r  block {2 * pair + 2}/{blocks}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return np.array(found)


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Geometric mean and its 95 % bootstrap interval."""
    logs = np.log(values)
    means = np.random.default_rng(0).choice(logs, (BOOTSTRAPS, len(logs))).mean(axis=1)
    low, high = np.exp(np.quantile(means, [0.025, 0.975]))
    return float(np.exp(logs.mean())), float(low), float(high)


def digest_cost(job: Job, me: session.Session) -> tuple[float, float]:
    """Milliseconds to digest the model's and optimizer's state once (median of 5), and its size in MB."""
    moments = {str(i): dict(state) for i, state in enumerate(job.optimizer.state.values())}
    tree = {"model": job.model.state_dict(), "moments": moments}
    tensors = [t for part in (tree["model"], *moments.values()) for t in part.values()]
    costs = []
    for _ in range(5):
        begin = time.perf_counter()
        me.state("saved", tree)
        costs.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(costs), sum(t.numel() * t.element_size() for t in tensors) / 1e6


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-ms", type=float, default=50.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    job = Job(options.step_ms)
    with tempfile.TemporaryDirectory() as folder:
        me = agent(Path(folder))
        block(job, options.steps)
        ratio, low, high = interval(ratios(job, me, options.blocks, options.steps))
        milliseconds, size = digest_cost(job, me)
    step_ms = statistics.median(timed(job.step) for _ in range(options.steps)) * 1e3
    print(f"step                   {step_ms:.1f} ms, {options.blocks} blocks of {options.steps} steps")
    print(f"agent on / off         {ratio:.4f}, 95 % interval {low:.4f} to {high:.4f} (upper bound: at most {LIMIT})")
    print(f"state digests, apart   {milliseconds:.1f} ms for {size:.1f} MB, at each save and load")
    return 0 if high <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
