"""What an undisturbed run tells of a script, and the scenario cut to its measure."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from chaos.history import History
from metrics.expectations import recovers
from scenarios.learning import EVERY, Learnt, Unfit, settle
from scenarios.program import Script
from scenarios.request import Options, resolve_script
from scenarios.scenario import Shape, find
from tests.histories import healthy

SCRIPT = Script(("python", "train.py"), Path())
LEARNT = Learnt(
    workers=2, fewest=0, steps=40, commits=(10, 20, 30, 40), keep=2, max_failures=3, timeout_s=1800.0, life_s=20.0
)


def settled(name="kill-worker", options=None, **learnt):
    request = resolve_script(find(name), options or Options(), SCRIPT)
    return settle(request, dataclasses.replace(LEARNT, **learnt))


# What is learnt


@pytest.fixture
def undisturbed():
    return healthy().control


def test_an_undisturbed_run_tells_steps_workers_checkpoints_and_budget(undisturbed):
    learnt = Learnt.of(History.of(undisturbed.events))
    assert (learnt.workers, learnt.fewest, learnt.steps, learnt.commits) == (2, 0, 12, (4, 8, 12))
    assert (learnt.keep, learnt.max_failures) == (2, 3)
    assert learnt.life_s > 0


def test_the_least_workers_of_an_elastic_job_are_learnt(undisturbed):
    elastic = undisturbed.change("controller.start", workers=[2, 4])
    assert Learnt.of(History.of(elastic.events)).fewest == 2


def test_where_all_checkpoints_are_kept_the_number_is_beyond_any(undisturbed):
    assert Learnt.of(History.of(undisturbed.change("controller.start", keep=None).events)).keep == EVERY


@pytest.mark.parametrize("gone", ["controller.start", "workload.exit", "worker.start", "step.end"])
def test_nothing_is_learnt_of_a_run_that_does_not_tell_enough(undisturbed, gone):
    assert Learnt.of(History.of(undisturbed.drop(gone).events)) is None


@pytest.mark.parametrize("code", [1, None])
def test_nothing_is_learnt_of_a_script_that_did_not_end_well(undisturbed, code):
    assert Learnt.of(History.of(undisturbed.change("workload.exit", code=code).events)) is None


# The step


@pytest.mark.parametrize(
    ("commits", "steps", "step"),
    [
        ((10, 20, 30, 40), 40, 25),
        ((4, 8, 12), 12, 10),
        ((5,), 12, 7),
        ((12,), 12, 6),
        ((), 100, 62),
        ((), 2, 1),
        ((1, 2, 3), 3, 2),
    ],
)
def test_the_fault_comes_where_it_does_between_checkpoints_of_the_scenario(commits, steps, step):
    learnt = dataclasses.replace(LEARNT, commits=commits, steps=steps)
    assert learnt.step(Shape()) == step
    assert 0 < step < max(2, steps)


# The scenario cut to measure


def test_the_shape_is_the_scripts():
    shape = settled(workers=4, steps=90, commits=(30, 60, 90), keep=EVERY, max_failures=1).shape
    told = (shape.workers, shape.steps, shape.checkpoint_every, shape.keep, shape.max_failures, shape.timeout_s)
    assert told == (4, 90, 30, EVERY, 1, 1800)


def test_a_rank_and_a_step_that_were_asked_for_stay():
    request = settled(options=Options(rank=0, step=7), steps=90, commits=(30, 60, 90))
    (injection,) = request.injections
    assert (injection.rank, str(injection.trigger)) == (0, "at step 7")


def test_the_deadline_follows_from_the_life_of_the_undisturbed_run_unless_one_was_asked_for():
    assert settled(life_s=100.0).deadline_s == 600
    assert settled(options=Options(deadline=77), life_s=100.0).deadline_s == 77
    assert resolve_script(find("kill-worker"), Options(), SCRIPT).deadline_s == 3600


def test_bounds_of_the_user_hold():
    assert str(recovers(within=5)) in str(settled(options=Options(expect="recovers(within=5)")).expects)


@pytest.mark.parametrize(
    ("name", "learnt", "why"),
    [
        ("drop-node-elastic", {}, "num_workers=\\(least, most\\)"),
        ("hang-blocked", {}, "leaves it at 1800 s: set TorchConfig\\(timeout_s=10\\)"),
        ("kill-in-restore", {"max_failures": 0}, "the budget allows 1"),
        ("kill-repeatedly", {"max_failures": 0}, "nothing would be injected"),
        ("kill-in-save", {"commits": ()}, "never comes"),
        ("drain-node", {}, "heeds notices"),
    ],
)
def test_a_script_that_does_not_do_what_a_scenario_asks_for_is_unfit_with_the_reason(name, learnt, why):
    with pytest.raises(Unfit, match=why):
        settled(name, **learnt)


@pytest.mark.parametrize(
    "name", ["hang-frozen", "hang-gil", "missing-report", "drop-node", "crash-loop", "oom-refused"]
)
def test_a_script_with_default_settings_is_fit_for_what_it_can_show(name):
    assert settled(name).injections


def test_a_short_time_out_of_the_scripts_own_lets_a_blocked_rank_be_noticed():
    assert settled("hang-blocked", timeout_s=30.0).shape.timeouts["process_group"] == 30


def test_an_elastic_script_is_fit_for_a_resize():
    shape = settled("drop-node-elastic", fewest=2, workers=3).shape
    assert (shape.min_workers, shape.workers) == (2, 3)
