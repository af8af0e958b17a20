"""The command ``aftershock trend``: what it prints, how it ends, and what it says to a mistake."""

from __future__ import annotations

import json

import numpy as np
import pytest

from chaos.exits import ExitCode
from scenarios.trending import sparkline
from tests.metrics.test_trend import nights
from tests.nights import day, noise, store, store_all, summary
from tests.scenarios.test_cli import is_one_line


@pytest.fixture
def slower(place):
    """Sixty nights of which the last eight are slower by more than half."""
    store_all(place / "runs", nights(0, 60, slow=8, times=1.6), verdicts="p" * 40 + "pfpf")
    return "runs"


@pytest.fixture
def steady(place):
    store_all(place / "runs", nights(0, 60))
    return "runs"


def test_a_table_says_what_is_slower_and_what_is_flaky(command, slower):
    result = command("trend", slower)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "kill-worker  58 of 60" in result.stdout
    told = " ".join(result.stdout.split())
    assert "slower since 2026-02-" in told
    assert "flaky: 2 of 30 did not pass" in told
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_the_gate_fails_while_it_is_slower(command, slower):
    result = command("trend", slower, "--fail-on-regression")
    assert (result.exit_code, "slower than before: kill-worker, since 2026-02-" in result.stdout) == (1, True)


def test_the_gate_passes_what_is_steady(command, steady):
    result = command("trend", steady, "--fail-on-regression", "--strict")
    assert result.exit_code == 0
    assert "no recovery is slower than before (1 series watched)" in result.stdout


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 2)])
def test_too_few_runs_raise_no_alarm_and_are_unknown_only_where_asked(command, place, strict, code):
    store_all(place / "runs", [10.0] * 10 + [99.0] * 5)
    result = command("trend", "runs", "--fail-on-regression", *strict)
    assert result.exit_code == code
    told = "no alarm is possible yet: it needs 25 recoveries of a scenario, there are 15 at most"
    assert told in " ".join(result.stdout.split())


def test_json_tells_the_same(command, slower):
    told = json.loads(command("trend", slower, "--json").stdout)
    (one,) = told["series"]
    assert (told["schema"], told["runs"], told["watched"], one["health"]) == (1, 60, 1, "flaky")
    assert told["regressed"] == [f"kill-worker, since {one['slower_since'][:10]}"]
    assert len(one["points"]) == 60


def test_a_page_is_written_beside_the_table(command, slower, place):
    assert command("trend", slower, "--html", "page.html").exit_code == 0
    assert "<svg" in (place / "page.html").read_text()


def test_what_is_left_out_is_named(command, steady, place):
    (store(place / "runs", 99, summary()) / "verdict.json").write_text('{"schema": 1, "ru')
    (place / "runs" / "photos").mkdir()
    told = command("trend", steady).stdout
    assert "left out 1, damaged (its verdict.json cannot be read): 20260410-020000-kill-worker-00000063" in told
    assert "left out 1, no run: photos" in told


def test_earlier_nights_may_be_left_out(command, slower):
    told = json.loads(command("trend", slower, "--since", day(50), "--json").stdout)
    assert (told["runs"], told["watched"], told["regressed"]) == (10, 0, [])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere",), "nowhere: No such file or directory; name a folder that holds runs"),
        (("empty",), "empty holds no run that can be used: it is empty; name a folder that holds runs"),
        (("photos",), "photos holds no run that can be used: left out 1, no run: 2026; name a folder"),
        (("runs", "--since", "2027-01-01"), "runs holds no run since 2027-01-01 that can be used"),
        (("runs", "--since", "yesterday"), "'yesterday' does not match the format '%Y-%m-%d'"),
        (("runs", "--html", "nowhere/page.html"), "--html nowhere/page.html: No such file or directory; name a file"),
        ((), "Missing argument 'DIR'"),
    ],
)
def test_a_mistake_is_one_line_and_64(command, steady, place, arguments, told):
    (place / "empty").mkdir()
    (place / "photos" / "2026").mkdir(parents=True)
    is_one_line(command("trend", *arguments), ExitCode.USAGE, told)


def test_a_line_of_bars_goes_from_the_least_to_the_most_and_marks_what_did_not_pass(place):
    from metrics.trend import Point

    points = [Point("", "pass", 10.0), Point("", "fail", 20.0), Point("", "pass", None), Point("", "pass", 15.0)]
    line = sparkline(points)
    assert (line.plain, [(span.start, span.style) for span in line.spans if span.style]) == ("▁█·▅", [(1, "red")])
    assert sparkline([Point("", "pass", seconds) for seconds in (10, 11, 12, 99)]).plain == "▁▂▂█"
    assert sparkline([Point("", "pass", 10.0)] * 3).plain == "▁▁▁"
    assert sparkline([]).plain == ""


def test_noise_of_the_usual_kind_is_what_the_histories_have():
    logs = noise(np.random.default_rng(0), 100, 100)
    assert np.median(np.exp(logs)) == pytest.approx(1.0, abs=0.01)
    assert np.mean(logs > 0.8) == pytest.approx(0.02, abs=0.005)
