"""What a user asks for: every value settled, and every mistake refused before anything is started."""

from __future__ import annotations

import sys

import pydantic
import pytest

from chaos.agent.plan import Injection
from chaos.exits import UsageError
from scenarios.request import OWNED, SHARED, Options, resolve
from scenarios.scenario import Shape


def resolved(name="kill-worker", settings=None, **options):
    return resolve(name, Options(settings=settings or {}, **options))


def test_without_options_the_scenarios_own_values_hold():
    request = resolved()
    assert request.shape == Shape()
    assert request.injections == (Injection(id="kill-0", fault="kill", rank=1, step=25),)


def test_the_trainer_gets_the_numbers_of_the_scenario():
    request = resolved("kill-repeatedly", seed=7)
    assert {name: getattr(request.config, name) for name in SHARED} == {
        name: getattr(request.shape, name) for name in SHARED
    }
    assert (request.config.seed, request.config.name) == (7, "kill-repeatedly")


def test_options_change_the_shape():
    request = resolved(workers=3, rank=2, step=17)
    assert request.injections == (Injection(id="kill-0", fault="kill", rank=2, step=17),)
    assert request.config.workers == 3


def test_settings_go_to_the_scenario_or_to_the_trainer():
    request = resolved(settings={"steps": "60", "poll_s": "0.25", "dropout": "0", "dtype": "float64"})
    assert (request.shape.steps, request.shape.poll_s, request.config.steps) == (60, 0.25, 60)
    assert (request.config.dropout, request.config.dtype) == (0.0, "float64")


def test_with_fewer_workers_the_last_rank_is_hit():
    assert resolved(workers=1).injections[0].rank == 0
    assert resolved(settings={"workers": "1"}).injections[0].rank == 0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"name": "kill-worke"}, "did you mean 'kill-worker'"),
        ({"rank": 9}, "rank=9 is outside the world of 2 workers: use 0 to 1"),
        ({"workers": 1, "rank": 1}, "rank=1 is outside the world of 1 workers"),
        ({"step": 999}, "step=999 never comes in a run of 40 steps"),
        ({"step": 41}, "step=41 never comes"),
        ({"workers": 5}, "workers=5 does not divide micro_batches=6"),
        ({"workers": 4, "rank": 0}, "workers=4 does not divide micro_batches=6"),
        ({"name": "kill-repeatedly", "step": 23}, "step=25 never comes in a run of 24 steps"),
    ],
)
def test_what_could_never_work_is_refused_by_name(asked, message):
    with pytest.raises(UsageError, match=message):
        resolved(**asked)


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
        ("checkpoint_every", "0", "checkpoint_every=0 must be at least 1"),
        ("max_failures", "-2", "max_failures=-2 must be"),
        ("width", "65", "width=65 must be a multiple of heads=4"),
        ("workers", "0", "workers=0 must be at least 1"),
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


def test_no_workers_are_refused_by_every_scenario():
    with pytest.raises(UsageError):
        resolved("kill-repeatedly", settings={"workers": "0"})


@pytest.mark.parametrize(
    ("key", "value"), [("poll_s", "-1"), ("poll_s", "0"), ("poll_s", "nan"), ("recover_within_s", "-1")]
)
def test_a_bad_number_of_the_shape_is_refused_by_name(key, value):
    with pytest.raises(UsageError, match=f"{key}="):
        resolved(settings={key: value})


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


def test_the_command_that_repeats_the_run_is_the_one_that_was_given(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/aftershock", "run", "kill-worker", "--set", "data=a b"])
    assert resolved().command == "aftershock run kill-worker --set 'data=a b'"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest", "-q"])
    assert resolved().command == "aftershock run kill-worker"
