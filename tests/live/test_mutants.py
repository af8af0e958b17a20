"""The oracles on trial: a buggy trainer is caught by the check it should be.

One bug runs in CI, where the healthy trainer is green under the faults of test_faults; all of them in the long tier.
"""

from __future__ import annotations

import pytest

from tests.live.bench import Bench
from tests.mutants.catalogue import MUTANTS
from tests.mutants.trial import is_caught

SAMPLE = ("optimizer-not-restored",)


@pytest.mark.parametrize("name", SAMPLE)
def test_mutant_is_caught_by_its_check(bench: Bench, name: str) -> None:
    is_caught(bench, MUTANTS[name])
