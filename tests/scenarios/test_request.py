"""What a user asks for: every value settled, and every mistake refused before anything is started."""

from __future__ import annotations

import dataclasses
import shlex
import sys

import pydantic
import pytest

from chaos.agent.plan import Injection
from chaos.exits import UsageError
from chaos.faults.kill import Kill
from chaos.schedule import Arming
from chaos.targets import All, Node, NodeOf, NoTarget, Rank, Some
from chaos.triggers import at_random, at_step, before_step, in_phase, on_attempt
from metrics.expectations import HEALTHY, fails, recovers, restarts
from scenarios.cli import cli
from scenarios.execute import workload
from scenarios.library.phases import RESUMED
from scenarios.request import FLAGS, OWNED, SHARED, Options, resolve
from scenarios.scenario import Shape, find
from trainer.config import TrainerConfig


def resolved(name="kill-worker", settings=None, **options):
    return resolve(find(name), Options(settings=settings or {}, **options))


def kill(rank, trigger, number=0):
    return Injection(id=f"kill-{number}", fault="kill", rank=rank, trigger=trigger)


# Values


def test_without_options_the_scenarios_own_values_hold():
    request = resolved()
    assert request.shape == Shape()
    assert request.injections == (kill(1, at_step(25)),)
    assert request.expects == HEALTHY


def test_the_trainer_gets_the_numbers_of_the_scenario():
    request = resolved("kill-repeatedly", seed=7)
    assert {name: getattr(request.config, name) for name in SHARED} == {
        name: getattr(request.shape, name) for name in SHARED
    }
    assert (request.config.seed, request.config.name) == (7, "kill-repeatedly")


def test_options_change_the_shape():
    request = resolved(workers=3, rank=2, step=17)
    assert request.injections == (kill(2, at_step(17)),)
    assert request.config.workers == 3


def test_settings_go_to_the_scenario_or_to_the_trainer():
    request = resolved(settings={"steps": "60", "poll_s": "0.25", "dropout": "0", "dtype": "float64"})
    assert (request.shape.steps, request.shape.poll_s, request.config.steps) == (60, 0.25, 60)
    assert (request.config.dropout, request.config.dtype) == (0.0, "float64")


def test_a_scenarios_own_settings_of_the_trainer_give_way_to_the_users():
    assert resolved("long-evaluation").config.evaluate_every == 20
    assert resolved("long-evaluation", settings={"evaluate_every": "5"}).config.evaluate_every == 5


def test_with_fewer_workers_the_last_rank_is_hit():
    assert resolved(workers=1).injections[0].rank == 0
    assert resolved(settings={"workers": "1"}).injections[0].rank == 0


def test_the_time_outs_go_where_ray_reads_them(tmp_path):
    request = resolved("hang-frozen", settings={"report_s": "11", "poll_s": "0.25"})
    assert request.config.timeout_s == request.shape.timeout_s == 10
    assert workload(request, tmp_path).environment == {
        "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "10",
        "RAY_TRAIN_COLLECTIVE_TIMEOUT_S": "11",
        "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "3",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.25",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "60",
        "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "5",
    }


def test_a_time_out_that_is_off_is_left_to_ray(tmp_path):
    assert "RAY_TRAIN_COLLECTIVE_TIMEOUT_S" not in workload(resolved(), tmp_path).environment


@pytest.mark.parametrize("asked", [None, True, False])
def test_the_control_run_is_the_scenarios_unless_the_user_says_otherwise(asked):
    assert resolved(control=asked).control is (True if asked is None else asked)
    assert resolved("crash-loop", control=asked).control is bool(asked)


def test_every_fault_beyond_the_first_prolongs_the_deadline():
    assert resolved().deadline_s == 300
    assert resolved("kill-repeatedly").deadline_s == 300 + 4 * 60
    assert resolved(deadline=17.0).deadline_s == 17


# Draws


def test_the_same_seed_draws_the_same_victims_and_others_draw_others():
    drawn = {seed: tuple(i.rank for i in resolved("kill-two-at-once", seed=seed).injections) for seed in range(20)}
    assert all(len(set(ranks)) == 2 for ranks in drawn.values())
    assert set(drawn.values()) == {(0, 1), (0, 2), (1, 2)}
    assert drawn == {s: tuple(i.rank for i in resolved("kill-two-at-once", seed=s).injections) for s in range(20)}


@pytest.mark.parametrize(
    ("target", "hit"),
    [
        (Rank(0), [(0, "")]),
        (All(), [(0, ""), (1, "")]),
        (Node("w1"), [(None, "w1")]),
        (NodeOf(1), [(1, "")]),
        (Some(5), [(0, ""), (1, "")]),
    ],
    ids=str,
)
def test_each_victim_gets_an_injection_of_its_own(requested, target, hit):
    found = requested(at_step(25), target).injections
    assert [(i.rank, i.node) for i in found] == hit
    assert [i.id for i in found] == [f"kill-{n}" for n in range(len(hit))]


def test_a_repeated_trigger_makes_injections_that_follow_each_other(requested):
    found = requested(at_step(5).repeat(3)).injections
    assert [(i.id, i.follows, i.trigger) for i in found] == [
        ("kill-0", "", at_step(5)),
        ("kill-1", "kill-0", at_step(5)),
        ("kill-2", "kill-1", at_step(5)),
    ]


def test_random_times_are_drawn_from_the_seed(requested):
    random = at_random(mtbf_s=10, within_s=100)
    times = {seed: [i.trigger.seconds for i in requested(random, seed=seed).injections] for seed in range(3)}
    assert times == {seed: [i.trigger.seconds for i in requested(random, seed=seed).injections] for seed in range(3)}
    assert len({tuple(drawn) for drawn in times.values()}) == 3
    assert all(drawn == sorted(drawn) and 0 < drawn[0] < drawn[-1] < 100 for drawn in times.values())


# Expectations


def test_a_users_word_takes_the_place_of_the_scenarios_own():
    request = resolved(expect="recovers(within=60) & loses(steps<=10)")
    assert str(request.expects) == str(HEALTHY).replace("recovers()", "recovers(within=60)").replace(
        "loses()", "loses(steps=10)"
    )


def test_a_word_that_the_scenario_lacks_is_added():
    assert str(resolved(expect="stays_flat()").expects) == f"{HEALTHY} & stays_flat()"


def test_an_expectation_with_two_outcomes_is_one_word():
    own = RESUMED | fails(error="ControllerError")
    request = resolved("kill-in-rendezvous", expect="recovers(within=60)")
    assert str(request.expects) == f"({own}) & recovers(within=60)"
    request = resolved("kill-in-rendezvous", expect="recovers() | fails(error='E')")
    assert str(request.expects) == str(recovers() | fails(error="E"))


def test_an_expectation_that_depends_on_the_shape_goes_by_the_users():
    assert str(restarts(times=4)) in str(resolved("crash-loop", settings={"max_failures": "4"}).expects)


# Mistakes


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"rank": 9}, "rank=9 is outside the world of 2 workers: use 0 to 1"),
        ({"workers": 1, "rank": 1}, "rank=1 is outside the world of 1 workers"),
        ({"step": 999}, r"step=999 never comes \(at step 999\) in a run of 40 steps: use 1 to 40"),
        ({"step": 41}, "step=41 never comes"),
        ({"workers": 5}, "workers=5 does not divide micro_batches=6"),
        ({"workers": 4, "rank": 0}, "workers=4 does not divide micro_batches=6"),
        ({"name": "kill-repeatedly", "step": 23}, r"step=25 never comes \(at step 25\) in a run of 24 steps"),
        ({"name": "kill-in-restore", "settings": {"max_failures": "0"}}, "attempt=1 never comes: the budget allows 1"),
        ({"expect": "recovers(within<60)"}, "--expect 'recovers.within<60.': within < 60: write within <= 60"),
    ],
)
def test_what_could_never_work_is_refused_by_name(asked, message):
    with pytest.raises(UsageError, match=message):
        resolved(**asked)


@pytest.mark.parametrize(
    ("inject", "message"),
    [
        (lambda: in_phase("nosuch"), "phase 'nosuch' does not exist: use one of rendezvous, restore, "),
        (lambda: at_step(3) & at_step(4), "step cannot be both 3 and 4: this trigger never fires"),
        (lambda: in_phase("save") & in_phase("report"), "phase cannot be both save and report"),
        (lambda: on_attempt(1) & on_attempt(0), "attempt cannot be both 1 and 0"),
        (lambda: in_phase("save") & at_step(25), "nothing is saved at step=25"),
        (lambda: on_attempt(4), "attempt=4 never comes: the budget allows 4"),
        (lambda: at_step(41), "step=41 never comes"),
        (lambda: before_step(42), "never comes"),
        (lambda: at_step(25) >> (in_phase("commit") & at_step(31)), "nothing is saved at step=31"),
        (lambda: at_random(mtbf_s=1e9, within_s=0.001), "nothing would be injected with these settings and seed=0"),
    ],
)
def test_a_trigger_that_never_fires_is_refused_in_one_line(armed, inject, message):
    scenario = armed(inject=lambda shape: (Arming(Kill(), inject(), Rank(1)),))
    with pytest.raises(UsageError) as error:
        resolve(scenario, Options())
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("target", [Node("w9"), Node(""), Some(1, Node("head")), Some(0)], ids=str)
def test_a_target_that_matches_nobody_is_no_mistake_of_values(requested, target):
    with pytest.raises(NoTarget, match=f"no target matched: {target}, in a world of 2 workers on 2 nodes"):
        requested(at_step(25), target)


@pytest.mark.parametrize("target", [Rank(2), Rank(-1), NodeOf(2)], ids=str)
def test_a_rank_outside_the_world_is_a_mistake(requested, target):
    with pytest.raises(UsageError, match="is outside the world of 2 workers: use 0 to 1"):
        requested(at_step(25), target)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("nosuch", "1", "--set nosuch=1: unknown setting; known are batch_size, "),
        ("", "5", "--set =5: unknown setting"),
        ("steps", "many", "--set steps=many: steps is of type int"),
        ("steps", "4.5", "--set steps=4.5: steps is of type int"),
        ("steps", "", "--set steps=: steps is of type int"),
        ("poll_s", "fast", "--set poll_s=fast: poll_s is of type float"),
        ("steps", "0", "steps=0 must be at least 1"),
        ("rank", "-1", "rank=-1 is outside the world of 2 workers"),
        ("dropout", "1", "dropout=1.0 must be in"),
        ("dropout", "nan", "dropout=nan must be in"),
        ("dtype", "half", "dtype=half must be one of float32"),
        ("keep", "0", "keep=0 must be at least 1"),
        ("per_node", "0", "per_node=0 must be at least 1"),
        ("checkpoint_every", "0", "checkpoint_every=0 must be at least 1"),
        ("max_failures", "-2", "max_failures=-2 must be"),
        ("width", "65", "width=65 must be a multiple of heads=4"),
        ("workers", "0", "workers=0 must be at least 1"),
        ("timeout_s", "0", "timeout_s=0 must be at least 1"),
        ("timeout_s", "2.5", "--set timeout_s=2.5: timeout_s is of type int"),
        ("health_s", "0", "health_s=0.0 must be a positive number of seconds"),
        ("report_s", "-1", "report_s=-1.0 must be a number of seconds, or 0"),
        ("poll_s", "-1", "poll_s=-1.0 must be a positive number of seconds"),
        ("poll_s", "nan", "poll_s=nan must be a positive number of seconds"),
        ("seconds", "inf", "seconds=inf must be a positive number of seconds"),
        ("shutdown_s", "2.5", "shutdown_s is of type int"),  # Ray reads whole numbers only, and 30 in place of others
    ],
)
def test_a_bad_setting_is_refused_by_name(key, value, message):
    with pytest.raises(UsageError) as error:
        resolved(settings={key: value})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", sorted(OWNED - set(SHARED)))
def test_a_setting_that_the_harness_decides_is_unknown(key):
    with pytest.raises(UsageError, match=f"--set {key}=1: unknown setting"):
        resolved(settings={key: "1"})


def test_every_shared_number_is_one_of_both():
    both = {f.name for f in dataclasses.fields(Shape)} & {f.name for f in dataclasses.fields(TrainerConfig)}
    assert both == set(SHARED)


@pytest.mark.parametrize("budget", ["0", "-1"])
def test_a_scenario_left_without_a_fault_is_refused(budget):
    with pytest.raises(UsageError):
        resolved("kill-repeatedly", settings={"max_failures": budget})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((name, value) for name in ("workers", "step") for value in (0, -1)),
        ("rank", -1),
        ("seed", -1),
        *(("deadline", value) for value in (0.0, -1.0, float("nan"))),
        ("nosuch", 1),
    ],
)
def test_a_bad_option_is_refused_by_name(option, value):
    with pytest.raises(pydantic.ValidationError) as error:
        Options(**{option: value})
    assert error.value.errors()[0]["loc"] == (option,)


# The shape that options and settings make together


def test_settings_that_only_fit_together_are_taken_together():
    assert resolved("drain-node", workers=6, settings={"nodes": "7"}).shape.node_count == 7
    assert resolved("drop-node-elastic", workers=1, settings={"min_workers": "1"}).shape.rank == 0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"name": "drop-node-elastic", "workers": 1}, "min_workers=2 is above workers=1: use at most 1"),
        ({"settings": {"min_workers": "3"}}, "min_workers=3 is above workers=2: use at most 2"),
        ({"name": "drain-node", "workers": 6}, "nodes=3 cannot hold 6 workers, 1 on each: use 6 or more, or fewer --w"),
        ({"settings": {"nodes": "-1"}}, "nodes=-1 must be 0 or more"),
        ({"settings": {"cpus_per_worker": "0"}}, "cpus_per_worker=0 must be at least 1"),
        ({"settings": {"watchdog_s": "-1"}}, "watchdog_s=-1.0 must be a number of seconds, or 0 for none"),
        ({"settings": {"preemption_poll_s": "0"}}, "preemption_poll_s=0.0 must be a positive number of seconds"),
    ],
    ids=str,
)
def test_a_group_or_nodes_that_cannot_be_are_refused_by_name(asked, message):
    with pytest.raises(UsageError) as error:
        resolved(**asked)
    assert message in str(error.value)


# The command that repeats a run


@pytest.mark.parametrize(
    ("given", "names", "repeats"),
    [
        ("run kill-worker", "kill-worker", "run kill-worker"),
        ("run kill-worker --set 'data=a b' --json", "kill-worker", "run kill-worker --set 'data=a b' --json"),
        ("run preprod", "preprod", "run kill-worker"),
        ("run preprod --out out/preprod --seed 3", "preprod", "run kill-worker --out out/preprod --seed 3"),
        ("run preprod --out preprod", "preprod", "run kill-worker --out preprod"),
        ("run --out preprod preprod", "preprod", "run --out preprod kill-worker"),
        ("run --out=preprod preprod", "preprod", "run --out=preprod kill-worker"),
        ("run --json preprod --resume", "preprod", "run --json kill-worker"),
        ("run --resume preprod --out x", "preprod", "run kill-worker --out x"),
        ("run segfault kill-worker hang-gil", "segfault kill-worker hang-gil", "run kill-worker"),
        ("run --seed 3 segfault --quiet preprod segfault", "segfault preprod", "run --seed 3 kill-worker --quiet"),
        ("run segfault --expect 'recovers(within=60) & loses()' notice", "segfault notice",
         "run kill-worker --expect 'recovers(within=60) & loses()'"),
    ],
)  # fmt: skip
def test_the_command_that_repeats_a_run_names_its_own_scenario_in_place_of_all(monkeypatch, given, names, repeats):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/aftershock", *shlex.split(given)])
    asked = dataclasses.replace(resolved(), asked=tuple(dict.fromkeys(names.split())))
    assert asked.command == f"aftershock {repeats}"


def test_outside_the_command_a_run_is_repeated_by_its_scenario(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/aftershock", "run", "kill-worker", "--set", "data=a b"])
    assert resolved().command == "aftershock run kill-worker --set 'data=a b'"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest", "-q"])
    assert resolved().command == "aftershock run kill-worker"


def test_the_options_that_take_no_value_are_those_of_the_command():
    flags = {option for p in cli.commands["run"].params if getattr(p, "is_flag", False) for option in p.opts}
    off = {option for p in cli.commands["run"].params for option in p.secondary_opts}
    assert flags | off == FLAGS


def test_the_control_run_of_an_elastic_job_is_of_its_full_size_from_the_start():
    request = resolve(find("drop-node-elastic"), Options())
    assert (request.config.min_workers, request.config.workers) == (2, 3)
    assert (request.undisturbed.config.min_workers, request.undisturbed.config.workers) == (0, 3)
    assert request.undisturbed.workload_key == request.workload_key
