"""The oracles on trial: a buggy trainer is caught by the check it should be, and by no other than declared.

Eight run in CI, where the healthy trainer is green under the faults of test_faults; all of them by ``make mutants``.
"""

from __future__ import annotations

import pytest

from tests.live.bench import Bench
from tests.mutants.catalogue import MUTANTS, SAMPLE
from tests.mutants.trial import try_program


@pytest.mark.parametrize("name", SAMPLE)
def test_mutant_is_caught_by_its_check(bench: Bench, name: str) -> None:
    outcome, told = try_program(bench, MUTANTS[name])
    assert outcome.good, f"{outcome.verdict}; {outcome.rest}\n{told}"
