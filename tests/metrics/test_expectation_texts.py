"""What is no expectation: each is one mistake that names the value and the way out, and nothing is executed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.exits import UsageError
from metrics.expectations import (
    Expectation,
    beats_defaults,
    completes,
    fails,
    loses,
    parse,
    recovers,
    restarts,
    steps,
    times,
    within,
)

WRONG_IN_PYTHON: list[tuple[Callable[[], Expectation], str]] = [
    (lambda: loses(steps == 10), "steps == 10: write steps <= 10"),
    (lambda: restarts(times <= 3), "times <= 3: write times == 3"),
    (lambda: loses(within <= 3), "loses knows no 'within': it takes steps"),
    (lambda: completes(steps=3), "completes knows no 'steps': it takes nothing"),
    (lambda: fails(), "fails needs a value for 'error'"),
    (lambda: fails(error=3), "error is a text in quotes"),
    (lambda: recovers(within="60"), "within is a number"),
    (lambda: recovers(within=True), "within is a number"),
    (lambda: beats_defaults(times <= 3), "times <= 3: write times >= 3"),
    (lambda: restarts(times=1.5), "times is a whole number"),
    (lambda: loses(steps=-1), "steps must be finite and not negative"),
    (lambda: recovers(within=float("inf")), "within must be finite and not negative"),
    (lambda: recovers(within=float("nan")), "within must be finite and not negative"),
]


@pytest.mark.parametrize(("build", "words"), WRONG_IN_PYTHON)
def test_a_mistake_in_python_is_told_with_the_way_out(build: Callable[[], Expectation], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        build()
    assert words in str(caught.value)


SYNTAX = "write for example 'recovers(within=60)'"
JOIN = "join words such as recovers(within=60) with & or |"
MARK = "proof-that-something-ran"
WRONG: list[tuple[str, str]] = [
    ("", SYNTAX),
    ("   ", SYNTAX),
    ("recovers(within=60", SYNTAX),
    ("completes() &", SYNTAX),
    ("completes(); resumes()", SYNTAX),
    ("x = completes()", SYNTAX),
    ("import os", SYNTAX),
    ("completes()\x00", SYNTAX),
    ("1", JOIN),
    ("'completes()'", JOIN),
    ("completes() and resumes()", JOIN),
    ("not completes()", JOIN),
    ("~completes()", JOIN),
    ("completes() + resumes()", JOIN),
    ("[completes()]", JOIN),
    ("completes()()", JOIN),
    ("completes.__globals__", JOIN),
    ("completes() | 1", JOIN),
    ("completes() if 1 else resumes()", JOIN),
    (f"__import__('pathlib').Path('{MARK}').touch()", JOIN),
    (f"(lambda: open('{MARK}', 'w'))()", JOIN),
    (f"[open('{MARK}', 'w') for _ in 'x']", JOIN),
    (f"f\"{{open('{MARK}', 'w')}}\"", JOIN),
    (f"(x := open('{MARK}', 'w'))", JOIN),
    (f"open('{MARK}', 'w')", "unknown word 'open'"),
    (f"exec(\"open('{MARK}', 'w')\")", "unknown word 'exec'"),
    (f"completes() & open('{MARK}', 'w')", "unknown word 'open'"),
    (f"recovers(within=open('{MARK}', 'w'))", "is no number or text"),
    (f"recovers(open('{MARK}', 'w'))", "name the value, as in within=60 or steps<=10"),
    (f"loses(steps<=open('{MARK}', 'w'))", "is no number or text"),
    (f"fails(error=str(open('{MARK}', 'w')))", "is no number or text"),
    ("recovrs()", "unknown word 'recovrs': did you mean 'recovers'?"),
    ("match_control", "unknown word 'match_control': did you mean 'matches_control'?"),
    ("zzz()", "unknown word 'zzz': known are recovers, restarts, loses"),
    ("recovers", "write recovers()"),
    ("completes() & loses", "write loses()"),
    ("loses(steps>10)", "steps > 10: write steps <= 10"),
    ("loses(steps<10)", "steps < 10: write steps <= 10"),
    ("loses(steps==10)", "steps == 10: write steps <= 10"),
    ("restarts(times<=2)", "times <= 2: write times == 2"),
    ("loses(10>=steps)", "name the value, as in within=60 or steps<=10"),
    ("loses(0<=steps<=10)", "name the value, as in within=60 or steps<=10"),
    ("recovers(60)", "name the value, as in within=60 or steps<=10"),
    ("fails(WorkerGroupError)", "name the value, as in within=60 or steps<=10"),
    ("recovers(*[60])", "name the value, as in within=60 or steps<=10"),
    ("recovers(**{'within': 60})", "is no number or text"),
    ("recovers(seconds=60)", "recovers knows no 'seconds': it takes within"),
    ("recovers(steps<=60)", "recovers knows no 'steps': it takes within"),
    ("completes(within=60)", "completes knows no 'within': it takes nothing"),
    ("fails()", "fails needs a value for 'error'"),
    ("beats_defaults()", "beats_defaults needs a value for 'times'"),
    ("fails(error=3)", "error is a text in quotes"),
    ("fails(error=True)", "error is a text in quotes"),
    ("recovers(within='60')", "within is a number"),
    ("matches_control(within='0')", "within is a number"),
    ("matches_control(within=-1e-9)", "within must be finite and not negative"),
    ("matches_control(within>=1e-9)", "within >= 1e-09: write within <= 1e-09"),
    ("recovers(within=True)", "within is a number"),
    ("recovers(within=None)", "is no number or text"),
    ("recovers(within=1j)", "is no number or text"),
    ("recovers(within=inf)", "is no number or text"),
    ("recovers(within=nan)", "is no number or text"),
    ("fails(error=b'x')", "is no number or text"),
    ("loses(steps=-1)", "negative"),
    ("loses(steps<=-1)", "negative"),
    ("restarts(times=1.5)", "times is a whole number"),
    ("loses(steps<=2.5)", "steps is a whole number"),
    ("beats_defaults(times<=10)", "times <= 10: write times >= 10"),
    ("beats_defaults(times==10)", "times == 10: write times >= 10"),
    ("recovers(within=1e999)", "within must be finite and not negative"),
    ("resizes()", "resizes needs a value for 'worlds'"),
    ("resizes(worlds=3)", "worlds is a text in quotes"),
    ("resizes(worlds='')", "write the world size of each attempt, as in '3, 2, 3'"),
    ("resizes(worlds='3, 0')", "write the world size of each attempt, as in '3, 2, 3'"),
    ("resizes(worlds='3 -> 2')", "write the world size of each attempt, as in '3, 2, 3'"),
    ("resizes(worlds='3, -2')", "write the world size of each attempt, as in '3, 2, 3'"),
    ("resizes(worlds='3,,2')", "write the world size of each attempt, as in '3, 2, 3'"),
    ("resizes(worlds<='3, 2')", "worlds <= 3, 2: write worlds == 3, 2"),
    ("preempts()", "preempts needs a value for 'times'"),
    ("preempts(times<=1)", "times <= 1: write times == 1"),
    ("reschedules()", "reschedules needs a value for 'times'"),
    ("reschedules(times==2)", "times == 2: write times <= 2"),
    ("idles(cpu>=0.5)", "cpu >= 0.5: write cpu <= 0.5"),
    ("notices(within==60)", "within == 60: write within <= 60"),
    ("never_two_groups", "write never_two_groups()"),
]


@pytest.mark.parametrize(("text", "way_out"), WRONG)
def test_a_wrong_text_is_one_mistake_with_the_way_out_and_nothing_is_executed(
    text: str, way_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"--expect {text!r}: ")
    assert way_out in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["recovers(within=60, within=30)", "recovers(within<=30, within=60)"])
def test_a_setting_given_twice_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="within"):
        parse(text)


ENDLESS = [
    "(" * 150 + "completes()" + ")" * 250,
    "(" * 1000 + "completes()" + ")" * 1000,
    "~" * 50_000 + "completes()",
    " & ".join(["completes()"] * 5_000),
    " | ".join(["completes()"] * 500),
    "completes" + ".x" * 5_000,
    "loses(steps<=" + "9" * 5_000 + ")",
    "completes(" * 120 + ")" * 120,
    "\udcff",
]


@pytest.mark.parametrize("text", ENDLESS, ids=range(len(ENDLESS)))
def test_a_text_beyond_all_bounds_is_read_or_refused_and_never_a_crash(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert str(parse(str(parse(text))))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.one_of(st.text(max_size=60), st.text("recovslip()&|<=>'\"\\ 0.,\n", max_size=40)))
def test_any_text_is_an_expectation_or_a_mistake(text: str) -> None:
    try:
        expectation = parse(text)
    except UsageError as error:
        assert repr(text) in str(error)
    else:
        assert str(parse(str(expectation))) == str(expectation)
