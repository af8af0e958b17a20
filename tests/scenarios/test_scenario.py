"""What a scenario is: its shape, its register, and the refusal of injections that could never fire."""

from __future__ import annotations

import dataclasses
import math

import pytest

from chaos.agent.plan import Injection
from chaos.exits import UsageError
from chaos.faults.missing_report import MissingReport
from chaos.timeouts import TIMEOUTS
from chaos.triggers import Trigger, at_step, before_step, in_phase, on_attempt
from metrics.expectations import HEALTHY, restarts
from scenarios.scenario import Scenario, Shape, Suite, all_scenarios, check_injections, find


def injection(trigger: Trigger, fault="kill", **values):
    return Injection(id="a", fault=fault, rank=0, trigger=trigger, values=values)


# The register


def test_the_register_holds_every_scenario_by_its_name():
    known = all_scenarios()
    assert {"kill-worker", "kill-repeatedly", "kill-every-phase"} <= known.keys()
    assert list(known) == sorted(known)
    assert all(found.name == name for name, found in known.items())
    assert {type(found) for found in known.values()} == {Scenario, Suite}


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("kill-worke", "did you mean 'kill-worker'?"),
        ("killworker", "did you mean 'kill-worker'?"),
        ("kill-repeatedy", "did you mean 'kill-repeatedly'?"),
        ("hang-frozn", "did you mean 'hang-frozen'?"),
        ("zzz", "`aftershock list` shows them all"),
        ("", "`aftershock list` shows them all"),
    ],
)
def test_an_unknown_name_brings_the_nearest_to_mind(wrong, hint):
    with pytest.raises(UsageError) as error:
        find(wrong)
    assert str(error.value) == f"unknown scenario '{wrong}': {hint}"


# Shapes


def test_the_time_outs_of_a_shape_have_the_names_of_the_chain():
    assert Shape().timeouts.keys() == TIMEOUTS.keys()


def test_a_shapes_own_time_outs_are_rays_but_for_the_poll():
    defaults = {name: known.default_s for name, known in TIMEOUTS.items() if name != "poll"}
    assert {name: value for name, value in Shape().timeouts.items() if name != "poll"} == defaults


def test_a_report_time_out_of_nought_is_none():
    assert Shape(report_s=0).timeouts["report"] is None
    assert Shape(report_s=7).timeouts["report"] == 7


def test_a_shape_has_as_many_nodes_as_its_workers_need():
    assert Shape(workers=3).world.nodes == ("w0", "w1", "w2")
    assert Shape(workers=3, per_node=2).world.nodes == ("w0", "w1")


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", ["workers", "per_node", "steps", "checkpoint_every", "keep", "step", "timeout_s"])
def test_a_number_that_counts_something_is_at_least_one(name, value):
    with pytest.raises(ValueError, match=f"{name}={value} must be at least 1"):
        Shape(**{name: value})


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["poll_s", "seconds", "health_s", "shutdown_s"])
def test_a_time_is_a_positive_number_of_seconds(name, value):
    with pytest.raises(ValueError, match=f"{name}={value} must be a positive number of seconds"):
        Shape(**{name: value})


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_a_report_time_out_is_a_number_of_seconds_or_nought(value):
    with pytest.raises(ValueError, match=f"report_s={value} must be a number of seconds, or 0"):
        Shape(report_s=value)


def test_an_expectation_may_depend_on_the_shape(armed):
    fixed = armed(expects=HEALTHY)
    made = armed(expects=lambda shape: restarts(times=shape.max_failures))
    assert fixed.expectation(Shape()) is HEALTHY
    assert str(made.expectation(Shape(max_failures=7))) == "restarts(times=7)"


# Injections that could never fire


@pytest.mark.parametrize(
    "trigger",
    [
        at_step(1),
        at_step(40),
        before_step(1),
        before_step(40),
        in_phase("save") & at_step(40),
        in_phase("report") & at_step(10),
        in_phase("restore") & on_attempt(3),
        at_step(25) >> in_phase("teardown"),
        in_phase("first-step"),
    ],
    ids=str,
)
def test_a_trigger_at_the_edge_is_accepted(trigger):
    check_injections((injection(trigger),), Shape())


@pytest.mark.parametrize(
    ("trigger", "message"),
    [
        (at_step(0), "step=0 never comes .* in a run of 40 steps: use 1 to 40"),
        (at_step(41), "step=41 never comes"),
        (before_step(41), "never comes"),
        (in_phase("forward") & at_step(40), "step=40 never comes"),
        (in_phase("save") & at_step(25), "nothing is saved at step=25 .*: use a multiple of checkpoint_every=10"),
        (in_phase("save") & at_step(0), "step=0"),
        (in_phase("report") & at_step(1), "nothing is saved at step=1"),
        (in_phase("transfer") & at_step(39), "nothing is saved at step=39"),
        (in_phase("commit") & at_step(11), "nothing is saved at step=11"),
        (on_attempt(4), "attempt=4 never comes: the budget allows 4, counted from 0"),
        (on_attempt(-1), "attempt=-1 never comes"),
        (at_step(41) >> in_phase("restore"), "step=41 never comes"),
        (at_step(25) >> on_attempt(9), "attempt=9 never comes"),
    ],
    ids=str,
)
def test_a_trigger_that_could_never_fire_is_refused(trigger, message):
    good = injection(at_step(1))
    with pytest.raises(UsageError, match=message):
        check_injections((good, injection(trigger)), Shape())


def test_a_checkpoint_interval_decides_where_a_save_comes():
    at_six = injection(in_phase("save") & at_step(6))
    check_injections((at_six,), Shape(checkpoint_every=3))
    with pytest.raises(UsageError):
        check_injections((at_six,), Shape(checkpoint_every=4))


def test_with_an_endless_budget_every_attempt_may_come():
    check_injections((injection(on_attempt(999)),), Shape(max_failures=-1))


def test_a_fault_is_refused_in_a_phase_where_it_makes_no_sense():
    check_injections((injection(in_phase("report") & at_step(10), "missing-report", seconds=1.0),), Shape())
    with pytest.raises(UsageError, match=r"missing-report makes no sense in forward: use in_phase\('report'\)"):
        check_injections((injection(in_phase("forward"), MissingReport.name),), Shape())
    with pytest.raises(UsageError, match="missing-report makes no sense in step"):
        check_injections((injection(at_step(5), MissingReport.name),), Shape())


def test_a_scenario_is_never_changed_by_a_run_of_it():
    assert all(dataclasses.is_dataclass(found) for found in all_scenarios().values())
    with pytest.raises(dataclasses.FrozenInstanceError):
        find("kill-worker").name = "other"
