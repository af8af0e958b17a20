"""Simulated fleets: against closed forms, against an event-by-event model, and by hand."""

from __future__ import annotations

import dataclasses
import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.plan.distributions import Constant, Empirical, Exponential, Lognormal
from metrics.plan.failures import survival
from metrics.plan.formulas import Costs, efficiency, optimum_s
from metrics.plan.hazard import Bathtub, Burst, Replay, Steady
from metrics.plan.quantities import DAY_S, PlanError
from metrics.plan.simulate import BUCKETS, Outcome, sample, simulate
from metrics.plan.system import Kind, System
from metrics.plan.trace import Trace

HOUR = 3600.0


def system(**changes) -> System:
    """A job of 64 machines that fails every three hours."""
    values = dict(
        machines=64, hazard=Steady(3 * HOUR), checkpoint_s=60.0, period_s=1200.0, horizon_s=30 * DAY_S,
        restart=Constant(300.0), restore=Constant(120.0),
    )  # fmt: skip
    return System(**{**values, **changes})


def replay(*times: float, machines: tuple[int, ...] | None = None) -> Replay:
    return Replay(Trace(times, machines or (0,) * len(times)))


# Against closed forms


@pytest.mark.parametrize("ratio", [10, 100, 1000, 10_000])
def test_the_share_of_kept_work_is_the_exact_efficiency(ratio):
    costs = Costs(checkpoint_s=60, restore_s=30, downtime_s=90, mtbf_s=60.0 * ratio)
    period = optimum_s(costs)
    job = system(
        hazard=Steady(costs.mtbf_s), period_s=period, horizon_s=400 * costs.mtbf_s,
        restart=Constant(90.0), restore=Constant(30.0),
    )  # fmt: skip
    found, exact = simulate(job, 1000), efficiency(costs, period)
    assert found.error < 0.001
    assert found.ettr == pytest.approx(exact, abs=4 * found.error + 5e-4)  # the first start costs no restart
    assert found.ettr == pytest.approx(exact, rel=0.005)


def test_failures_are_as_many_as_poisson_has_it_where_nothing_is_down():
    job = system(restart=Constant(0.0), restore=Constant(0.0), max_failures=250)
    found = simulate(job, 4000)
    assert found.failures == pytest.approx(240, abs=4 * (240 / 4000) ** 0.5)
    assert found.survived == pytest.approx(survival(240, 250), abs=0.03)


def test_random_phases_come_to_the_same_mean_as_constant_ones():
    steady, varied = system(), system(restart=Lognormal(300, 1.0), restore=Constant(120.0))
    one, other = simulate(steady, 1000), simulate(varied, 1000, seed=1)
    assert one.ettr == pytest.approx(other.ettr, abs=4 * (one.error**2 + other.error**2) ** 0.5)
    assert one.shares["downtime"] == pytest.approx(other.shares["downtime"], rel=0.03)


def test_a_new_fleet_fails_as_often_as_its_hazard_comes_to():
    tub = Bathtub(mtbf_s=3 * HOUR, infant=3, infant_s=5 * DAY_S, wear_s=20 * DAY_S, until_s=30 * DAY_S)
    found = simulate(system(hazard=tub, restart=Constant(0.0), restore=Constant(0.0)), 500)
    expected = float(tub.cumulative(np.array(30 * DAY_S))) / (3 * HOUR)
    assert expected > 1.5 * 240
    assert found.failures == pytest.approx(expected, abs=4 * (expected / 500) ** 0.5)


def test_a_flat_bathtub_is_a_steady_hazard():
    one = simulate(system(hazard=Bathtub(mtbf_s=3 * HOUR, until_s=30 * DAY_S)), 500, seed=3)
    other = simulate(system(), 500, seed=3)
    assert one.ettr == pytest.approx(other.ettr, abs=1e-6)


def test_bursts_bring_failures_on_top():
    quiet = simulate(system(), 500)
    burst = simulate(system(burst=Burst(probability=0.5, within_s=60)), 500)
    assert burst.failures == pytest.approx(2 * quiet.failures, rel=0.08)
    assert burst.ettr < quiet.ettr - 5 * quiet.error


# By hand


def test_a_record_is_replayed_second_by_second():
    """Work 1140 and save 60 in turn; failures at 3000 and 3500 s."""
    found = sample(system(hazard=replay(3000, 3500, 6000), horizon_s=6000), 2, 0)
    told = {bucket: seconds[0] for bucket, seconds in found.seconds.items()}
    assert told == {
        "productive": 2 * 1140 + 0 + 1140 + (2080 - 1200),
        "saving": 2 * 60 + 0 + 60,
        "lost": 600 + 80,
        "downtime": 2 * 300,
        "restore": 2 * 120,
        "waiting": 0,
        "shrunk": 0,
    }
    assert list(found.failures) == [2, 2]
    assert sum(told.values()) == 6000


def test_a_failure_of_the_record_in_a_downtime_hits_nobody():
    found = sample(system(hazard=replay(3000, 3100, 6000), horizon_s=6000), 2, 0)
    assert list(found.failures) == [1, 1]


def test_a_failure_in_the_restore_costs_it_again():
    found = sample(system(hazard=replay(3000, 3350, 6000), horizon_s=6000), 2, 0)
    assert found.seconds["restore"][0] == 50 + 120
    assert found.seconds["downtime"][0] == 600


def test_a_job_without_spares_waits_for_the_repair():
    kinds = (Kind(machines=1, repair=Constant(2000.0)),)
    found = sample(system(hazard=replay(1000, 9000, machines=(1, 0)), horizon_s=9000, kinds=kinds), 2, 0)
    assert found.seconds["waiting"][0] == 2000 - 300


def test_a_spare_takes_the_place_of_a_lost_machine():
    kinds = (Kind(machines=1, repair=Constant(2000.0)),)
    found = sample(system(hazard=replay(1000, 9000, machines=(1, 0)), horizon_s=9000, kinds=kinds, spares=1), 2, 0)
    assert found.seconds["waiting"][0] == 0


def test_an_elastic_job_goes_on_with_fewer_machines_until_it_restarts():
    kinds = (Kind(machines=1, repair=Constant(2000.0)),)
    job = system(hazard=replay(1200, 5220, 9000, machines=(16, 0, 0)), horizon_s=9000, kinds=kinds, least=32)
    found = sample(job, 2, 0)
    assert found.seconds["waiting"][0] == 0
    assert found.seconds["shrunk"][0] == pytest.approx(3 * 1140 * 16 / 64)
    assert found.seconds["productive"][0] == pytest.approx(1140 + 3 * 1140 * 48 / 64 + 2 * 1140 + 960)


def test_an_elastic_job_below_its_least_size_waits():
    kinds = (Kind(machines=1, repair=Constant(2000.0)),)
    job = system(hazard=replay(1000, 9000, machines=(40, 0)), horizon_s=9000, kinds=kinds, least=32)
    assert sample(job, 2, 0).seconds["waiting"][0] == 1700


def test_failures_of_the_record_at_the_same_time_are_one_that_takes_all_their_machines():
    kinds = (Kind(machines=1, repair=Constant(2000.0)),)
    job = system(hazard=replay(1000, 1000, 9000, machines=(2, 3, 0)), horizon_s=9000, kinds=kinds, spares=4)
    found = sample(job, 2, 0)
    assert (found.failures[0], found.seconds["waiting"][0]) == (1, 1700)
    assert sample(dataclasses.replace(job, spares=5), 2, 0).seconds["waiting"][0] == 0


# Against an event-by-event model


def slowly(job: System, dice: random.Random) -> tuple[float, float, int]:
    """The share of kept work and of waiting in one replica, and its failures: one event after the other."""
    now = kept = waited = 0.0
    failures, running, loading, away = 0, job.machines, 0.0, []
    while now < job.horizon_s:
        end = now + dice.expovariate(running / job.machines / job.hazard.mtbf_s)
        at, unsaved = now + loading, 0.0
        while at + job.period_s <= min(end, job.horizon_s):
            at += job.period_s
            kept += (job.period_s - job.checkpoint_s) * running / job.machines
        if end >= job.horizon_s:
            unsaved = min(max(0.0, job.horizon_s - at), job.period_s - job.checkpoint_s)
            kept += unsaved * running / job.machines
            break
        failures, now = failures + 1, end
        (kind,) = job.kinds
        away.append((now + dice.expovariate(1 / kind.repair.mean_s), min(kind.machines, running)))
        now += job.restart.seconds
        while True:
            away = [(back, many) for back, many in away if back > now]
            there = job.fleet - sum(many for _, many in away)
            if there >= job.smallest:
                break
            back = min(back for back, _ in away)
            waited += min(back, job.horizon_s) - min(now, job.horizon_s)
            now = back
        running, loading = min(job.machines, there), job.restore.seconds
    return kept / job.horizon_s, waited / job.horizon_s, failures


@pytest.mark.parametrize("least", [None, 56], ids=["fixed", "elastic"])
def test_an_event_by_event_model_agrees_within_the_errors(least):
    kinds = (Kind(machines=2, repair=Exponential(10 * HOUR)),)
    job = system(kinds=kinds, spares=8, least=least, horizon_s=6 * DAY_S)
    dice = random.Random(5)
    slow = np.array([slowly(job, dice) for _ in range(200)])
    fast = simulate(job, 2000)
    means, errors = slow.mean(axis=0), slow.std(axis=0) / 200**0.5
    assert fast.ettr == pytest.approx(means[0], abs=4 * (errors[0] + fast.error))
    assert fast.shares["waiting"] == pytest.approx(means[1], abs=5 * errors[1])
    assert fast.failures == pytest.approx(means[2], abs=5 * errors[2])
    assert means[1] > 1e-4 if least is None else fast.shares["shrunk"] > 1e-4


# Properties


fleets = st.builds(
    system,
    hazard=st.builds(Steady, st.floats(600, 1e6)),
    restart=st.sampled_from([Constant(0.0), Exponential(600), Lognormal(600, 1), Empirical((1.0, 900.0))]),
    restore=st.sampled_from([Constant(0.0), Exponential(60)]),
    kinds=st.sampled_from(
        [(Kind(),), (Kind(machines=9),), (Kind(name="hang", share=0.25, detect=Exponential(600)), Kind(share=0.75))]
    ),
    spares=st.integers(0, 9),
    least=st.sampled_from([None, 1, 60]),
    burst=st.sampled_from([Burst(), Burst(probability=0.3)]),
    horizon_s=st.floats(100, 3e5),
)


@settings(max_examples=20)
@given(fleets, st.integers(0, 99))
def test_the_buckets_sum_to_the_horizon_and_none_is_negative(job, seed):
    found = sample(job, 5, seed)
    assert sum(found.seconds.values()) == pytest.approx(np.full(5, job.horizon_s))
    assert set(found.seconds) == set(BUCKETS)
    assert all((seconds >= -1e-6).all() for seconds in found.seconds.values())


def test_the_same_seed_gives_the_same_outcome_and_another_another():
    assert simulate(system(), 50, seed=4) == simulate(system(), 50, seed=4)
    assert simulate(system(), 50, seed=4) != simulate(system(), 50, seed=5)


def test_many_batches_are_as_one_sample():
    found = simulate(system(horizon_s=DAY_S), 10_000)
    assert found.replicas == 10_000
    assert found.low <= found.median <= found.high
    assert msgspec.json.decode(msgspec.json.encode(found), type=Outcome) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machines": 0}, "machines=0"),
        ({"spares": -1}, "spares=-1"),
        ({"least": 65}, "least=65 is outside 1 to 64"),
        ({"period_s": 60}, "period_s=60 leaves no time to work"),
        ({"horizon_s": 0}, "horizon_s=0 must be above 0"),
        ({"kinds": (Kind(share=0.4),)}, "sum to 0.4: they must sum to 1"),
        ({"hazard": replay(1000, 2000), "horizon_s": 3000}, "the record of failures ends after 0.0 days"),
    ],
)
def test_a_system_that_cannot_be_is_refused(change, message):
    with pytest.raises(PlanError, match=message):
        system(**change)


def test_parts_that_cannot_be_are_refused():
    for make in (
        lambda: Kind(share=0),
        lambda: Burst(probability=0.99),
        lambda: Burst(within_s=0),
        lambda: Bathtub(mtbf_s=0),
        lambda: Bathtub(mtbf_s=1, infant=-1),
        lambda: simulate(system(), 1),
    ):
        with pytest.raises(PlanError):
            make()
