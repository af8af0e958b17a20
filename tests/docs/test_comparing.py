"""The page on comparing runs, compared with the code: its numbers, words and fields."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from metrics import compare, intervals, regression, trend
from metrics.report.trend import SHOWN
from metrics.stored import DEPTH
from scenarios.trending import SPARKS
from tests.docs.pages import bare, page, quoted, section, tables

TEXT = page("comparing-runs.md")
FLAT = " ".join(TEXT.split())
JSON = section(TEXT, "JSON")


def names(record: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(record)]


def test_the_fields_of_both_reports_are_documented_in_order() -> None:
    told = [name for row in tables(JSON, "field") for name in quoted(row["field"])]
    wanted = [*names(compare.Report), "regressed", *names(compare.Comparison), *names(trend.Trend), "regressed"]
    wanted += names(trend.Series)
    assert told == wanted


@pytest.mark.parametrize(
    ("field", "record"),
    [("differences", compare.Difference), ("checks", compare.Changed), ("asked", compare.Asked),
     ("together", trend.Pool), ("points", trend.Point)],
)  # fmt: skip
def test_the_parts_of_the_reports_are_documented(field: str, record: type[msgspec.Struct]) -> None:
    (row,) = [row for row in tables(JSON, "field") if bare(row["field"]) == field]
    assert sorted(set(quoted(row["meaning"])) - {"absent"}) == sorted(names(record))


def test_the_schema_versions_are_those_of_the_code() -> None:
    told = [row["meaning"] for row in tables(JSON, "field") if bare(row["field"]) == "schema"]
    assert told == [str(compare.SCHEMA), str(trend.SCHEMA)]


def test_the_words_of_a_change_and_of_a_state_are_all_told() -> None:
    told = {word for row in tables(TEXT, "word") for word in quoted(row["word"])}
    assert told == set(compare.Trend)
    states = " ".join(row["state"] for row in tables(TEXT, "state"))
    assert [health for health in trend.Health if health != "passes" and health not in states] == []
    assert all(f"`{health}`" in JSON for health in trend.Health)


@pytest.mark.parametrize("row", tables(TEXT, "runs in A and B"), ids=lambda row: row["runs in A and B"])
def test_the_levels_of_the_intervals_are_those_of_the_code(row: dict[str, Any]) -> None:
    for few, many in re.findall(r"(\d+) and (\d+)", row["runs in A and B"]):
        found = intervals.shift([1.0] * int(few), [2.0] * int(many))
        assert row["level of the interval"] == (f"{100 * found.level:.1f} %" if found else "none")


def test_the_fewest_runs_without_and_with_an_interval_are_told() -> None:
    assert intervals.shift([1.0], [2.0] * 19) is not None
    assert intervals.shift([1.0] * 2, [2.0] * 5) is not None


@pytest.mark.parametrize(
    "told",
    [
        f"Below {regression.LEAST} recoveries of a scenario there is no alarm",
        f"The latest {regression.WINDOW} recoveries of a scenario are compared, as logarithms, with",
        f"with up to {regression.BASELINE} before them",
        f"further than {regression.TRIM:g} robust standard deviations",
        f"a spread below {100 * regression.LEAST_SPREAD:g} % counts as {100 * regression.LEAST_SPREAD:g} %",
        f"up to {regression.ASIDE} that lie more than {regression.FAR:g} of these spreads",
        f"when it is {100 * (regression.MATTERS - 1):.0f} % or more",
        f"power of {regression.SHARING:g}",
        f"its median by {100 * (compare.MATTERS - 1):.0f} % or more",
        f"the latest {trend.RECENT} runs",
        f"from {trend.LEAST_CHANGE} recoveries on",
        f"recoveries of the latest {SPARKS} runs",
        f"A chart shows the latest {SHOWN} runs",
        f"where there are {'three' if trend.LEAST_TOGETHER == 3 else trend.LEAST_TOGETHER} or more",
        f"{'three' if DEPTH == 3 else DEPTH} levels down",
    ],
)  # fmt: skip
def test_the_numbers_are_those_of_the_code(told: str) -> None:
    assert told in FLAT


def test_the_table_of_the_gate_has_every_length_of_the_baseline_that_was_simulated() -> None:
    assert [row["baseline"] for row in tables(TEXT, "baseline")] == [f"{runs} runs" for runs in regression.LOOKS]
