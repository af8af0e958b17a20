"""The plan of a fleet."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.plan.failures import job_mtbf_s
from metrics.plan.fleet import RULES, Fleet, FleetPlan, Input, plan
from metrics.plan.presets import preset
from metrics.plan.quantities import DAY_S, PlanError


def fleet(**changes) -> Fleet:
    """Llama 3's failure rate, and a slow job."""
    seconds = {"mtbf": job_mtbf_s(16384, preset("llama3").per_machine_day), "checkpoint": 300, "downtime": 600}
    costs = {name: Input(value, "told") for name, value in {**seconds, "restore": 300}.items()}
    return Fleet(**{"gpus": 16384, **costs, **changes})


def test_the_best_period_is_the_exact_optimum_and_no_other_rule_is_better():
    found = plan(fleet())
    assert [choice.name for choice in found.periods] == list(RULES)
    assert (found.best.name, found.best.period_s / 60) == ("exact optimum", pytest.approx(44.81, abs=0.01))
    assert max(choice.ettr for choice in found.periods) == found.best.ettr == pytest.approx(0.7255, abs=1e-4)


def test_goodput_is_told_in_gpus():
    found = plan(fleet())
    assert found.gpus_worth == pytest.approx(0.7255 * 16384, rel=1e-4)
    assert found.lost_gpu_hours == pytest.approx((16384 - found.gpus_worth) * 24)
    assert found.meta_ettr == pytest.approx(0.72, abs=0.01)


def test_the_own_period_is_told_beside_the_best():
    (own,) = [choice for choice in plan(fleet(period_s=600)).periods if choice.name == "yours"]
    assert (own.period_s, own.ettr) == (600, pytest.approx(0.449, abs=5e-4))


def test_each_knob_helps_and_all_of_them_help_most():
    found = plan(fleet())
    gains = {knob.name: knob.gain for knob in found.knobs}
    assert list(gains) == ["checkpoint halved", "downtime halved", "restore halved", "MTBF doubled", "all of these"]
    assert all(gain > 0 for gain in gains.values())
    assert gains["all of these"] == max(gains.values())
    first = found.knobs[0]
    assert (found.gpus + first.gpus) * found.best.ettr == pytest.approx(found.gpus * first.ettr)


def test_the_budget_is_told_with_what_is_left_of_the_risk():
    found = plan(fleet(horizon_s=54 * DAY_S, max_failures=419)).budget
    assert found.expected == pytest.approx(419)
    assert found.max_failures > 419
    assert 0 < found.dies <= 0.01
    assert (found.given, found.given_dies) == (419, pytest.approx(0.49, abs=0.02))
    assert plan(fleet()).budget.given_dies is None


def test_spares_cover_the_machines_that_are_in_repair():
    found = plan(fleet()).reserve
    assert found.away == pytest.approx(0.00379, rel=0.01)
    mean = found.away * 2048
    assert found.spares == pytest.approx(mean + 2.33 * math.sqrt(mean), abs=1.5)


def test_a_small_job_is_told_not_to_trust_the_rate():
    small = {"gpus": 1024, "mtbf": Input(28.85 * 3600, "from the rate")}
    assert any("7.9 h" in note for note in plan(fleet(**small)).notes)
    assert not any("7.9 h" in note for note in plan(fleet(**small, from_rate=False)).notes)
    assert plan(fleet()).notes == []


def test_what_is_better_than_anything_published_is_doubted():
    cheap = {name: Input(1.0, "told") for name in ("checkpoint", "downtime", "restore")}
    assert any("97 %" in note for note in plan(fleet(**cheap)).notes)


def test_a_plan_can_be_stored_and_read():
    assert msgspec.json.decode(msgspec.json.encode(plan(fleet())), type=FleetPlan) == plan(fleet())


@settings(max_examples=60)
@given(st.floats(1000, 1e7), st.floats(1, 300), st.floats(0, 300), st.floats(0, 300), st.integers(1, 200_000))
def test_every_share_is_a_share(mtbf, checkpoint, downtime, restore, gpus):
    costs = {"mtbf": mtbf, "checkpoint": checkpoint, "downtime": downtime, "restore": restore}
    found = plan(fleet(gpus=gpus, **{name: Input(value, "told") for name, value in costs.items()}))
    shares = [choice.ettr for choice in found.periods] + [knob.ettr for knob in found.knobs]
    shares += [found.meta_ettr, found.budget.dies, found.reserve.away]
    assert all(0 <= share <= 1 for share in shares)
    assert found.reserve.spares <= found.machines


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpus": 0}, "gpus=0 is outside"),
        ({"mtbf": Input(700, "")}, "makes no progress: it fails every 700 s, and downtime and restore take 900 s"),
        ({"checkpoint": Input(-1, "")}, "checkpoint_s=-1"),
        ({"horizon_s": 0}, "horizon_s=0 must be above 0"),
        ({"survive": 99}, "write 0.99 for 99 per cent"),
        ({"max_failures": -1}, "max_failures=-1"),
        ({"repair_s": -1}, "repair_s=-1"),
    ],
)
def test_a_fleet_that_cannot_be_planned_is_refused(change, message):
    with pytest.raises(PlanError, match=message):
        fleet(**change)


def test_a_period_that_leaves_no_time_is_refused_and_so_is_certainty():
    with pytest.raises(PlanError, match="period_s=200 leaves no time"):
        plan(fleet(period_s=200))
    with pytest.raises(PlanError, match="cannot be reached"):
        plan(fleet(survive=1))
