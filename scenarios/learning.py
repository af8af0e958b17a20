"""What an undisturbed run tells of a script that nobody configured here, and the scenario cut to its measure."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass

from chaos.exits import UsageError
from chaos.faults.base import all_faults
from chaos.history import History
from chaos.schedule import plan
from chaos.targets import NoTarget
from metrics.attempts import attempts_of
from metrics.expectations import parse
from scenarios import extensions
from scenarios.request import Request
from scenarios.scenario import Shape, check_injections

EVERY = 1_000_000
"""Checkpoints kept where retention keeps them all."""

DEADLINE_S, LONGER = 300.0, 3.0
"""A disturbed run may take so many times the undisturbed one's time, and so many seconds more."""

SOON_S = 120.0
"""A time-out that is waited for, seconds."""


class Unfit(UsageError):
    """The script cannot run a scenario: a suite skips it with this reason."""


@dataclass(frozen=True)
class Learnt:
    """What a control run told of its job.

    ``fewest``: of an elastic group, 0 for one of fixed size. ``commits``: the steps of its checkpoints, in order.
    ``timeout_s``: the process group's. ``life_s``: how long the script ran.
    """

    workers: int
    fewest: int
    steps: int
    commits: tuple[int, ...]
    keep: int
    max_failures: int
    timeout_s: float | None
    life_s: float

    @classmethod
    def of(cls, history: History) -> Learnt | None:
        """What a history tells; None where the run did not end well, or told of no step, so that nothing is known."""
        started, ended = history.first("controller.start"), history.first("workload.exit")
        begun, attempts = history.first("workload.start"), attempts_of(history)
        if started is None or begun is None or ended is None or ended.data["code"] != 0 or not attempts:
            return None
        asked, steps = started.data["workers"], attempts[-1].step_of_all
        if not steps:
            return None
        return cls(
            workers=attempts[-1].world_size,
            fewest=asked[0] if isinstance(asked, list) else 0,
            steps=steps,
            commits=tuple(sorted({e.step for attempt in attempts for e in attempt.commits if e.step})),
            keep=started.data.get("keep") or EVERY,
            max_failures=started.data.get("max_failures", 0),
            timeout_s=started.data.get("timeout_s"),
            life_s=ended.wall - begun.wall,
        )

    @property
    def interval(self) -> int:
        """The most steps between two checkpoints; all steps where there are none."""
        gaps = [after - before for before, after in itertools.pairwise((0, *self.commits))]
        return max(gaps, default=self.steps)

    def step(self, shape: Shape) -> int:
        """The step that lies between its checkpoints as the shape's own lies between the shape's.

        Where it has fewer, after the last of them that leaves room for a step more.
        """
        if not self.commits:
            return min(max(1, round(shape.step / shape.steps * self.steps)), max(1, self.steps - 1))
        whole, part = divmod(shape.step, shape.checkpoint_every)
        before = [step for step in (0, *self.commits)[: whole + 1] if step < self.steps - 1] or [0]
        beyond = max(1, round(part / shape.checkpoint_every * self.interval))
        return min(before[-1] + beyond, max(1, self.steps - 1))


def settle(request: Request, learnt: Learnt) -> Request:
    """The request for the script that was learnt of: its shape, its injections, its deadline.

    Raises Unfit where the scenario asks for what the script does not do.
    """
    scenario, asked, options = request.scenario, request.shape, request.options
    if scenario.unfit:
        raise Unfit(f"{scenario.name} {scenario.unfit}")
    if asked.min_workers and not learnt.fewest:
        raise Unfit(f"{scenario.name} resizes the job: it needs ScalingConfig(num_workers=(least, most))")
    try:
        shape = _fitted(request, learnt)
        injections = plan(scenario.inject(shape), scenario.world(shape), options.seed)
        check_injections(injections, shape)
        extensions.check_carried(injections)
    except (ValueError, UsageError, NoTarget) as error:
        raise Unfit(f"{scenario.name} does not fit the script: {error}") from error
    if waits := next((i.fault for i in injections if not _noticed(i.fault, shape)), ""):
        raise Unfit(
            f"{scenario.name}: only the process group's time-out would notice the fault {waits}, and the script leaves "
            f"it at {shape.timeout_s} s: set TorchConfig(timeout_s={asked.timeout_s}) there"
        )
    expects = scenario.expectation(shape)
    expects = expects.but(parse(options.expect)) if options.expect else expects
    deadline = options.deadline or DEADLINE_S + LONGER * learnt.life_s + scenario.waits_s
    options = options.model_copy(update={"deadline": deadline})
    return dataclasses.replace(request, shape=shape, injections=injections, expects=expects, options=options)


def _fitted(request: Request, learnt: Learnt) -> Shape:
    """The scenario's shape with the script's numbers; a rank and a step that the user named stay."""
    asked, options = request.shape, request.options
    step = learnt.step(asked) if options.step is None else asked.step
    since_last = step - max(commit for commit in (0, *learnt.commits) if commit <= step)
    return dataclasses.replace(
        asked,
        workers=learnt.workers,
        min_workers=learnt.fewest,
        nodes=asked.node_count,
        per_node=max(asked.per_node, math.ceil((learnt.fewest or learnt.workers) / asked.node_count)),
        steps=learnt.steps,
        checkpoint_every=max(learnt.interval, since_last),
        keep=learnt.keep,
        max_failures=learnt.max_failures,
        timeout_s=round(learnt.timeout_s or asked.timeout_s),
        rank=min(asked.rank, learnt.workers - 1) if options.rank is None else asked.rank,
        step=step,
    )


def _noticed(fault: str, shape: Shape) -> bool:
    """Whether a fault that some time-out must notice is noticed within minutes under those of the shape."""
    names = all_faults()[fault].noticed_by
    limits = [limit for name in names if (limit := shape.timeouts[name]) is not None]
    return not names or min(limits, default=math.inf) <= SOON_S
