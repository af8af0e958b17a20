"""A fault: a way to break a training process.

This file is loaded inside training processes: it imports the standard library and chaos only.

    aftershock validate starter.py
    aftershock run --from starter.py --inject 'starter-fault(code=75); at_step(25); Rank(1)'
"""

import os
from dataclasses import dataclass

from chaos.faults.base import Fault, Proof, register


@register
@dataclass(frozen=True)
class Starter(Fault):
    """The process leaves with an exit code that asks to be started again.

    ``code``: the exit code.
    """

    name = "starter-fault"
    effect = "the process has left the process table with the exit code asked for"
    certifies = "that a worker which asks to be started again is, and that the job resumes"
    not_certified = "a worker that takes others with it"
    proof = Proof.EXIT  # what shows that it happened: the process leaves, with `cause`

    code: int = 75  # settings are numbers, texts or booleans, each with a default

    @property
    def cause(self) -> str:
        """How the process ends."""
        return f"exit code {self.code}"

    def fire(self) -> None:
        """Break this process, now."""
        os._exit(self.code)
