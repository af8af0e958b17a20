"""Triggers: conditions that compose, survive storage, and refuse what can never happen."""

from __future__ import annotations

import dataclasses
import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.triggers import (
    PHASES,
    TIME,
    Moment,
    NeverFires,
    Trigger,
    after_seconds,
    at_random,
    at_step,
    before_step,
    check,
    in_phase,
    on_attempt,
)

few = settings(max_examples=20, deadline=None)

SECONDS = st.floats(0, 1e6, allow_nan=False)
CONDITIONS: dict[str, st.SearchStrategy[Any]] = {
    "phase": st.none() | st.sampled_from(list(PHASES)),
    "step": st.none() | st.integers(0, 99),
    "attempt": st.none() | st.integers(0, 9),
    "seconds": st.none() | SECONDS,
}
SINGLE = st.builds(Trigger, **CONDITIONS)
CHAINED = st.recursive(
    SINGLE, lambda inner: st.builds(lambda a, b: a >> b, inner, inner) | st.builds(lambda a, b: a >> b, inner, SINGLE)
)
RANDOM = st.builds(at_random, st.floats(0.01, 100), st.floats(0.01, 100))
ANY = CHAINED | RANDOM
MOMENTS = st.builds(Moment, st.sampled_from([*PHASES, TIME]), st.integers(0, 9), st.integers(0, 3), st.floats(0, 99))


def merged(one: Trigger, other: Trigger) -> Trigger | str:
    """Both at once, or the word of a contradiction."""
    try:
        return one & other
    except NeverFires:
        return "never"


# One condition


def test_at_step_means_right_after_it() -> None:
    assert at_step(25).point == "step"
    assert at_step(25).holds(Moment("step", 25, 0))
    assert not at_step(25).holds(Moment("step", 24, 0))
    assert not at_step(25).holds(Moment("forward", 25, 0))


def test_before_step_means_between_backward_and_optimizer_with_one_step_less_complete() -> None:
    assert before_step(26).holds(Moment("optimizer", 25, 0))
    assert not before_step(26).holds(Moment("optimizer", 26, 0))
    assert not before_step(26).holds(Moment("step", 25, 0))


@pytest.mark.parametrize("phase", PHASES)
def test_in_phase_means_at_its_point_whatever_the_step(phase: str) -> None:
    for other in PHASES:
        assert in_phase(phase).holds(Moment(other, 7, 1)) is (other == phase)


def test_a_phase_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(NeverFires, match=r"phase 'svae' does not exist: use one of rendezvous, .*, save, .*, teardown"):
        in_phase("svae")


def test_an_attempt_alone_is_the_end_of_its_first_step() -> None:
    assert on_attempt(1).point == "step"
    assert on_attempt(1).holds(Moment("step", 9, 1))
    assert not on_attempt(1).holds(Moment("step", 9, 0))


def test_the_first_attempt_is_a_condition_although_it_is_number_zero() -> None:
    assert not on_attempt(0).holds(Moment("step", 9, 1))
    assert not (in_phase("save") & at_step(0)).holds(Moment("save", 10, 0))


@pytest.mark.parametrize("phase", [*PHASES, TIME])
def test_a_time_alone_has_come_at_any_point(phase: str) -> None:
    assert after_seconds(5).point == TIME
    assert after_seconds(5).holds(Moment(phase, 0, 0, 5.0))
    assert not after_seconds(5).holds(Moment(phase, 0, 0, 4.999))


def test_a_time_with_a_phase_is_the_first_such_phase_after_it() -> None:
    trigger = after_seconds(5) & in_phase("save")
    assert trigger.point == "save"
    assert trigger.holds(Moment("save", 30, 0, 60.0))
    assert not trigger.holds(Moment("save", 0, 0, 4.0))
    assert not trigger.holds(Moment(TIME, 30, 0, 60.0))


@pytest.mark.parametrize("moment", [Moment("save", 20, 1), Moment("step", 20, 1), Moment("save", 10, 1)])
def test_a_conjunction_holds_where_all_its_parts_do(moment: Moment) -> None:
    trigger = in_phase("save") & at_step(20) & on_attempt(1)
    assert trigger.holds(moment) is (moment == Moment("save", 20, 1))


# Both at once


@few
@given(SINGLE, SINGLE)
def test_and_is_commutative(one: Trigger, other: Trigger) -> None:
    assert merged(one, other) == merged(other, one)


@few
@given(CHAINED, SINGLE)
def test_and_is_commutative_whatever_came_earlier(one: Trigger, other: Trigger) -> None:
    assert merged(one, other) == merged(other, one)


@few
@given(ANY)
def test_a_trigger_and_itself_is_itself(trigger: Trigger) -> None:
    assert trigger & trigger == trigger
    assert trigger & Trigger() == Trigger() & trigger == trigger


@few
@given(SINGLE, SINGLE)
def test_contradictions_and_nothing_else_raise(one: Trigger, other: Trigger) -> None:
    default = Trigger()
    clash = any(
        getattr(default, name) not in (getattr(one, name), getattr(other, name))
        and getattr(one, name) != getattr(other, name)
        for name in CONDITIONS
    )
    assert (merged(one, other) == "never") is clash


@few
@given(SINGLE, SINGLE, MOMENTS)
def test_both_hold_where_the_conjunction_does(one: Trigger, other: Trigger, moment: Moment) -> None:
    """Points aside: a bare step means the end of that step, with a phase it means the phase."""
    both = merged(one, other)
    if isinstance(both, Trigger) and both.holds(moment):
        for part in (one, other):
            assert dataclasses.replace(part, phase=moment.phase).holds(moment)


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (at_step(5), at_step(6), "step cannot be both 5 and 6: this trigger never fires"),
        (in_phase("save"), in_phase("report"), "phase cannot be both save and report: this trigger never fires"),
        (on_attempt(0), on_attempt(1), "attempt cannot be both 0 and 1: this trigger never fires"),
        (after_seconds(1.0), after_seconds(2.5), "seconds cannot be both 1.0 and 2.5: this trigger never fires"),
        (at_random(1, 2), at_random(3, 2), "mtbf_s cannot be both 1 and 3: this trigger never fires"),
    ],
)
def test_a_contradiction_names_both_values(one: Trigger, other: Trigger, told: str) -> None:
    with pytest.raises(NeverFires, match=f"^{told}$"):
        one & other


# One after the other


def test_what_comes_earlier_stands_first_in_the_chain() -> None:
    a, b, c = at_step(5), in_phase("restore"), in_phase("save")
    chain = (a >> b >> c).chain
    assert [part.point for part in chain] == ["step", "restore", "save"]
    assert chain[0] == a
    assert chain[-1] == a >> b >> c


@few
@given(SINGLE, SINGLE, SINGLE)
def test_it_does_not_matter_how_a_chain_is_put_together(a: Trigger, b: Trigger, c: Trigger) -> None:
    assert (a >> b) >> c == a >> (b >> c)


def passes(trigger: Trigger, moments: list[Moment]) -> int:
    """How many of the moments it takes until a chain has passed in order; 0 when it does not."""
    waiting = list(trigger.chain)
    for count, moment in enumerate(moments, 1):
        if waiting[0].holds(moment):
            waiting.pop(0)
        if not waiting:
            return count
    return 0


def test_a_chain_passes_in_its_order_only() -> None:
    trigger = at_step(1) >> at_step(2) >> at_step(3)
    one, two, three = (Moment("step", i, 0) for i in (1, 2, 3))
    assert passes(trigger, [one, two, three]) == 3
    assert passes(trigger, [three, one, three, two, two, three]) == 6
    assert passes(trigger, [three, two, one]) == 0


# Storage


@few
@given(ANY)
def test_a_stored_trigger_is_read_as_it_was(trigger: Trigger) -> None:
    assert Trigger.of(dataclasses.asdict(trigger)) == trigger
    assert Trigger.of(json.loads(json.dumps(dataclasses.asdict(trigger)))) == trigger


# Draws


@few
@given(SINGLE | CHAINED, st.integers(0, 99))
def test_a_repetition_is_written_out_one_by_one(trigger: Trigger, seed: int) -> None:
    drawn = trigger.repeat(4).drawn(random.Random(seed))
    assert drawn == (dataclasses.replace(trigger, times=1),) * 4


@few
@given(st.integers(), st.floats(0.1, 50), st.floats(0.1, 20))
def test_random_times_ascend_and_lie_within_the_horizon(seed: int, mtbf_s: float, within_s: float) -> None:
    drawn = at_random(mtbf_s, within_s).drawn(random.Random(seed))
    times = [trigger.seconds for trigger in drawn]
    assert all(0 <= earlier <= later for earlier, later in pairwise(times))
    assert all(time <= round(within_s, 3) for time in times)
    assert drawn == tuple(after_seconds(time) for time in times)


@few
@given(st.integers())
def test_the_same_seed_draws_the_same_times(seed: int) -> None:
    trigger = at_random(5, 60) & in_phase("save")
    assert trigger.drawn(random.Random(seed)) == trigger.drawn(random.Random(seed))


def test_random_times_are_as_far_apart_as_asked_on_average() -> None:
    """Of 10,000 gaps of an exponential distribution the mean lies within 4 % of its own, four standard errors."""
    times = [t.seconds for t in at_random(3, 30_000).drawn(random.Random(7))]
    assert len(times) == pytest.approx(10_000, rel=0.04)
    gaps = [later - earlier for earlier, later in pairwise([0.0, *times])]
    assert sum(gaps) / len(gaps) == pytest.approx(3, rel=0.04)
    assert sum(gap > 3 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.02)


def test_a_random_time_keeps_its_other_conditions() -> None:
    drawn = (at_random(1, 10) & in_phase("save") & on_attempt(0)).drawn(random.Random(0))
    assert len(drawn) > 0
    assert {(t.phase, t.attempt, t.mtbf_s, t.within_s, t.times) for t in drawn} == {("save", 0, None, None, 1)}


# Words


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        (at_step(25), "at step 25"),
        (before_step(26), "before step 26"),
        (in_phase("save") & at_step(20), "in save at step 20"),
        (in_phase("step"), "at a step"),
        (in_phase("first-step") & on_attempt(1), "in first-step on attempt 1"),
        (in_phase("optimizer"), "in optimizer"),
        (after_seconds(2.5), "2.5 s after the first step"),
        (at_step(25) >> in_phase("restore"), "at step 25, then in restore"),
        (at_step(5).repeat(3), "at step 5, 3 times"),
        (at_random(60, 300), "at random, one in 60 s on average"),
    ],
)
def test_a_trigger_reads_like_a_sentence(trigger: Trigger, words: str) -> None:
    assert str(trigger) == words


# What can never happen


def refused(trigger: Trigger, *, steps: int = 40, checkpoint_every: int = 10, attempts: float = 4) -> str:
    """The reason for which a trigger is refused; empty where it is not."""
    try:
        check(trigger, steps=steps, checkpoint_every=checkpoint_every, attempts=attempts)
    except NeverFires as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "trigger",
    [
        at_step(1),
        at_step(40),
        before_step(1),
        before_step(40),
        in_phase("forward") & at_step(39),
        in_phase("restore") & at_step(0),
        in_phase("save") & at_step(20),
        in_phase("commit") & at_step(40),
        on_attempt(3),
        in_phase("teardown"),
        after_seconds(1e9),
        at_step(40) >> in_phase("save"),
    ],
    ids=str,
)
def test_a_trigger_that_can_come_is_let_through(trigger: Trigger) -> None:
    assert refused(trigger) == ""


@pytest.mark.parametrize(
    ("trigger", "told"),
    [
        (at_step(0), "step=0 never comes (at step 0) in a run of 40 steps: use 1 to 40, or --set steps=N"),
        (at_step(41), "step=41 never comes (at step 41) in a run of 40 steps: use 1 to 40, or --set steps=N"),
        (before_step(0), "step=0 never comes (before step 0) in a run of 40 steps: use 1 to 40, or --set steps=N"),
        (before_step(41), "step=41 never comes (before step 41) in a run of 40 steps: use 1 to 40, or --set steps=N"),
        (
            in_phase("save") & at_step(25),
            "nothing is saved at step=25 (in save at step 25): use a multiple of checkpoint_every=10",
        ),
        (on_attempt(4), "attempt=4 never comes: the budget allows 4, counted from 0"),
        (on_attempt(-1), "attempt=-1 never comes: the budget allows 4, counted from 0"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_trigger_that_never_comes_is_refused_with_the_way_out(trigger: Trigger, told: str) -> None:
    assert refused(trigger) == told


@pytest.mark.parametrize("phase", ["save", "report", "transfer", "commit"])
def test_the_last_step_is_saved_whatever_the_interval(phase: str) -> None:
    assert refused(in_phase(phase) & at_step(37), steps=37) == ""
    assert refused(in_phase(phase) & at_step(36), steps=37) != ""


@pytest.mark.parametrize("phase", ["save", "report", "transfer", "commit"])
def test_nothing_is_saved_before_the_first_step(phase: str) -> None:
    assert refused(in_phase(phase) & at_step(0)) != ""


def test_a_random_time_cannot_come_earlier_than_something() -> None:
    with pytest.raises(NeverFires, match="put it last"):
        at_random(5, 60) >> in_phase("save")


def test_a_repetition_cannot_come_earlier_than_something() -> None:
    with pytest.raises(NeverFires, match="put it last"):
        at_step(5).repeat(3) >> in_phase("save")


def test_a_mean_time_that_is_not_positive_is_refused() -> None:
    with pytest.raises(NeverFires):
        at_random(0, 60).drawn(random.Random(0))


def test_without_a_bound_on_restarts_every_attempt_can_come() -> None:
    assert refused(on_attempt(10**6), attempts=float("inf")) == ""


@few
@given(CHAINED, st.integers(1, 99), st.integers(1, 9))
def test_a_chain_is_refused_if_and_only_if_one_of_its_parts_is(trigger: Trigger, steps: int, attempts: int) -> None:
    parts = [dataclasses.replace(part, earlier=None) for part in trigger.chain]
    alone = [refused(part, steps=steps, attempts=attempts) for part in parts]
    assert bool(refused(trigger, steps=steps, attempts=attempts)) is any(alone)
