"""What is expected of a recovery: how words and their bounds compose, and how they are read from a text."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics import expectations
from metrics.expectations import (
    HEALTHY,
    UNDISTURBED,
    Either,
    Expectation,
    beats_defaults,
    by,
    completes,
    cpu,
    fails,
    idles,
    interruptible,
    keeps_batch,
    keeps_checkpoints,
    keeps_every_step,
    loses,
    matches_control,
    names,
    never_two_groups,
    notices,
    parse,
    preempts,
    recovers,
    reschedules,
    resizes,
    restarts,
    resumes,
    stays_flat,
    steps,
    times,
    within,
)
from metrics.verdict import Case, Check, Finding, Verdict
from scenarios.scenario import Scenario, all_scenarios
from tests.histories import Run, faulty, healthy, worst
from tests.stories import Hit

EXIT = Hit(1, phase="first-step", fault="exit")
LOOP = faulty((Hit(1, 5, fault="exit"),), (EXIT,), (EXIT,), max_failures=2, control=False, gives_up=True)
LIBRARY = {name: found for name, found in all_scenarios().items() if isinstance(found, Scenario)}


def told(expectation: Expectation) -> list[Any]:
    """What an expectation asks, in full: its words with their settings, its checks with their bounds."""
    return [
        ("either", told(term.first), told(term.second))
        if isinstance(term, Either)
        else (term.name, term.settings, [(name, _bounds(check)) for name, check in term.checks])
        for term in expectation.terms
    ]


def _bounds(check: Check) -> tuple[Any, dict[str, Any]]:
    return (check.func, check.keywords) if isinstance(check, partial) else (check, {})


def names_of(expectation: Expectation) -> list[str]:
    return [name for name, _ in expectation.checks]


def test_a_healthy_recovery_is_asked_everything_that_makes_it_one() -> None:
    assert names_of(HEALTHY) == [
        "recovered",
        "restarts",
        "lost-steps",
        "completed",
        "resume-step",
        "restored-state",
        "steps",
        "samples",
        "checkpoints",
        "snapshot",
        "trajectory",
        "control-state",
        "blast-radius",
    ]
    assert str(HEALTHY) == (
        "recovers() & restarts() & loses() & completes() & resumes() & keeps_every_step() & keeps_checkpoints() "
        "& matches_control() & spares_others()"
    )


def test_a_job_that_is_only_disturbed_must_not_restart() -> None:
    assert str(UNDISTURBED).startswith("restarts(times=0) & completes()")
    assert not {"recovered", "lost-steps", "resume-step"} & set(names_of(UNDISTURBED))


# Words and bounds

BOUNDS = [
    (loses(steps <= 10), "loses(steps=10)"),
    (loses(steps=10), "loses(steps=10)"),
    (loses(), "loses()"),
    (recovers(within <= 60), "recovers(within=60)"),
    (recovers(within=60.5), "recovers(within=60.5)"),
    (restarts(times == 3), "restarts(times=3)"),
    (restarts(times=0), "restarts(times=0)"),
    (stays_flat(by <= 0.5), "stays_flat(by=0.5)"),
    (matches_control(within <= 1e-9), "matches_control(within=1e-09)"),
    (matches_control(within=None), "matches_control()"),
    (keeps_batch(), "keeps_batch()"),
    (resizes(worlds="3, 2, 3"), "resizes(worlds='3, 2, 3')"),
    (preempts(times == 1), "preempts(times=1)"),
    (reschedules(times <= 2), "reschedules(times=2)"),
    (idles(cpu <= 0.25) & interruptible(within <= 9), "idles(cpu=0.25) & interruptible(within=9)"),
    (never_two_groups() & notices(), "never_two_groups() & notices()"),
    (beats_defaults(times >= 10), "beats_defaults(times=10)"),
    (beats_defaults(times=10), "beats_defaults(times=10)"),
    (fails(error='it\'s "so"\n\\'), "fails(error='it\\'s \"so\"\\n\\\\')"),
    (completes() & resumes(), "completes() & resumes()"),
    (completes() | resumes(), "(completes()) | (resumes())"),
    (loses() & (completes() | fails(error="E")), "loses() & ((completes()) | (fails(error='E')))"),
]


@pytest.mark.parametrize(("expectation", "text"), BOUNDS)
def test_an_expectation_reads_as_it_is_written_in_python(expectation: Expectation, text: str) -> None:
    assert str(expectation) == text
    assert told(parse(text)) == told(expectation)


COMPARED = [
    ("loses(steps<=10)", loses(steps <= 10)),
    ("recovers(within<=60)", recovers(within <= 60)),
    ("restarts(times==3)", restarts(times == 3)),
    ("stays_flat(by<=0.5)", stays_flat(by <= 0.5)),
    ("matches_control(within<=1e-9)", matches_control(within <= 1e-9)),
    ("beats_defaults(times>=10)", beats_defaults(times >= 10)),
    ("fails(error=='E')", fails(error="E")),
    ("resizes(worlds=='3, 2')", resizes(worlds="3, 2")),
    ("preempts(times==2)", preempts(times == 2)),
    ("reschedules(times<=2)", reschedules(times <= 2)),
    ("notices(within<=6)", notices(within <= 6)),
    ("idles(cpu<=0.1)", idles(cpu <= 0.1)),
]


@pytest.mark.parametrize(("text", "expectation"), COMPARED)
def test_a_setting_may_be_written_as_a_comparison(text: str, expectation: Expectation) -> None:
    assert told(parse(text)) == told(expectation)


def test_a_bound_left_open_in_python_is_read_back_as_one() -> None:
    assert told(parse(str(restarts(times=None)))) == told(restarts(times=None))


def test_an_expectation_equals_the_one_read_from_its_text() -> None:
    assert [text for expectation, text in BOUNDS if parse(text) != expectation] == []
    assert loses(steps=10) != loses(steps=11)


def test_a_bound_reaches_its_check() -> None:
    ((_, check),) = loses(steps <= 1).checks
    assert check(healthy().case()).expected == "at most 1 steps"
    ((_, check),) = parse("recovers(within=5)").checks
    assert check(healthy().case()).verdict is Verdict.FAIL


def test_a_tolerance_reaches_both_checks_of_the_control_run(tmp_path: Path) -> None:
    close = healthy().change("step.end", {"step": 9, "rank": 0}, loss=4.1 - 0.005 + 1e-8)
    directory = close.write(tmp_path / "run")
    assert worst(matches_control(), close, directory) is Verdict.FAIL
    assert worst(matches_control(within=1e-9), close, directory) is Verdict.FAIL
    assert worst(matches_control(within=1e-7), close, directory) is Verdict.PASS
    far = close.asked(keep=1).write(tmp_path / "far")
    assert worst(matches_control(within=1e-7), close.drop("checkpoint.commit", step=12), far) is Verdict.UNKNOWN


# Composition

TERM_LISTS = st.one_of(
    st.builds(recovers, within=st.one_of(st.integers(0, 10**9), st.floats(0, allow_nan=False, allow_infinity=False))),
    st.builds(restarts, times=st.integers(0, 99)),
    st.builds(loses, steps=st.integers(0, 10**9)),
    st.builds(fails, error=st.text()),
    st.builds(names, error=st.text()),
    st.builds(beats_defaults, times=st.floats(0, 1e6)),
    st.builds(stays_flat, by=st.floats(0, 10)),
    st.builds(resizes, worlds=st.lists(st.integers(1, 64), min_size=1).map(lambda sizes: ", ".join(map(str, sizes)))),
    st.builds(preempts, times=st.integers(0, 9)),
    st.builds(reschedules, times=st.integers(0, 9)),
    st.builds(idles, cpu=st.floats(0, 64)),
    st.builds(notices, within=st.floats(0, 1e6)),
    st.builds(interruptible, within=st.floats(0, 1e6)),
    st.just(never_two_groups()),
    st.sampled_from([recovers(), restarts(), loses(), completes(), resumes(), stays_flat()]),
    st.builds(matches_control, within=st.floats(0, 1e6)),
    st.sampled_from([keeps_every_step(), keeps_batch(), keeps_checkpoints(), matches_control(), HEALTHY, UNDISTURBED]),
)
EXPECTATIONS = st.recursive(
    TERM_LISTS,
    lambda inner: st.builds(lambda a, b, either: a | b if either else a & b, inner, inner, st.booleans()),
    max_leaves=5,
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(EXPECTATIONS)
def test_any_composition_is_read_back_as_it_was(expectation: Expectation) -> None:
    again = parse(str(expectation))
    assert str(again) == str(expectation)
    assert told(again) == told(expectation)


@pytest.mark.parametrize("name", LIBRARY)
def test_what_each_scenario_of_the_library_expects_is_read_back_as_it_was(name: str) -> None:
    expectation = LIBRARY[name].expectation(LIBRARY[name].shape)
    assert str(parse(str(expectation))) == str(expectation)
    assert told(parse(str(expectation))) == told(expectation)


@pytest.mark.parametrize("name", LIBRARY)
def test_no_scenario_of_the_library_asks_the_same_twice(name: str) -> None:
    asked = names_of(LIBRARY[name].expectation(LIBRARY[name].shape))
    assert sorted(set(asked)) == sorted(asked)


def test_and_binds_closer_than_or_and_brackets_closer_than_both() -> None:
    assert told(parse("completes() | resumes() & loses()")) == told(completes() | (resumes() & loses()))
    assert told(parse("completes() & resumes() | loses()")) == told((completes() & resumes()) | loses())
    assert told(parse("completes() & (resumes() | loses())")) == told(completes() & (resumes() | loses()))


def test_another_expectation_takes_the_place_of_the_words_it_has_in_common() -> None:
    changed = HEALTHY.but(loses(steps=1) & recovers(within=9))
    assert names_of(changed) == names_of(HEALTHY)
    assert str(changed).startswith("recovers(within=9) & restarts() & loses(steps=1) & completes()")
    assert str(HEALTHY).startswith("recovers() & restarts() & loses()")


def test_what_another_expectation_asks_beyond_stands_beside_the_rest() -> None:
    changed = HEALTHY.but(names(error="InjectedError") & restarts(times=2))
    assert names_of(changed) == [*names_of(HEALTHY), "cause"]
    assert str(changed).endswith("& matches_control() & spares_others() & names(error='InjectedError')")


def test_one_alternative_takes_the_place_of_another() -> None:
    both = completes() & (resumes() | fails(error="E"))
    assert told(both.but(loses() | fails(error="F"))) == told(completes() & (loses() | fails(error="F")))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(EXPECTATIONS)
def test_changing_to_the_same_changes_nothing_more(expectation: Expectation) -> None:
    changed = HEALTHY.but(expectation)
    assert told(changed.but(expectation)) == told(changed)


@pytest.mark.parametrize(
    "asked",
    [
        names(error="InjectedError") & names(error="MemoryError"),
        (completes() | fails(error="E")) & (resumes() | fails(error="F")),
    ],
)
def test_nothing_that_is_asked_is_lost_in_a_change(asked: Expectation) -> None:
    for base in (HEALTHY, asked):
        changed = told(base.but(asked))
        assert [term for term in told(asked) if term not in changed] == []


# Either of two


def judged(expectation: Expectation, run: Run) -> Finding:
    """The finding of an expectation that is one alternative."""
    ((name, check),) = expectation.checks
    finding = check(run.case())
    assert (name, finding.check, finding.expected) == ("either", "either", str(expectation))
    return finding


WHOLE = Expectation(tuple(term for term in HEALTHY.terms if term.name != "keeps_checkpoints"))
"""All that is asked of a healthy recovery and needs no storage to be judged."""


def test_the_first_side_that_holds_decides_and_is_said() -> None:
    finding = judged(WHOLE | fails(error="WorkerGroupError"), healthy())
    assert finding.verdict is Verdict.PASS
    assert finding.seen.startswith(f"{WHOLE}: 5.04 s, slowest phase start 2.00 s; 1 restart; ")


def test_the_second_side_that_holds_decides_and_is_said() -> None:
    finding = judged(WHOLE | fails(error="WorkerGroupError"), LOOP)
    assert finding.verdict is Verdict.PASS
    assert finding.seen == "fails(error='WorkerGroupError'): ERRORED with WorkerGroupError, exit code 1"


def test_when_neither_side_holds_both_reasons_are_said() -> None:
    finding = judged(restarts(times=9) | fails(error="ControllerError"), LOOP)
    assert finding.verdict is Verdict.FAIL
    first, second = finding.seen.split(" / ")
    assert first.startswith("restarts: 2 restarts; the controller decided RETRY 2 times, RAISE")
    assert second == "failed: ERRORED with WorkerGroupError, exit code 1"


def test_a_side_holds_only_if_all_that_it_asks_holds() -> None:
    assert judged((completes() & loses(steps=1)) | fails(error="E"), healthy()).verdict is Verdict.FAIL
    assert judged((completes() & loses(steps=2)) | fails(error="E"), healthy()).verdict is Verdict.PASS


DARK = healthy().drop("controller.start")
"""A run of which nobody knows whether it restarted as it should."""


@pytest.mark.parametrize(
    ("expectation", "verdict"),
    [
        (restarts() | completes(), Verdict.PASS),
        (completes() | restarts(), Verdict.PASS),
        (restarts() | fails(error="E"), Verdict.UNKNOWN),
        (fails(error="E") | restarts(), Verdict.UNKNOWN),
        (restarts() | restarts(times=3), Verdict.UNKNOWN),
        ((restarts() & loses(steps=0)) | fails(error="E"), Verdict.FAIL),
        ((restarts() | fails(error="E")) | completes(), Verdict.PASS),
        ((restarts() | fails(error="E")) | loses(steps=0), Verdict.UNKNOWN),
    ],
)
def test_what_is_not_known_is_no_pass_and_no_fail(expectation: Expectation, verdict: Verdict) -> None:
    assert judged(expectation, DARK).verdict is verdict


def test_a_side_of_which_nothing_applies_does_not_hold() -> None:
    run = healthy(control=False)
    assert judged(matches_control() | fails(error="E"), run).verdict is Verdict.UNKNOWN
    assert judged((matches_control() & completes()) | fails(error="E"), run).verdict is Verdict.PASS


def test_the_reason_is_what_decided_not_what_did_not_apply() -> None:
    run = healthy(kills=((1, 2),)).change("step.end", {"step": 9}, loss=0.0)
    finding = judged((resumes() & matches_control()) | fails(error="E"), run)
    assert finding.verdict is Verdict.FAIL
    assert finding.seen.startswith("trajectory: first difference at step 9")


def test_the_reason_of_a_failure_is_not_what_could_not_be_told() -> None:
    finding = judged((restarts() & loses(steps=0)) | fails(error="E"), DARK)
    assert finding.seen.startswith("lost-steps: 2 steps lost")


def test_a_check_that_crashes_leaves_its_side_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def crashes(case: Case, **bounds: object) -> Finding:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(expectations.budgets, "check", crashes)
    finding = judged(restarts(times=1) | fails(error="E"), healthy())
    assert finding.verdict is Verdict.UNKNOWN
    assert "restarts: the check itself failed: ZeroDivisionError('by nothing')" in finding.seen
    assert judged(restarts(times=1) | completes(), healthy()).verdict is Verdict.PASS
