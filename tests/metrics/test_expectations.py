"""What is expected of a recovery: the words and what each asks, how they compose, and how they are read from a text."""

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
    TERMS,
    UNDISTURBED,
    Either,
    Expectation,
    beats_defaults,
    by,
    completes,
    fails,
    keeps_checkpoints,
    keeps_every_step,
    loses,
    matches_control,
    names,
    parse,
    recovers,
    restarts,
    resumes,
    stays_flat,
    steps,
    times,
    within,
)
from metrics.verdict import Case, Check, Finding, Verdict
from scenarios.scenario import Scenario, all_scenarios
from tests.histories import Run, faulty, healthy, sampled
from tests.stories import Hit, checkpoint_name, parts

EXIT = Hit(1, phase="first-step", fault="exit")
LOOP = faulty((Hit(1, 5, fault="exit"),), (EXIT,), (EXIT,), max_failures=2, control=False, gives_up=True)
RAISED = faulty((Hit(1, 6, fault="exception"),))
FROZEN = faulty((Hit(1, 6, fault="freeze", detect_ms=12_000),))
FLAT = healthy(kills=tuple((1, 3 + 2 * i) for i in range(5)), steps=16, every=2, max_failures=5)
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


def worst(expectation: Expectation, run: Run, directory: Path) -> Verdict:
    """The worst verdict of its checks over a stored run."""
    found = {check(run.case(directory)).verdict for _, check in expectation.checks}
    return next(v for v in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS, Verdict.NOT_APPLICABLE) if v in found)


# Each word, both ways: the text, a run that keeps it, one that breaks it, one that does not tell.

WORDS: dict[str, tuple[str, Run, Run, Run]] = {
    "recovers": (
        "recovers(within=6)",
        healthy(),
        faulty((Hit(1, 6, detect_ms=2_000),)),
        healthy().drop("restore.end"),
    ),
    "restarts": ("restarts(times=1)", healthy(), healthy(kills=((1, 6), (0, 10))), healthy().drop("controller.start")),
    "loses": ("loses(steps<=2)", healthy(), healthy(kills=((1, 7),)), healthy(kills=())),
    "completes": ("completes()", healthy(), LOOP, healthy().drop("workload.exit")),
    "resumes": (
        "resumes()",
        healthy(),
        healthy().change("worker.start", {"attempt": 1}, checkpoint=checkpoint_name(0)),
        healthy().drop("state", name="restored"),
    ),
    "keeps_every_step": (
        "keeps_every_step()",
        healthy(),
        healthy().drop("step.end", attempt=1, step=9),
        healthy().change("step.end", samples=[]),
    ),
    "keeps_checkpoints": (
        "keeps_checkpoints()",
        healthy(),
        healthy().change("state", {"step": 12, "rank": 1}, parts=parts(1, 8)),
        healthy().drop("state", step=12),
    ),
    "matches_control": (
        "matches_control()",
        healthy(),
        healthy().change("step.end", {"step": 9}, loss=0.0),
        healthy().with_control(None),
    ),
    "fails": ("fails(error='WorkerGroupError')", LOOP, healthy(), LOOP.drop("workload.exit")),
    "names": ("names(error='InjectedError')", RAISED, healthy(), RAISED.drop("worker.error")),
    "beats_defaults": ("beats_defaults(times=10)", FROZEN, FROZEN.change("fault.fired", wall_ns=1), healthy()),
    "stays_flat": (
        "stays_flat(by=0.25)",
        FLAT,
        sampled(FLAT, files=[1200, 1300, 1400, 1500, 1600]),
        FLAT.drop("probe.resources"),
    ),
}


def test_every_word_is_tried() -> None:
    assert WORDS.keys() == TERMS.keys()


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("word", TERMS)
def test_each_word_passes_fails_and_does_not_know(word: str, place: int, tmp_path: Path) -> None:
    text, *runs = WORDS[word]
    verdict = (Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN)[place]
    assert worst(parse(text), runs[place], runs[place].write(tmp_path / "run")) is verdict


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
        "trajectory",
        "control-state",
    ]
    assert str(HEALTHY) == (
        "recovers() & restarts() & loses() & completes() & resumes() & keeps_every_step() & keeps_checkpoints() "
        "& matches_control()"
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
    ("beats_defaults(times>=10)", beats_defaults(times >= 10)),
    ("fails(error=='E')", fails(error="E")),
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


# Composition

TERM_LISTS = st.one_of(
    st.builds(recovers, within=st.one_of(st.integers(0, 10**9), st.floats(0, allow_nan=False, allow_infinity=False))),
    st.builds(restarts, times=st.integers(0, 99)),
    st.builds(loses, steps=st.integers(0, 10**9)),
    st.builds(fails, error=st.text()),
    st.builds(names, error=st.text()),
    st.builds(beats_defaults, times=st.floats(0, 1e6)),
    st.builds(stays_flat, by=st.floats(0, 10)),
    st.sampled_from([recovers(), restarts(), loses(), completes(), resumes(), stays_flat()]),
    st.sampled_from([keeps_every_step(), keeps_checkpoints(), matches_control(), HEALTHY, UNDISTURBED]),
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
    assert str(changed).endswith("& matches_control() & names(error='InjectedError')")


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
