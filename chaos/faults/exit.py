"""Leave without a word, as a library that calls ``exit`` on an error would."""

from __future__ import annotations

import os
from dataclasses import dataclass

from chaos.faults.base import Fault, Proof, register


@register
@dataclass(frozen=True)
class Exit(Fault):
    """``os._exit``: no exception, no clean-up, only an exit code.

    ``code``: the exit code, 0 to 255; 0 looks like success and must not be taken for one.
    """

    name = "exit"
    effect = "the process has left the process table with the exit code asked for"
    certifies = "that a worker which just leaves counts as failed, whatever its exit code"
    not_certified = "an orderly end by SystemExit, which Python turns into an exception first"
    proof = Proof.EXIT

    code: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.code <= 255:
            raise ValueError(f"exit: code={self.code} must lie between 0 and 255")

    @property
    def cause(self) -> str:
        """The exit code."""
        return f"exit code {self.code}"

    def fire(self) -> None:
        """Leave, here."""
        os._exit(self.code)
