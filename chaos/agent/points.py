"""The points of a training process where a fault can fire, each listened to only while an armed fault needs it."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any

Reach = Callable[[str, str], None]
"""Is told the phase whose point has been reached, and the folder it is about; what it raises is the workload's."""

Remove = Callable[[], None]

NEAR = 8
"""How many callers up from an optimizer's step the one is looked for that only makes state."""

SHARD = ".distcp"
"""Suffix of the files that torch.distributed.checkpoint writes, one or more for each rank."""


def listen(phases: Collection[str], reach: Reach) -> list[Remove]:
    """Listen to the points of those phases that need a hook of their own; returns how to stop."""
    removers = []
    if "optimizer" in phases:
        removers.append(_optimizer(reach))
    if {"first-step", "forward", "evaluation"} & set(phases):
        removers.append(_forward(reach))
    if "save" in phases:
        removers.append(_save(reach))
    for phase, function in (("rendezvous", "init_process_group"), ("teardown", "destroy_process_group")):
        if phase in phases:
            removers.append(_before(function, phase, reach))
    return removers


def only_makes_state(depth: int) -> bool:
    """Whether torch takes this step to make empty optimizer state before a load: it is none of the training's."""
    frame: FrameType | None = sys._getframe(depth)
    for _ in range(NEAR):
        if frame is None:
            return False
        if frame.f_code.co_name == "_init_optim_state":
            return True
        frame = frame.f_back
    return False


def _optimizer(reach: Reach) -> Remove:
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    steps: dict[int, int] = {}
    furthest = 0

    def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
        """Several optimizers fold into one step: its point is before the first of them."""
        nonlocal furthest
        if only_makes_state(2):
            return
        mine = steps[id(optimizer)] = steps.get(id(optimizer), 0) + 1
        if mine > furthest:
            furthest = mine
            reach("optimizer", "")

    return register_optimizer_step_pre_hook(hook).remove


def _forward(reach: Reach) -> Remove:
    """The first module called in training mode is the first step; one without children is inside a forward pass."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    seen = 0

    def hook(module: Any, inputs: Any) -> None:
        nonlocal seen
        seen += module.training
        if not module.training:
            reach("evaluation", "")
        elif seen == 1:
            reach("first-step", "")
        elif not any(module.children()):
            reach("forward", "")

    return register_module_forward_pre_hook(hook).remove


def _save(reach: Reach) -> Remove:
    """Audit hooks cannot be removed: this one falls silent instead."""
    listening = True

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if listening and event == "open" and str(args[0]).endswith(SHARD) and "w" in str(args[1] or ""):
            reach("save", str(Path(os.fsdecode(args[0])).absolute().parent))

    def remove() -> None:
        nonlocal listening
        listening = False

    sys.addaudithook(hook)
    return remove


def _before(function: str, phase: str, reach: Reach) -> Remove:
    """Stand before a function of ``torch.distributed``, which Ray calls by its name in that module."""
    import torch.distributed as dist

    original = getattr(dist, function)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        reach(phase, "")
        return original(*args, **kwargs)

    setattr(dist, function, wrapped)
    return lambda: setattr(dist, function, original)
