"""Every program that the judge is tried on: mutants by theme, each with one mistake, and healthy variants."""

from __future__ import annotations

from tests.mutants.catalogue import (
    accumulation,
    asynchronous,
    budget,
    errors,
    optimizer,
    position,
    randomness,
    reporting,
    resize,
    resume,
    retention,
    scheduler,
    shards,
    variants,
)
from tests.mutants.program import Mutant, Program, Variant

THEMES: dict[str, tuple[Mutant, ...]] = {
    "resume": resume.MUTANTS,
    "optimizer": optimizer.MUTANTS,
    "scheduler": scheduler.MUTANTS,
    "random states": randomness.MUTANTS,
    "data position": position.MUTANTS,
    "accumulation": accumulation.MUTANTS,
    "resize": resize.MUTANTS,
    "sharded save": shards.MUTANTS,
    "retention": retention.MUTANTS,
    "asynchronous save": asynchronous.MUTANTS,
    "reporting": reporting.MUTANTS,
    "error swallowing": errors.MUTANTS,
    "budget": budget.MUTANTS,
}

MUTANTS: dict[str, Mutant] = {mutant.name: mutant for found in THEMES.values() for mutant in found}

VARIANTS: dict[str, Variant] = {variant.name: variant for variant in variants.VARIANTS}

PROGRAMS: dict[str, Program] = {**MUTANTS, **VARIANTS}

SAMPLE = (
    "optimizer-not-restored",
    "decays-over-what-is-left",
    "random-state-of-rank-zero",
    "epoch-starts-over",
    "keeps-the-warm-up-gradient",
    "shard-of-the-save-before",
    "keeps-every-checkpoint",
    "hides-the-failure",
)
"""The mutants that CI has time for: eight themes, one cluster, one control run."""
