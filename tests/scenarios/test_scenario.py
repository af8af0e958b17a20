"""The register of scenarios, and what each would inject."""

from __future__ import annotations

import dataclasses

import pytest

from chaos.agent.plan import Injection
from chaos.exits import UsageError
from chaos.faults.base import all_faults
from scenarios.scenario import Shape, all_scenarios, check_injections, find_scenario


def injected(name, **changes):
    scenario = find_scenario(name)
    return scenario.inject(dataclasses.replace(scenario.shape, **changes))


def test_the_register_holds_every_scenario_by_its_name():
    known = all_scenarios()
    assert {"kill-worker", "kill-repeatedly"} <= known.keys()
    assert list(known) == sorted(known)
    assert all(scenario.name == name for name, scenario in known.items())


@pytest.mark.parametrize("name", all_scenarios())
def test_every_scenario_can_be_run_as_it_is(name):
    scenario = find_scenario(name)
    injections = injected(name)
    check_injections(injections, scenario.shape)
    assert {injection.fault for injection in injections} <= all_faults().keys()
    assert len({injection.id for injection in injections}) == len(injections) > 0


@pytest.mark.parametrize("name", all_scenarios())
def test_every_scenario_says_what_it_does_and_expects(name):
    scenario = find_scenario(name)
    assert len(scenario.title.split()) >= 5
    assert len(scenario.expects.split()) >= 5


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("kill-worke", "did you mean 'kill-worker'?"),
        ("killworker", "did you mean 'kill-worker'?"),
        ("kill-repeatedy", "did you mean 'kill-repeatedly'?"),
        ("zzz", "`aftershock list` shows them all"),
        ("", "`aftershock list` shows them all"),
    ],
)
def test_an_unknown_name_brings_the_nearest_to_mind(wrong, hint):
    with pytest.raises(UsageError) as error:
        find_scenario(wrong)
    assert str(error.value) == f"unknown scenario '{wrong}': {hint}"


def test_kill_worker_kills_one_rank_right_after_one_step():
    assert injected("kill-worker", rank=0, step=17) == (Injection(id="kill-0", fault="kill", rank=0, step=17),)


def test_kill_repeatedly_kills_as_often_as_the_budget_allows_each_in_the_next_rank():
    kills = injected("kill-repeatedly", workers=3, step=2, max_failures=4)
    assert [(kill.rank, kill.step) for kill in kills] == [(1, 2), (2, 4), (0, 6), (1, 8)]


@pytest.mark.parametrize(("rank", "step"), [(0, 1), (1, 40)])
def test_an_injection_at_the_edge_is_accepted(rank, step):
    check_injections((Injection(id="a", fault="kill", rank=rank, step=step),), Shape())


@pytest.mark.parametrize(
    ("rank", "step", "message"),
    [
        (2, 5, r"rank=2 is outside the world of 2 workers: use 0 to 1"),
        (-1, 5, r"rank=-1 is outside"),
        (0, 0, r"step=0 never comes in a run of 40 steps: use 1 to 40"),
        (0, 41, r"step=41 never comes"),
    ],
)
def test_an_injection_that_could_never_fire_is_refused(rank, step, message):
    good = Injection(id="good", fault="kill", rank=0, step=1)
    with pytest.raises(UsageError, match=message):
        check_injections((good, Injection(id="bad", fault="kill", rank=rank, step=step)), Shape())
