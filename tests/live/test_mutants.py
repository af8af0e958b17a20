"""The oracles on trial: each buggy trainer is caught by the check it should be, and the healthy one never is.

One bug for each oracle runs in CI; all of them, and the healthy trainer three times in a row, in the long tier.
"""

from __future__ import annotations

import pytest

from tests.live.bench import Bench
from tests.mutants.catalogue import MUTANTS
from tests.mutants.trial import healthy_is_green, is_caught

SAMPLE = ("optimizer-not-restored", "skips-a-batch", "rank-zero-saves-alone")


@pytest.mark.parametrize("name", SAMPLE)
def test_mutant_is_caught_by_its_check(bench: Bench, name: str) -> None:
    is_caught(bench, MUTANTS[name])


def test_healthy_trainer_is_green(bench: Bench) -> None:
    healthy_is_green(bench, "healthy")
