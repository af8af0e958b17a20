"""Failure rates that were published, each with its source in words."""

from __future__ import annotations

from dataclasses import dataclass

from metrics.plan.quantities import PlanError


@dataclass(frozen=True)
class Preset:
    """A published failure rate: failures of one machine of eight GPUs in a day, and where it was told."""

    name: str
    per_machine_day: float
    source: str


RSC = "Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters, HPCA 2025"

PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "llama3",
            419 / (16384 / 8 * 54),
            "Llama Team, The Llama 3 Herd of Models, 2024: 419 unexpected interruptions of 16,384 GPUs in 54 days",
        ),
        Preset("rsc1", 6.5e-3, f"{RSC}: cluster RSC-1, 6.5 failures in 1000 machine-days"),
        Preset("rsc2", 2.34e-3, f"{RSC}: cluster RSC-2, 2.34 failures in 1000 machine-days"),
        Preset(
            "ft-hsdp",
            24 / (100_000 / 8 * 0.3),
            "Salpekar et al., Training LLMs with Fault Tolerant HSDP on 100,000 GPUs, 2026: a failure every 18 minutes",
        ),
    )
}
"""The presets, by name."""


def preset(name: str) -> Preset:
    """The preset of that name.

    Raises PlanError, with the names there are.
    """
    if name not in PRESETS:
        raise PlanError(f"unknown preset {name!r}: known are {', '.join(PRESETS)}")
    return PRESETS[name]
