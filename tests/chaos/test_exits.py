"""Exit codes: their numbers are a promise, and the worst of several decides."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest

from chaos.exits import PRECEDENCE, ExitCode, worst


def test_the_numbers_are_a_promise():
    assert {code.name: int(code) for code in ExitCode} == {
        "PASS": 0,
        "FAIL": 1,
        "UNKNOWN": 2,
        "NOT_STEADY": 3,
        "NOT_INJECTED": 4,
        "NOT_HEALED": 5,
        "ABORTED": 6,
        "USAGE": 64,
        "BUG": 70,
    }


def test_the_precedence_holds_every_outcome_of_a_run():
    assert [int(code) for code in PRECEDENCE] == [5, 70, 6, 4, 3, 1, 2, 0]
    assert set(PRECEDENCE) == set(ExitCode) - {ExitCode.USAGE}


@pytest.mark.parametrize(("worse", "better"), list(pairwise(PRECEDENCE)))
def test_the_worse_of_two_decides(worse, better):
    assert worst([worse, better]) is worst([better, worse]) is worse


def test_the_worst_of_all_decides_in_any_order():
    few = [ExitCode.PASS, ExitCode.FAIL, ExitCode.BUG, ExitCode.UNKNOWN]
    assert {worst(order) for order in permutations(few)} == {ExitCode.BUG}


def test_no_outcome_is_no_evidence():
    assert worst([]) is ExitCode.UNKNOWN
    assert worst(iter([ExitCode.PASS])) is ExitCode.PASS
