"""All buggy trainers, and the healthy one three times in a row."""

from __future__ import annotations

import pytest

from tests.live.bench import Bench
from tests.mutants.catalogue import MUTANTS
from tests.mutants.trial import healthy_is_green, is_caught


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught_by_its_check(bench: Bench, name: str) -> None:
    is_caught(bench, MUTANTS[name])


@pytest.mark.parametrize("repetition", [1, 2, 3])
def test_healthy_trainer_is_green_three_times_in_a_row(bench: Bench, repetition: int) -> None:
    healthy_is_green(bench, f"healthy-{repetition}")
