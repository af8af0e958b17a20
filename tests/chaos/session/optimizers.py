"""torch's own optimizers, stepped by hand, and what is armed for them."""

from __future__ import annotations

import dataclasses

import torch

from chaos.agent.plan import Injection
from chaos.triggers import at_step


def optimizer(kind=torch.optim.SGD, parameters=1, **options):
    return kind([torch.zeros(2, requires_grad=True) for _ in range(parameters)], **options)


def step(*optimizers, times=1):
    for _ in range(times):
        for one in optimizers:
            for parameter in one.param_groups[0]["params"]:
                parameter.grad = torch.ones_like(parameter)
            one.step()


def steps(events):
    return [event.step for event in events]


def armed(plan, *injections):
    return dataclasses.replace(plan, injections=injections)


def note(step, rank=0):
    return Injection(id="note-0", fault="note", rank=rank, trigger=at_step(step))
