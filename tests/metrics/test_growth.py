"""What grows from restart to restart: a leak is seen, noise is not, and a few points are no trend."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.expectations import HEALTHY, stays_flat
from metrics.growth import LEAST, check, series, slope
from metrics.verdict import Finding, Verdict
from tests.histories import Run, faulty, healthy, sampled
from tests.stories import Hit

KILLS = tuple((i % 2, 3 + 2 * i) for i in range(10))
FLAT = healthy(kills=KILLS, steps=26, every=2, max_failures=10, expects=HEALTHY & stays_flat())
"""Ten restarts in a row, each as quick and as large as the one before."""


def slower(by_ms: int) -> Run:
    """Each recovery takes that much longer to be noticed than the one before."""
    hits = ((Hit(rank, step, detect_ms=300 + by_ms * i),) for i, (rank, step) in enumerate(KILLS))
    return faulty(*hits, steps=26, every=2, max_failures=10)


def found(run: Run, by: float = 0.25) -> Finding:
    return check(run.case(), by=by)


def test_ten_equal_restarts_pass() -> None:
    finding = found(FLAT)
    assert finding.verdict is Verdict.PASS
    assert finding.seen == (
        "seconds +0.0%, processes +0.0%, files +0.0%, rss +0.0%, +0 files a restart over 10 restarts"
    )
    assert FLAT.judged().reason == "every check that applies passed"


def test_the_series_are_the_recoveries_and_the_samples_of_restarted_attempts() -> None:
    told = series(sampled(FLAT, files=[1300.0 + i for i in range(10)]).case())
    assert {name: len(values) for name, values in told.items()} == dict.fromkeys(told, 10)
    assert told["files"] == [1300.0 + i for i in range(10)]
    assert told["seconds"] == pytest.approx([4.84] * 10)


RED = [
    (sampled(FLAT, files=[1250.0 + 50 * i for i in range(10)]), "files +30.5%"),
    (sampled(FLAT, rss_mib=[4000.0 + 200 * i for i in range(10)]), "rss +36.7%"),
    (sampled(FLAT, processes=[28.0 + i for i in range(10)]), "processes +27.7%"),
    (sampled(FLAT, processes=[28.0 + i // 2 for i in range(10)]), "processes +15.0%"),
    (slower(by_ms=200), "seconds +31.4%"),
]


@pytest.mark.parametrize(("run", "words"), RED)
def test_what_grows_fails_and_is_told(run: Run, words: str) -> None:
    finding = found(run)
    assert finding.verdict is Verdict.FAIL
    assert words in finding.seen
    assert len(finding.evidence["series"]["seconds"]) == 10


GREEN = [
    sampled(FLAT, files=[1250.0 + 20 * i for i in range(10)]),  # 13 %
    sampled(FLAT, rss_mib=[4000.0 + 300 * (-1) ** i for i in range(10)]),  # up and down
    sampled(FLAT, rss_mib=[9000.0, *[4580.0] * 9]),  # one that stands out
    sampled(FLAT, rss_mib=[6000.0 - 200 * i for i in range(10)]),  # shrinks
    sampled(FLAT, processes=[29.0, 28.0] * 5),
    sampled(FLAT, processes=[28.0] * 7 + [29.0] * 3),  # one more, once
    slower(by_ms=50),
]


@pytest.mark.parametrize("run", GREEN)
def test_what_wavers_or_shrinks_or_hardly_grows_passes(run: Run) -> None:
    assert found(run).verdict is Verdict.PASS


@pytest.mark.parametrize(("by", "verdict"), [(0.1, Verdict.FAIL), (0.13, Verdict.FAIL), (0.14, Verdict.PASS)])
def test_the_share_allowed_is_the_users(by: float, verdict: Verdict) -> None:
    finding = found(sampled(FLAT, rss_mib=[1250.0 + 20 * i for i in range(10)]), by=by)
    assert finding.verdict is verdict


@pytest.mark.parametrize(("more", "verdict"), [(20, Verdict.PASS), (21, Verdict.FAIL)])
def test_each_restart_may_leave_so_many_open_files(more: int, verdict: Verdict) -> None:
    assert found(sampled(FLAT, files=[1250.0 + more * i for i in range(10)])).verdict is verdict


@pytest.mark.parametrize("by", [0.25, 10.0])
def test_a_process_more_in_every_other_restart_is_a_leak_whatever_the_share(by: float) -> None:
    assert found(sampled(FLAT, processes=[28.0 + i // 2 for i in range(10)]), by=by).verdict is Verdict.FAIL


def without_samples(run: Run, kept: int) -> Run:
    for attempt in range(kept + 1, 11):
        run = run.drop("probe.resources", attempt=attempt)
    return run


BLIND = [
    (healthy(kills=KILLS[:3], steps=26, every=2), "3 values of seconds, 4 are needed"),
    (healthy(), "1 values of seconds, 4 are needed"),
    (healthy(kills=()), "0 values of seconds, 4 are needed"),
    (without_samples(FLAT, kept=LEAST - 1), "3 values of processes, 4 are needed"),
    (FLAT.drop("probe.resources"), "0 values of processes, 4 are needed"),
    (FLAT.drop("restore.end"), "0 values of seconds, 4 are needed"),
]


@pytest.mark.parametrize(("run", "words"), BLIND)
def test_a_few_points_are_no_trend(run: Run, words: str) -> None:
    finding = found(run)
    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, words)


def test_just_enough_points_are() -> None:
    assert found(without_samples(FLAT, kept=LEAST)).verdict is Verdict.PASS


def test_the_first_attempt_is_no_restart_and_does_not_count() -> None:
    run = FLAT.change("probe.resources", {"attempt": 0}, rss_mib=100, files=3, processes=1)
    assert found(run).verdict is Verdict.PASS


@pytest.mark.parametrize("sample", [{"files": 0}, {"processes": 0}, {"rss_mib": 0}])
def test_samples_in_which_nothing_was_seen_are_no_evidence(sample: dict[str, int]) -> None:
    run = FLAT.change("probe.resources", **sample)
    (finding,) = run.judged(("growth", check)).findings
    assert finding.verdict is Verdict.UNKNOWN


numbers = st.integers(-1000, 1000)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(first=numbers, rise=numbers, length=st.integers(2, 12))
def test_the_slope_of_a_line_is_its_rise(first: int, rise: int, length: int) -> None:
    assert slope([first + rise * i for i in range(length)]) == rise


@settings(max_examples=25, deadline=None, derandomize=True)
@given(values=st.lists(numbers, min_size=2, max_size=12), shift=numbers)
def test_the_slope_does_not_depend_on_where_the_series_begins(values: list[int], shift: int) -> None:
    assert slope([value + shift for value in values]) == pytest.approx(slope(values))
    assert slope(values[::-1]) == pytest.approx(-slope(values))


@pytest.mark.parametrize("place", range(7))
def test_one_point_that_stands_out_does_not_bend_the_slope(place: int) -> None:
    values = [10.0 * i for i in range(7)]
    values[place] = 1e6
    assert slope(values) == pytest.approx(10.0)
