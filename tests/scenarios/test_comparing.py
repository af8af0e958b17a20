"""The command ``aftershock compare``: what it prints, how it ends, and what it says to a mistake."""

from __future__ import annotations

import json

import pytest

from chaos.exits import ExitCode
from tests.nights import store, store_all, summary
from tests.scenarios.test_cli import is_one_line

FAST, SLOW = (20.0, 20.5, 21.0, 20.2, 20.8), (26.0, 26.5, 27.0, 26.2, 26.8)


@pytest.fixture
def repeats(place):
    """Five runs each, before and after it became slower."""
    store_all(place / "before", FAST)
    store_all(place / "after", SLOW)


def flat(text):
    return " ".join(text.split())


def test_repeats_are_told_with_intervals(command, repeats):
    result = command("compare", "before", "after")
    assert (result.exit_code, result.stderr) == (0, "")
    told = flat(result.stdout)
    assert "kill-worker: 5 runs in A, 5 in B" in told
    assert "recovery 20.50 s 26.50 s +6.00 (+29%) +5.20 to +6.80 worse" in told
    assert "intervals: 96.8% (exact Mann-Whitney)" in told
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_the_gate_fails_only_where_b_is_worse(command, repeats):
    assert command("compare", "before", "after", "--fail-on-regression").exit_code == 1
    assert command("compare", "after", "before", "--fail-on-regression", "--strict").exit_code == 0


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 2)])
def test_one_run_each_permits_no_judgement_and_says_so(command, place, strict, code):
    a, b = store(place, 0, summary(seconds=20.0)), store(place, 1, summary(seconds=40.0))
    result = command("compare", str(a), str(b), "--fail-on-regression", *strict)
    told = flat(result.stdout)
    assert result.exit_code == code
    assert "recovery 20.00 s 40.00 s +20.00 (+100%) - untold" in told
    assert (
        "untold: 1 against 1 runs cannot say how much runs differ by chance, so no change above is proof of one" in told
    )


def test_a_worse_verdict_needs_no_repeats(command, place):
    a, b = store(place, 0, summary()), store(place, 1, summary(verdict="fail", known_issue="Ray leaks"))
    result = command("compare", str(a), str(b), "--fail-on-regression")
    assert result.exit_code == 1
    assert "verdict: pass -> fail (worse)\nlost-steps: pass -> fail (worse)" in result.stdout
    assert "known issue that is new: Ray leaks" in result.stdout


def test_several_scenarios_are_one_row_each_and_all_in_full_where_asked(command, place):
    for side, times in (("a", 1.0), ("b", 1.5)):
        for scenario in ("kill-worker", "segfault"):
            store_all(place / side, [seconds * times for seconds in FAST], scenario=scenario)
    store(place / "a", 0, summary("hang-frozen"))
    store(place / "b", 0, summary("crash-loop", seconds=None))
    result = command("compare", "a", "b")
    told = flat(result.stdout)
    assert "segfault pass 5 pass 5 20.50 s 30.75 s +10.25 (+50%)" in told
    assert "teardown" not in told
    assert "only in A: hang-frozen" in told
    assert "only in B: crash-loop" in told
    assert "teardown" in command("compare", "a", "b", "--all").stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_names_are_told_as_they_are_whatever_they_look_like(command, place):
    a, b = (store(place, night, summary("kill[red]-[bold]")) for night in (0, 1))
    assert "kill[red]-[bold]: 1 run in A, 1 in B" in command("compare", str(a), str(b)).stdout
    assert "kill[red]-[bold]  2 of 2" in command("trend", ".").stdout


def test_a_scenario_that_vanished_is_a_regression(command, place):
    store(place / "a", 0, summary("hang-frozen"))
    for side in ("a", "b"):
        store(place / side, 1, summary())
    assert command("compare", "a", "b", "--fail-on-regression").exit_code == 1
    assert command("compare", "b", "a", "--fail-on-regression").exit_code == 0


def test_sides_may_be_named_run_by_run(command, place):
    a = [str(store(place, night, summary(seconds=seconds))) for night, seconds in enumerate(FAST)]
    b = [str(store(place, 10 + night, summary(seconds=seconds))) for night, seconds in enumerate(SLOW)]
    sides = [word for run in a for word in ("--a", run)] + [word for run in b for word in ("--b", run)]
    told = json.loads(command("compare", *sides, "--a", a[0], "--json").stdout)  # one named twice counts once
    (one,) = told["scenarios"]
    (recovery,) = [d for d in one["differences"] if d["name"] == "recovery"]
    assert (recovery["a"], recovery["b"], recovery["trend"]) == (list(FAST), list(SLOW), "worse")
    assert told["regressed"] == {"kill-worker": ["recovery +6.00 s (+5.20 to +6.80)"]}


def test_what_was_asked_differently_is_told(command, place):
    a, b = store(place, 0, summary()), store(place, 1, summary(versions={"ray": "2.61.0"}, seed=3))
    told = command("compare", str(a), str(b)).stdout
    assert "not the same was asked: seed 0 -> 3; ray 2.60.0 -> 2.61.0" in told


def test_what_is_left_out_is_named_with_its_side(command, repeats, place):
    (store(place / "after", 9, summary()) / "verdict.json").unlink()
    told = command("compare", "before", "after").stdout
    assert "B: left out 1, unfinished (no verdict.json): 20260110-020000-kill-worker-00000009" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("before",), "compare needs two sides, and was given before: write compare A B, or --a DIR ... --b DIR ..."),
        ((), "was given nothing"),
        (("before", "after", "empty"), "was given before after empty"),
        (("before", "after", "--a", "before"), "compare needs two sides"),
        (("--a", "before"), "compare needs two sides"),
        (("before", "nowhere"), "nowhere: No such file or directory; name a run, or a folder that holds runs"),
        (("before", "empty"), "empty holds no run that can be used: it is empty; name one that does"),
        (("before", "unfinished"), "left out 1, unfinished (no verdict.json)"),
        (("before", "others"), "no scenario in common: A holds kill-worker; B holds segfault; name runs of the same"),
    ],
)
def test_a_mistake_is_one_line_and_64(command, repeats, place, arguments, told):
    (place / "empty").mkdir()
    (store(place / "unfinished", 0, summary()) / "verdict.json").unlink()
    store(place / "others", 0, summary("segfault"))
    is_one_line(command("compare", *arguments), ExitCode.USAGE, told)
