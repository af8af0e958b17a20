"""The library: every scenario can be run as it is, says what it does, and together they leave nothing untested."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
from collections import Counter
from pathlib import Path

import pytest

from chaos.faults.base import all_faults
from chaos.faults.freeze_node import Frozen
from chaos.timeouts import TIMEOUTS
from chaos.triggers import PHASES
from metrics.expectations import HEALTHY, UNDISTURBED, parse
from scenarios import doctor
from scenarios.library.healthy import SHORT
from scenarios.program import arguments
from scenarios.request import Options, resolve
from scenarios.scenario import Scenario, Shape, Suite, all_scenarios, members
from trainer.config import TrainerConfig

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = {name: found for name, found in all_scenarios().items() if isinstance(found, Scenario)}
SUITES = {name: found for name, found in all_scenarios().items() if isinstance(found, Suite)}
NOTICING = ("process_group", "worker_health", "report")


def asked(name, **options):
    return resolve(SCENARIOS[name], Options(**options))


def faults(name):
    """The faults of a scenario as armed, with their settings."""
    return [all_faults()[i.fault](**i.values) for i in asked(name).injections]


HARMLESS = [name for name in SCENARIOS if not any(fault.breaks for fault in faults(name))]
UNDISTURBING = [name for name, scenario in SCENARIOS.items() if scenario.expects is UNDISTURBED]
HANGS = [name for name in SCENARIOS if any(fault.noticed_by for fault in faults(name))]
UNNOTICED = [name for name in HANGS if name in UNDISTURBING]
WATCHED = [name for name in HANGS if SCENARIOS[name].shape.watchdog_s]
TIMED_OUT = [name for name in HANGS if name not in (*UNNOTICED, *WATCHED)]
ON_NODES = [name for name in SCENARIOS if any(getattr(fault, "on_node", False) for fault in faults(name))]
SLOWED = [name for name in HARMLESS if name not in ON_NODES]
"""Negative controls whose workers are disturbed, not their nodes."""


def silence_s(fault):
    """How long a disturbance keeps its rank silent at a stretch, seconds."""
    return getattr(fault, "stopped_s", None) or fault.seconds


# Every scenario


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("seed", [0, 7])
def test_every_scenario_can_be_run_as_it_is(name, seed):
    request = asked(name, seed=seed)
    ids = [injection.id for injection in request.injections]
    assert len(set(ids)) == len(ids) > 0
    assert all(injection.fault in all_faults() for injection in request.injections)
    assert TrainerConfig(**dataclasses.asdict(request.config)) == request.config
    assert f"--timeout-s={request.shape.timeout_s}" in arguments(request.config)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_expectation_of_every_scenario_can_be_stored_as_text(name):
    expectation = SCENARIOS[name].expectation(SCENARIOS[name].shape)
    again = parse(str(expectation))
    assert str(again) == str(expectation)
    assert [check for check, _ in again.checks] == [check for check, _ in expectation.checks]


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_scenario_asks_for_the_same_check_twice(name):
    names = [check for check, _ in SCENARIOS[name].expectation(SCENARIOS[name].shape).checks]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", all_scenarios())
def test_every_title_is_a_sentence(name):
    title = all_scenarios()[name].title
    assert title.endswith(".")
    assert title[0].isupper()
    assert len(title.split()) >= 5
    assert "\n" not in title


def test_titles_are_unique():
    titles = [found.title for found in all_scenarios().values()]
    assert len(titles) == len(set(titles))


def test_every_name_is_registered_once():
    """The register is a dict: a second scenario of a name would take the place of the first unseen."""
    written = []
    for file in sorted((ROOT / "scenarios" / "library").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Scenario", "Suite"):
                written += [
                    k.value.value for k in node.keywords if k.arg == "name" and isinstance(k.value, ast.Constant)
                ]
    assert sorted(written) == sorted(set(written))
    assert set(written) <= set(all_scenarios())


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_need_is_one_that_doctor_looks_for(name):
    assert set(SCENARIOS[name].needs) <= {look().name for look in doctor.EXAMINATIONS}


@pytest.mark.parametrize("name", SCENARIOS)
def test_more_than_one_outcome_is_accepted_only_for_a_known_issue(name):
    two = "either" in {check for check, _ in SCENARIOS[name].expectation(SCENARIOS[name].shape).checks}
    issue = SCENARIOS[name].known_issue
    assert issue or not two
    assert two or not issue or "are accepted" in issue  # one outcome, but within a wider bound


@pytest.mark.parametrize("name", SCENARIOS)
def test_nodes_are_given_an_environment_that_can_be_set(name):
    shape = SCENARIOS[name].shape
    given = SCENARIOS[name].node_environment(shape)
    assert set(given) <= {"head", *shape.world.nodes}
    assert all(isinstance(value, str) for variables in given.values() for value in variables.values())


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_budget_allows_as_many_restarts_as_there_are_faults(name):
    failures = [
        fault for fault in faults(name) if fault.breaks and fault.name != "drain-node"
    ]  # a notice is no failure
    scenario = SCENARIOS[name]
    if scenario.recovers or scenario.waits_s or name in UNNOTICED:
        assert len(failures) <= scenario.shape.max_failures
    else:
        assert len(failures) == scenario.shape.max_failures + 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_control_run_is_made_wherever_the_job_is_expected_to_go_on(name):
    assert SCENARIOS[name].control is (SCENARIOS[name].recovers or name in UNNOTICED)
    text = str(SCENARIOS[name].expectation(SCENARIOS[name].shape))
    assert ("matches_control(" in text) is SCENARIOS[name].control


# All together


def sources_of_tests():
    return "".join(file.read_text() for folder in ("live", "long") for file in (ROOT / "tests" / folder).glob("*.py"))


@pytest.mark.parametrize("name", list(all_faults()))
def test_every_fault_is_used_by_a_scenario_or_a_test_on_a_real_cluster(name):
    used = {injection.fault for scenario in SCENARIOS for injection in asked(scenario).injections}
    assert name in used or f"{all_faults()[name].__name__}(" in sources_of_tests()


def test_every_phase_is_hit_by_some_scenario():
    points = {part.point for name in SCENARIOS for i in asked(name).injections for part in i.trigger.chain}
    assert points >= PHASES.keys()


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_names_scenarios_that_exist_each_once(name):
    if (listed := SUITES[name].members) != ("*",):
        assert len(set(listed)) == len(listed) > 1
        assert all(member in SCENARIOS for member in listed)


def test_the_full_suite_is_everything_and_the_others_are_not():
    assert [name for name, suite in SUITES.items() if suite.members == ("*",)] == ["full"]
    assert {scenario.name for scenario in members(["full"]).scenarios} == set(SCENARIOS)


def test_before_production_a_job_has_seen_a_death_a_hang_a_lost_node_and_a_false_alarm():
    """And most of it on one cluster, since its start is what a suite can share."""
    preprod = SUITES["preprod"].members
    assert len(preprod) == 12
    assert all(any(name in kind for name in preprod) for kind in (HANGS, ON_NODES, HARMLESS))
    keys = Counter(asked(name).cluster_key for name in preprod)
    assert keys.most_common(1)[0][1] >= 4


def test_the_two_of_the_notice_differ_in_heeding_it_alone():
    heeds, ignores = (SCENARIOS[name] for name in SUITES["notice"].members)
    assert heeds.shape == ignores.shape
    differ = set(heeds.settings.items()) ^ set(ignores.settings.items())
    assert {key for key, _ in differ} == {"preemption_check_every"}
    assert asked(heeds.name).cluster_key == asked(ignores.name).cluster_key
    assert asked(heeds.name).workload_key == asked(ignores.name).workload_key


def test_the_suite_of_phases_kills_once_in_each_of_its_members():
    for member in SUITES["kill-every-phase"].members:
        phase = member.removeprefix("kill-in-")
        assert [i.trigger.point for i in asked(member).injections][-1] == phase
        assert {i.fault for i in asked(member).injections} == {"kill"}


# Hangs, and their negative controls


def test_there_are_hangs_that_time_outs_end_one_that_the_watchdog_ends_and_one_that_nobody_notices():
    assert len(TIMED_OUT) >= 5
    assert (len(WATCHED), len(UNNOTICED)) == (1, 1)


@pytest.mark.parametrize("name", TIMED_OUT)
def test_a_hang_is_noticed_by_time_outs_far_below_the_defaults(name):
    own = SCENARIOS[name].shape.timeouts
    for fault in faults(name):
        for noticing in fault.noticed_by:
            default = TIMEOUTS[noticing].default_s
            assert own[noticing] is not None
            assert default is None or own[noticing] <= default / 10


@pytest.mark.parametrize("name", TIMED_OUT)
def test_a_hang_lasts_longer_than_the_time_outs_that_end_it_and_the_bound_on_its_recovery(name):
    own = SCENARIOS[name].shape.timeouts
    longest = max(seconds for key in (*NOTICING, "shutdown") if (seconds := own[key]) is not None)
    assert all(fault.seconds > 10 * longest for fault in faults(name) if hasattr(fault, "seconds"))


@pytest.mark.parametrize("name", [*WATCHED, *UNNOTICED])
def test_with_and_without_the_watchdog_the_time_outs_are_rays_own(name):
    own = SCENARIOS[name].shape.timeouts
    for fault in faults(name):
        assert all(own[key] == TIMEOUTS[key].default_s for key in fault.noticed_by)


def test_the_watchdog_is_far_quicker_than_the_defaults_and_the_hang_outlasts_it():
    (fault,) = faults(*WATCHED)
    shape = SCENARIOS[WATCHED[0]].shape
    assert all(10 * shape.watchdog_s < TIMEOUTS[key].default_s for key in fault.noticed_by)
    assert fault.seconds > 10 * shape.watchdog_s


def test_without_the_watchdog_the_same_hang_would_have_been_long_enough_for_it_but_not_for_the_time_outs():
    (fault,), (watched,) = faults(*UNNOTICED), faults(*WATCHED)
    shape = SCENARIOS[UNNOTICED[0]].shape
    assert type(fault) is type(watched)
    assert shape.watchdog_s == 0
    assert SCENARIOS[WATCHED[0]].shape.watchdog_s < fault.seconds < min(TIMEOUTS[k].default_s for k in fault.noticed_by)


@pytest.mark.parametrize("name", [*TIMED_OUT, *WATCHED])
def test_every_hang_must_be_over_many_times_sooner_than_the_defaults_notice(name):
    assert "beats_defaults(times=" in str(SCENARIOS[name].expects)
    assert str(SCENARIOS[name].expects).startswith(str(HEALTHY))


def test_the_time_out_of_leaving_the_group_is_a_whole_number_as_ray_reads_it():
    assert all(float(s.shape.shutdown_s).is_integer() for s in SCENARIOS.values())


def test_the_negative_controls_are_those_that_break_nothing_and_all_of_them_expect_no_restart():
    assert len(HARMLESS) >= 5
    assert all("restarts(times=0)" in str(SCENARIOS[name].expectation(SCENARIOS[name].shape)) for name in HARMLESS)
    assert set(UNDISTURBING) - set(HARMLESS) == set(UNNOTICED)
    assert set(SLOWED) <= set(UNDISTURBING)


@pytest.mark.parametrize("name", SLOWED)
def test_a_negative_control_runs_under_the_time_outs_of_the_hangs(name):
    assert SCENARIOS[name].shape.timeouts == SHORT.timeouts
    assert {SCENARIOS[hang].shape.timeouts["process_group"] for hang in TIMED_OUT} == {SHORT.timeouts["process_group"]}


@pytest.mark.parametrize("name", SLOWED)
def test_a_disturbance_is_shorter_than_every_time_out_that_could_notice_it(name):
    shortest = min(s for key in NOTICING if (s := SCENARIOS[name].shape.timeouts[key]) is not None)
    assert all(silence_s(fault) < shortest for fault in faults(name))


@pytest.mark.parametrize("name", [name for name in HARMLESS if name in UNDISTURBING])
def test_a_disturbance_lasts_as_long_as_the_shape_says(name):
    for seconds in (5.0, 8.0):
        found = asked(name, settings={"seconds": str(seconds)}).injections
        assert sum(i.values["seconds"] for i in found) == pytest.approx(seconds)


# Nodes that leave, freeze and come back


@pytest.mark.parametrize("name", ON_NODES)
def test_a_node_has_the_cpus_for_its_own_workers_and_for_no_more(name):
    """Else the lost node's worker would find its place beside another, and no machine would be missed."""
    shape = SCENARIOS[name].shape
    assert shape.cpus_per_node // shape.cpus_per_worker == shape.per_node


@pytest.mark.parametrize("name", ON_NODES)
def test_ray_is_given_a_node_health_check_that_notices_a_loss_within_the_bound(name):
    scenario = SCENARIOS[name]
    head = scenario.node_environment(scenario.shape)["head"]
    period_s = float(head["RAY_health_check_period_ms"]) / 1000
    given_up_s = period_s * int(head["RAY_health_check_failure_threshold"])
    bound = re.search(r"notices\(within=(\d+)", str(scenario.expectation(scenario.shape)))
    assert given_up_s < (float(bound[1]) if bound else 60)
    for fault in faults(name):
        if isinstance(fault, Frozen):
            assert (fault.seconds > 2 * given_up_s) if fault.breaks else (fault.seconds < given_up_s)


@pytest.mark.parametrize("name", [name for name, s in SCENARIOS.items() if "resizes(" in str(s.expectation(s.shape))])
def test_the_sizes_that_an_elastic_job_is_to_have_are_those_that_it_may_have(name):
    scenario, shape = SCENARIOS[name], SCENARIOS[name].shape
    text = str(scenario.expectation(shape))
    worlds = [int(size) for size in re.search(r"resizes\(worlds='([^']+)'\)", text)[1].split(", ")]
    assert worlds[0] == min(shape.workers, shape.node_count * shape.per_node)
    assert all(shape.min_workers <= world <= shape.workers for world in worlds)
    assert {abs(a - b) for a, b in itertools.pairwise(worlds)} == {shape.per_node}
    assert scenario.settings["dtype"] == "float64"
    assert "matches_control(within=1e-09)" in text


def test_a_job_that_is_to_wait_lacks_the_nodes_for_its_fewest_workers():
    (name,) = [name for name, scenario in SCENARIOS.items() if scenario.waits_s]
    shape = SCENARIOS[name].shape
    assert shape.node_count - len(faults(name)) < shape.least_nodes
    assert not SCENARIOS[name].recovers


# The shape of a scenario is what the user changes


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_is_as_its_shape_says_with_another_rank_or_more_steps(name):
    steps = SCENARIOS[name].shape.steps
    request = asked(name, settings={"steps": str(steps + 10), "rank": "0"})
    assert request.config.steps == steps + 10
    assert request.injections


def test_kill_worker_kills_one_rank_right_after_one_step():
    (kill,) = asked("kill-worker", rank=0, step=17).injections
    assert (kill.fault, kill.rank, str(kill.trigger)) == ("kill", 0, "at step 17")


def test_kill_repeatedly_kills_as_often_as_the_budget_allows_each_in_the_next_rank():
    kills = asked("kill-repeatedly", workers=3, step=2, settings={"max_failures": "4"}).injections
    assert [(kill.rank, kill.trigger.step) for kill in kills] == [(1, 2), (2, 4), (0, 6), (1, 8)]


def test_crash_loop_crashes_once_more_than_the_budget_allows():
    crashes = asked("crash-loop", settings={"max_failures": "4"}).injections
    assert [crash.follows for crash in crashes] == ["", "", "exit-1", "exit-2", "exit-3"]
    assert len(crashes) == 4 + 1
    assert {str(crash.trigger) for crash in crashes[1:]} == {"at step 5, then in first-step"}


def test_kill_two_at_once_hits_the_same_step():
    assert {kill.trigger.step for kill in asked("kill-two-at-once").injections} == {Shape().step}


def test_the_memory_monitor_looks_on_the_target_node_only():
    scenario = SCENARIOS["oom-worker"]
    given = scenario.node_environment(scenario.shape)
    (eater,) = asked("oom-worker").injections
    watching = [name for name, variables in given.items() if variables["RAY_memory_monitor_refresh_ms"] != "0"]
    assert watching == [eater.node]
    assert set(given) == {"head", *scenario.shape.world.nodes}
    assert 0 < float(given[eater.node]["RAY_memory_usage_threshold"]) <= 0.98
