"""Never report, as a rank that waits for something of its own before its save would."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.faults.base import register
from chaos.faults.hang import Hang


@register
@dataclass(frozen=True)
class MissingReport(Hang):
    """The rank blocks at the entry of ``ray.train.report``; the others have reported and wait for it."""

    name = "missing-report"
    effect = "the rank stands at the entry of its report, and no rank completes a step"
    certifies = "that a rank which never reports is noticed by the time-out of Ray's report barrier, with one restart"
    not_certified = "a rank that goes on training without its report, which a program may survive"
    noticed_by = ("report",)
    points = ("report",)
