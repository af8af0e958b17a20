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
from scenarios.scenario import COUNTS, Scenario, Shape, Suite, all_scenarios, check_injections, find, members


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


# What several names stand for

EVERY = [name for name, found in all_scenarios().items() if isinstance(found, Scenario)]


def chosen(*names):
    found = members(names)
    return [scenario.name for scenario in found.scenarios], found.suite


def test_one_scenario_is_no_suite():
    assert chosen("segfault") == (["segfault"], "")


def test_a_suite_stands_for_its_members_in_order():
    assert chosen("kill-every-phase") == (list(find("kill-every-phase").members), "kill-every-phase")


def test_several_names_are_a_selection_in_the_order_given_each_once():
    assert chosen("segfault", "kill-worker", "segfault") == (["segfault", "kill-worker"], "selection")
    assert chosen("segfault", "segfault") == (["segfault"], "selection")


def test_suites_among_the_names_are_unfolded_in_their_place_each_member_once():
    notice, preprod = find("notice").members, find("preprod").members
    names, suite = chosen("segfault", "notice", "preprod", "kill-worker")
    assert suite == "selection"
    assert names == ["segfault", *notice, *(name for name in preprod if name not in notice)]
    assert "kill-worker" in preprod


def test_a_star_stands_for_every_scenario():
    assert chosen("full") == (EVERY, "full")
    names, suite = chosen("segfault", "full")
    assert (sorted(names), names[0], suite) == (EVERY, "segfault", "selection")


def test_an_unknown_name_among_several_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r"unknown scenario 'segfaul': did you mean 'segfault'\?"):
        members(["kill-worker", "segfaul"])
    with pytest.raises(UsageError, match=r"unknown scenario '\*': `aftershock list` shows them all"):
        members(["*"])


@pytest.mark.parametrize("suite", [name for name, found in all_scenarios().items() if isinstance(found, Suite)])
def test_no_member_of_a_suite_is_lost(suite):
    names = EVERY if find(suite).members == ("*",) else list(find(suite).members)
    assert chosen(suite) == (names, suite)


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
@pytest.mark.parametrize("name", COUNTS)
def test_a_number_that_counts_something_is_at_least_one(name, value):
    with pytest.raises(ValueError, match=f"{name}={value} must be at least 1"):
        Shape(**{name: value})


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["poll_s", "seconds", "health_s", "shutdown_s", "start_s", "preemption_poll_s"])
def test_a_time_is_a_positive_number_of_seconds(name, value):
    with pytest.raises(ValueError, match=f"{name}={value} must be a positive number of seconds"):
        Shape(**{name: value})


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["report_s", "watchdog_s"])
def test_a_time_that_may_be_off_is_a_number_of_seconds_or_nought(name, value):
    assert getattr(Shape(**{name: 0.0}), name) == 0
    with pytest.raises(ValueError, match=f"{name}={value} must be a number of seconds, or 0"):
        Shape(**{name: value})


@pytest.mark.parametrize("name", ["min_workers", "nodes"])
def test_what_may_be_left_to_the_workers_is_nought_or_more(name):
    assert getattr(Shape(**{name: 0}), name) == 0
    with pytest.raises(ValueError, match=f"{name}=-1 must be 0 or more"):
        Shape(**{name: -1})


def test_every_number_of_a_shape_is_checked():
    """None of them can be so far below nought; the ranks and the budget have a meaning there, or checks elsewhere."""
    for field in dataclasses.fields(Shape):
        if field.name not in ("rank", "max_failures"):
            with pytest.raises(ValueError, match=f"{field.name}=-7"):
                Shape(**{field.name: type(field.default)(-7)})


# Elastic groups and their nodes


@pytest.mark.parametrize(("workers", "least"), [(1, 1), (3, 1), (3, 3), (6, 2)])
def test_an_elastic_group_has_at_most_as_many_workers_at_least_as_at_most(workers, least):
    assert Shape(workers=workers, min_workers=least).min_workers == least
    message = f"min_workers={workers + 1} is above workers={workers}: use at most {workers}"
    with pytest.raises(ValueError, match=message):
        Shape(workers=workers, min_workers=workers + 1)


@pytest.mark.parametrize(
    ("shape", "least", "count"),
    [
        ({}, 2, 2),
        ({"workers": 3}, 3, 3),
        ({"workers": 3, "nodes": 5}, 3, 5),
        ({"workers": 3, "min_workers": 2}, 2, 3),
        ({"workers": 3, "min_workers": 2, "nodes": 2}, 2, 2),
        ({"workers": 6, "per_node": 4}, 2, 2),
        ({"workers": 6, "per_node": 4, "min_workers": 4}, 1, 2),
        ({"workers": 6, "per_node": 4, "min_workers": 4, "nodes": 1}, 1, 1),
    ],
    ids=str,
)
def test_a_job_needs_nodes_for_its_fewest_workers_and_gets_those_for_the_most(shape, least, count):
    made = Shape(**shape)
    assert (made.least_nodes, made.node_count) == (least, count)
    if least > 1:
        with pytest.raises(
            ValueError, match=f"nodes={least - 1} cannot hold .* use {least} or more, or fewer --workers"
        ):
            Shape(**{**shape, "nodes": least - 1})


def test_too_few_nodes_are_refused_naming_the_fewest_workers():
    with pytest.raises(ValueError, match="nodes=1 cannot hold 3 workers, 2 on each: use 2 or more, or fewer --workers"):
        Shape(workers=4, min_workers=3, per_node=2, nodes=1)


def test_a_node_has_the_cpus_of_its_workers_and_some_to_spare():
    assert Shape().cpus_per_node == 2
    assert Shape(per_node=2, cpus_per_worker=3, spare_cpus=4).cpus_per_node == 10


def test_targets_are_looked_for_among_the_labels_of_the_scenario(armed):
    scenario = armed(labels={"w1": {"zone": "b"}})
    world = scenario.world(Shape(workers=3, per_node=2))
    assert (world.workers, world.per_node, world.nodes) == (3, 2, ("w0", "w1"))
    assert world.labels == {"w1": {"zone": "b"}}
    assert not armed().world(Shape()).labels


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
