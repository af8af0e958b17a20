"""Two sides compared: which differences are told, which are clear, and what counts as a regression."""

from __future__ import annotations

import math
from typing import Any

import pytest

from metrics.compare import QUANTITIES, Comparison, Difference, Trend, compare, counted
from metrics.goodput import BUCKETS
from metrics.recovery import PHASES
from metrics.summary import GoodputRecord, Summary
from tests.nights import check, recovery, summary

STEADY, SLOWER = (20.0, 20.5, 21.0, 20.2, 20.8), (26.0, 26.5, 27.0, 26.2, 26.8)


def one(a: list[Summary], b: list[Summary]) -> Comparison:
    (found,) = compare(a, b)
    return found


def repeats(*seconds: float, **changes: Any) -> list[Summary]:
    return [summary(seconds=one, **changes) for one in seconds]


def seen(found: Comparison, name: str, part_of: str = "") -> Difference:
    return next(d for d in found.differences if (d.name, d.part_of) == (name, part_of))


def test_repeats_that_do_not_overlap_are_clearly_slower_and_a_regression() -> None:
    found = one(repeats(*STEADY), repeats(*SLOWER))
    slower = seen(found, "recovery")
    assert (slower.a_median, slower.b_median, slower.change) == (20.5, 26.5, pytest.approx(6.0))
    assert (slower.trend, slower.level) == (Trend.WORSE, pytest.approx(1 - 8 / 252))
    assert slower.low is not None
    assert slower.low > 5
    assert found.regressed == ["recovery +6.00 s (+5.20 to +6.80)"]
    assert not found.untold


def test_the_other_way_round_they_are_better_and_none() -> None:
    found = one(repeats(*SLOWER), repeats(*STEADY))
    assert (seen(found, "recovery").trend, found.regressed) == (Trend.BETTER, [])


def test_repeats_that_overlap_are_unclear() -> None:
    found = one(repeats(*STEADY), repeats(20.1, 20.6, 21.1, 20.3, 20.7))
    assert (seen(found, "recovery").trend, found.regressed) == (Trend.UNCLEAR, [])


def test_one_run_each_tells_no_interval_and_no_regression() -> None:
    found = one(repeats(20.0), repeats(40.0))
    told = seen(found, "recovery")
    assert (told.change, told.low, told.high, told.level, told.trend) == (20.0, None, None, None, Trend.UNTOLD)
    assert (found.untold, found.regressed) == (True, [])


def test_equal_values_are_the_same_however_few_runs() -> None:
    found = one(repeats(20.0), repeats(20.0))
    assert (seen(found, "recovery").trend, found.untold) == (Trend.SAME, False)


def test_a_clear_difference_that_does_not_matter_is_no_regression() -> None:
    found = one(repeats(*STEADY), repeats(*(seconds * 1.049 for seconds in STEADY)))
    assert found.regressed == []


def test_every_phase_bucket_and_part_of_the_time_is_compared() -> None:
    found = one(repeats(18.0), repeats(27.0))
    for name in PHASES:
        assert seen(found, name, "recovery").change == pytest.approx(1.0)
    assert {d.name for d in found.differences if d.part_of == "goodput"} == set(BUCKETS)
    parts = [d.name for d in found.differences if d.part_of == "run time"]
    assert parts == ["cluster start", "training", "control run", "harness"]
    assert sum(seen(found, name, "run time").a_median for name in parts) == seen(found, "run time").a_median
    assert seen(found, "first step").change == pytest.approx(9.0)
    assert len({(q.name, q.part_of) for q in QUANTITIES}) == len(QUANTITIES)


def test_a_run_is_told_by_its_slowest_whole_recovery_and_its_most_lost_steps() -> None:
    several = [recovery(9.0, lost=7), recovery(12.0, lost=5), recovery(99.0, missing="restore", lost=50)]
    found = one([summary(recoveries=several)], repeats(12.0))
    assert (seen(found, "recovery").change, seen(found, "lost steps").a) == (0.0, [7])


def test_less_goodput_is_worse() -> None:
    def with_share(*shares: float) -> list[Summary]:
        return [summary(goodput=GoodputRecord(wall_s=9, share=s, rank_seconds_lost=9, seconds={})) for s in shares]

    found = seen(one(with_share(0.5, 0.51, 0.52, 0.53), with_share(0.3, 0.31, 0.32, 0.33)), "goodput")
    assert (found.trend, found.change, found.unit) == (Trend.WORSE, pytest.approx(-20.0), "%")


def test_what_no_run_of_one_side_has_is_not_compared() -> None:
    found = one(repeats(20.0), [summary(seconds=None, goodput=None)])
    assert found.difference("recovery") is None
    assert found.difference("goodput") is None
    assert found.regressed == []


def test_a_check_that_now_fails_is_a_regression_and_one_that_now_passes_is_none() -> None:
    good, bad = summary(), summary(verdict="fail")
    found = one([good], [bad])
    assert [(changed.name, changed.a, changed.b, changed.worse) for changed in found.checks] == [
        ("verdict", {"pass": 1}, {"fail": 1}, True),
        ("lost-steps", {"pass": 1}, {"fail": 1}, True),
    ]
    assert found.regressed == ["verdict: pass -> fail", "lost-steps: pass -> fail"]
    assert one([bad], [good]).regressed == []
    assert [changed.worse for changed in one([bad], [good]).checks] == [False, False]


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [("pass", "unknown", True), ("unknown", "fail", True), ("fail", "unknown", False), ("pass", "not-applicable", True),
     ("pass", "of a later version", True)],
)  # fmt: skip
def test_the_order_of_verdicts_says_which_is_worse(before: str, after: str, worse: bool) -> None:
    (changed,) = one([summary(checks=[check("steps", before)])], [summary(checks=[check("steps", after)])]).checks
    assert (changed.name, changed.worse) == ("steps", worse)


def test_a_check_that_appeared_or_vanished_is_told() -> None:
    found = one([summary(checks=[check("steps")])], [summary(checks=[check("samples")])])
    assert [(changed.name, changed.a, changed.b) for changed in found.checks] == [
        ("steps", {"pass": 1}, {"absent": 1}),
        ("samples", {"absent": 1}, {"pass": 1}),
    ]


def test_a_failure_more_of_a_check_that_failed_before_is_no_change() -> None:
    mixed = [summary(), summary(verdict="fail"), summary()]
    assert one(mixed, [*mixed, summary(verdict="fail")]).checks == []
    (changed, _) = one([summary()] * 3, mixed).checks
    assert (counted(changed.a), counted(changed.b)) == ("pass 3", "pass 2, fail 1")


def test_known_issues_that_came_or_went_are_told() -> None:
    found = one([summary(known_issue="an old one")], [summary(known_issue="a new one"), summary()])
    assert (found.issues_gone, found.issues_new) == (["an old one"], ["a new one"])
    assert one([summary(known_issue="the same")], [summary(known_issue="the same")]).issues_new == []


def test_what_was_asked_differently_is_told() -> None:
    found = one([summary()], [summary(workers=3, versions={"ray": "2.61.0", "torch": "2.13.0"})])
    told = [(asked.name, asked.a, asked.b) for asked in found.asked]
    assert told == [("workers", ["2"], ["3"]), ("ray", ["2.60.0"], ["2.61.0"]), ("torch", ["-"], ["2.13.0"])]


def test_only_scenarios_of_both_sides_are_compared_by_name() -> None:
    found = compare([summary("b"), summary("a"), summary("c")], [summary("c"), summary("b")])
    assert [one.scenario for one in found] == ["b", "c"]


def test_no_number_of_a_comparison_is_infinite() -> None:
    found = one(repeats(*STEADY), repeats(*SLOWER))
    assert all(math.isfinite(d.change) for d in found.differences)
