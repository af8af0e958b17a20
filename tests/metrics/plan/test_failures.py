"""How often a job fails, and what must be kept in reserve for it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.plan.failures import away_share, budget, job_mtbf_s, standby, survival
from metrics.plan.presets import PRESETS, preset
from metrics.plan.quantities import PlanError


@pytest.mark.parametrize(("gpus", "hours"), [(16384, 1.803), (131072, 0.2254), (1024, 28.85)])
def test_the_time_between_failures_of_a_job(gpus, hours):
    assert job_mtbf_s(gpus, 6.5e-3) / 3600 == pytest.approx(hours, rel=5e-4)


@pytest.mark.parametrize(("away", "spares"), [(0.001, 4), (0.0015, 5), (0.0065, 13)])
def test_the_spares_of_a_thousand_machines(away, spares):
    assert standby(1024, away, 0.99) == spares


def test_the_presets_give_back_what_was_published():
    assert job_mtbf_s(16384, preset("llama3").per_machine_day) / 3600 == pytest.approx(3.093, abs=5e-4)
    assert job_mtbf_s(100_000, preset("ft-hsdp").per_machine_day) / 60 == pytest.approx(18)
    assert (preset("rsc1").per_machine_day, preset("rsc2").per_machine_day) == (6.5e-3, 2.34e-3)
    assert all(found.source.rstrip("s").endswith(("day", "minute")) for found in PRESETS.values())


def poisson(expected: float, most: int) -> float:
    return math.fsum(math.exp(-expected + k * math.log(expected) - math.lgamma(k + 1)) for k in range(most + 1))


@given(st.floats(0.01, 300), st.floats(0.001, 0.9999))
def test_a_budget_is_the_least_that_reaches_its_probability(expected, survive):
    found = budget(expected, survive)
    assert survival(expected, found) >= survive
    assert found == 0 or survival(expected, found - 1) < survive
    assert survival(expected, found) == pytest.approx(poisson(expected, found), abs=1e-9)


def test_no_failure_expected_needs_no_budget():
    assert (budget(0, 0.99), survival(0, 0), survival(5, -1)) == (0, 1, 0)


@given(st.integers(1, 300), st.floats(0.0001, 0.5), st.floats(0.01, 0.9999))
def test_a_reserve_is_the_least_that_reaches_its_probability(machines, away, survive):
    found = standby(machines, away, survive)

    def most(k: int) -> float:
        return math.fsum(math.comb(machines, i) * away**i * (1 - away) ** (machines - i) for i in range(k + 1))

    assert most(found) >= survive - 1e-9
    assert found == 0 or most(found - 1) < survive + 1e-9


def test_machines_that_never_or_always_are_away():
    assert (standby(10, 0, 0.99), standby(10, 1, 0.99)) == (0, 10)


def test_the_share_of_its_time_that_a_machine_is_away():
    assert away_share(0.01, 0) == 0
    assert away_share(1, 86400) == 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: job_mtbf_s(0, 6.5e-3), "gpus=0 is outside"),
        (lambda: job_mtbf_s(8, 6.5), "per_machine_day=6.5 .*0.0065 for 6.5 in 1000"),
        (lambda: job_mtbf_s(8, -1), "per_machine_day=-1 must be above 0"),
        (lambda: budget(10, 1.0), "survive=1 cannot be reached by any finite number"),
        (lambda: budget(10, 99), "survive=99 is outside 0 to 1: a probability; write 0.99"),
        (lambda: budget(-1, 0.9), "expected=-1 is outside"),
        (lambda: standby(10, 1.5, 0.9), "away=1.5 is outside"),
        (lambda: standby(10, 0.5, 1.0), "cannot be reached"),
        (lambda: away_share(0.01, -5), "repair_s=-5"),
        (lambda: preset("llama4"), "unknown preset 'llama4': known are llama3, rsc1"),
    ],
)
def test_a_number_that_makes_no_sense_is_named(call, message):
    with pytest.raises(PlanError, match=message):
        call()
