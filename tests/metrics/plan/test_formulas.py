"""Closed forms of checkpointing, against published numbers and their own properties."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.plan.formulas import (
    Costs,
    Restarts,
    daly_higher_s,
    daly_s,
    efficiency,
    least_waste,
    left_s,
    meta_ettr,
    meta_interval_s,
    optimum_s,
    rfo_s,
    waste,
    young_s,
)
from metrics.plan.quantities import PlanError

MINUTE, HOUR = 60.0, 3600.0

LLAMA3 = Costs(checkpoint_s=5 * MINUTE, restore_s=5 * MINUTE, downtime_s=10 * MINUTE, mtbf_s=3.093 * HOUR)

usual = st.builds(
    Costs,
    checkpoint_s=st.floats(0.1, 3000),
    restore_s=st.floats(0, 3000),
    downtime_s=st.floats(0, 3000),
    mtbf_s=st.floats(100, 1e8),
)


@pytest.mark.parametrize(
    ("mtbf", "young", "daly", "rfo", "optimum"),
    [
        (240601, 17592, 17615, 16968, 17194),
        (60150, 9096, 9142, 8449, 8701),
        (30075, 6608, 6673, 5941, 6214),
        (7519, 3604, 3733, 2869, 3218),
    ],
)
def test_the_periods_are_those_of_aupy_and_others(mtbf, young, daly, rfo, optimum):
    costs = Costs(checkpoint_s=600, restore_s=600, downtime_s=60, mtbf_s=mtbf)
    found = [young_s(costs), daly_s(costs), rfo_s(costs), optimum_s(costs)]
    assert found == pytest.approx([young, daly, rfo, optimum], abs=1)


def test_the_flat_optimum_of_the_largest_mtbf_is_found_exactly():
    costs = Costs(checkpoint_s=600, restore_s=600, downtime_s=60, mtbf_s=3849609)
    assert optimum_s(costs) == pytest.approx(68167.7, abs=0.05)
    assert efficiency(costs, 68240) == pytest.approx(efficiency(costs, optimum_s(costs)), abs=1e-7)


def test_the_worked_example_of_llama_3():
    told = {10 * MINUTE: 0.449, 48.1 * MINUTE: 0.725, 44.81 * MINUTE: 0.7255, 3 * HOUR: 0.532}
    assert {period: efficiency(LLAMA3, period) for period in told} == pytest.approx(told, abs=5e-4)
    assert optimum_s(LLAMA3) / MINUTE == pytest.approx(44.81, abs=0.005)
    assert efficiency(LLAMA3, optimum_s(LLAMA3)) == pytest.approx(0.7255, abs=5e-5)


def test_a_checkpoint_of_a_minute_is_due_every_half_hour_at_eight_hours_between_failures():
    costs = Costs(checkpoint_s=60, restore_s=0, downtime_s=0, mtbf_s=8 * HOUR)
    work = young_s(costs) - 60
    assert work == pytest.approx(1860, abs=2)
    assert round(work / 3.4) == 547


@pytest.mark.parametrize("ratio", [1e-14, 1e-12, 1e-9, 1e-7, 4.9e-5, 5.1e-5, 1e-3, 0.1, 1.0, 30.0])
def test_the_optimum_keeps_its_digits_near_the_branch_point(ratio):
    """The share w of work solves -ln(1 - w) - w = C/mu; checked with fifty digits, which no rounding reaches."""
    costs = Costs(checkpoint_s=1.0, restore_s=0, downtime_s=0, mtbf_s=1 / ratio) if ratio > 1e-11 else None
    from metrics.plan.formulas import _above_branch

    found = _above_branch(ratio)
    with localcontext() as context:
        context.prec = 50
        share = Decimal(found)
        left = -(1 - share).ln() - share
        relative = (left - Decimal(ratio)) / (share * share / (1 - share))  # by the slope: the relative error of w
    assert abs(relative) < 1e-11
    if costs:
        assert optimum_s(costs) == pytest.approx(1 + found / ratio, rel=1e-12)


@given(usual, st.floats(1.001, 1000))
def test_efficiency_is_a_share_and_the_optimum_its_maximum(costs, factor):
    best = optimum_s(costs)
    there = efficiency(costs, costs.checkpoint_s * factor)
    assert 0 <= there <= efficiency(costs, best) * (1 + 1e-9) <= 1 + 1e-9


@given(usual, st.floats(1.01, 100))
def test_the_best_efficiency_grows_with_the_mtbf_and_falls_with_every_cost(costs, factor):
    def best(**changes):
        changed = Costs(**{**vars(costs), **changes})
        return efficiency(changed, optimum_s(changed))

    now = best()
    assert best(mtbf_s=costs.mtbf_s * factor) >= now * (1 - 1e-9)
    for name in ("checkpoint_s", "restore_s", "downtime_s"):
        assert best(**{name: vars(costs)[name] * factor}) <= now * (1 + 1e-9)


@given(usual)
def test_the_optimum_lies_within_youngs_period_and_the_checkpoint_and_below_one_mtbf_of_work(costs):
    best = optimum_s(costs)
    assert costs.checkpoint_s < best <= young_s(costs) * (1 + 1e-12)
    assert best - costs.checkpoint_s <= costs.mtbf_s


def test_all_periods_agree_where_failures_are_rare():
    costs = Costs(checkpoint_s=10, restore_s=10, downtime_s=10, mtbf_s=1e9)
    work = math.sqrt(2 * 1e9 * 10)
    found = [young_s(costs), daly_s(costs), daly_higher_s(costs), rfo_s(costs), optimum_s(costs)]
    assert found == pytest.approx([work] * 5, rel=1e-3)


def test_dalys_higher_order_is_closer_to_the_optimum_than_his_first():
    best = optimum_s(LLAMA3)
    assert abs(daly_higher_s(LLAMA3) - best) < abs(daly_s(LLAMA3) - best)
    assert daly_higher_s(LLAMA3) == pytest.approx(best, rel=2e-3)
    always = Costs(checkpoint_s=300, restore_s=0, downtime_s=0, mtbf_s=100)
    assert daly_higher_s(always) == 400


def test_waste_is_one_minus_efficiency_to_the_first_order():
    costs = Costs(checkpoint_s=10, restore_s=30, downtime_s=60, mtbf_s=1e6)
    assert waste(costs, 5000) == pytest.approx(1 - efficiency(costs, 5000), abs=2e-5)
    assert least_waste(costs) == pytest.approx(10 / math.sqrt(2e7) + math.sqrt(2e7) / 2e6)


@pytest.mark.parametrize(
    ("machines", "rate", "overhead", "interval", "stall_s", "queue", "told"),
    [
        (2000, 6.5e-3, 5, 60, 0, 0, 0.684),
        (2000, 6.5e-3, 5, 5, 0, 0, 0.932),
        (1000, 6.5e-3, 5, 30, 0, 1, 0.906),
        (12500, 2.34e-3, 2, 2, 0, 0, 0.939),
        (1500, 6.5e-3, 5, 7.016, 10, 0, 0.9205),
    ],
)
def test_metas_expected_ettr(machines, rate, overhead, interval, stall_s, queue, told):
    job = Restarts(
        machines=machines,
        per_machine_day=rate,
        overhead_s=overhead * MINUTE,
        interval_s=interval * MINUTE,
        stall_s=stall_s,
        queue_s=queue * MINUTE,
    )
    assert meta_ettr(job).ettr == pytest.approx(told, abs=5e-4)
    assert not meta_ettr(job).clamped


def test_metas_best_interval():
    assert meta_interval_s(1500, 6.5e-3, 10) / MINUTE == pytest.approx(7.016, abs=5e-4)


def test_metas_formula_is_clamped_where_it_falls_below_nothing():
    job = Restarts(machines=12500, per_machine_day=6.5e-3, overhead_s=600, interval_s=7200)
    assert meta_ettr(job).ettr == 0
    assert meta_ettr(job).clamped


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checkpoint_s": 0}, "checkpoint_s=0 must be above 0"),
        ({"checkpoint_s": -1}, "checkpoint_s=-1 must be above 0"),
        ({"restore_s": -1}, "restore_s=-1 is outside 0 to"),
        ({"downtime_s": 1e9}, "in seconds"),
        ({"mtbf_s": math.nan}, "mtbf_s=nan must be above 0"),
        ({"mtbf_s": math.inf}, "mtbf_s=inf"),
    ],
)
def test_a_cost_of_a_wrong_sign_or_unit_is_named(change, message):
    with pytest.raises(PlanError, match=message):
        Costs(**{**vars(LLAMA3), **change})


def test_a_job_that_fails_faster_than_it_recovers_makes_no_progress():
    slow = Costs(**{**vars(LLAMA3), "mtbf_s": 600})
    for formula in (rfo_s, left_s):
        with pytest.raises(PlanError, match=r"makes no progress: it fails every 600 s, and .* take 900 s"):
            formula(slow)


def test_a_period_that_its_checkpoint_fills_is_refused():
    for formula in (efficiency, waste):
        with pytest.raises(PlanError, match="period_s=300 leaves no time to work"):
            formula(LLAMA3, 300)
