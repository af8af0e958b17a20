"""What the pages say of faults, triggers, targets, expectations, scenarios and time-outs, compared with the library."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from chaos.faults.base import Attack, Fault, Proof, all_faults, settings
from chaos.timeouts import TIMEOUTS, floor_s
from chaos.triggers import PHASES
from metrics.expectations import HEALTHY, UNDISTURBED, Expectation, parse
from scenarios import catalogue
from scenarios.request import Request
from scenarios.scenario import Scenario, Shape
from tests.docs.pages import (
    PAGES,
    ROOT,
    bare,
    blocks,
    docstrings_of,
    page,
    quoted,
    requested,
    scenarios,
    section,
    suites,
    tables,
    words,
)

# Faults


def fact(name: str, word: str) -> str:
    """What a bullet of a fault's section says after its first words, without the full stop."""
    text = section(page("faults.md"), f"`{name}`").replace("\n  ", " ")
    found = re.search(rf"^- {word} (.+)\.$", text, re.M)
    assert found, f"{name}: no '- {word} ...'"
    return found[1]


def test_the_page_of_faults_has_one_row_and_one_section_for_each_fault_in_order() -> None:
    rows = tables(page("faults.md"), "fault")
    assert [quoted(row["fault"])[0] for row in rows] == list(all_faults())
    assert re.findall(r"^## `(.+)`$", page("faults.md"), re.M) == list(all_faults())


@pytest.mark.parametrize("name", list(all_faults()))
def test_the_row_of_a_fault_says_what_its_class_says(name: str) -> None:
    fault = all_faults()[name]
    row = next(row for row in tables(page("faults.md"), "fault") if quoted(row["fault"]) == [name])
    assert row["acts from"] == ("outside" if issubclass(fault, Attack) else "inside")
    assert row["breaks the job"] == ("yes" if fault.breaks else "no")
    assert row["confirmed by"] == fault.proof
    assert quoted(row["noticed by"]) == list(fault.noticed_by)
    assert quoted(row["only in"]) == list(fault.points)


@pytest.mark.parametrize("name", list(all_faults()))
def test_the_section_of_a_fault_says_what_its_class_says(name: str) -> None:
    fault = all_faults()[name]
    assert fact(name, "Confirmed when") == fault.effect
    assert fact(name, "Certifies") == fault.certifies
    assert fact(name, "Does not certify") == fault.not_certified
    told = dict(re.findall(r"`(\w+)` = ([\w.]+)", fact(name, "Settings:")))
    assert told == {setting: str(default) for setting, default in settings(fault).items()}


@pytest.mark.parametrize("name", list(all_faults()))
def test_the_scenarios_of_a_fault_are_those_that_arm_it(name: str) -> None:
    used = [s.name for s in scenarios().values() if name in {i.fault for i in requested(s).injections}]
    assert quoted(fact(name, "Used by")) == used


def test_the_kinds_of_proof_are_told_as_the_source_tells_them() -> None:
    rows = tables(section(page("faults.md"), "How it is confirmed"), "proof")
    meanings = docstrings_of("chaos/faults/base.py", "Proof")
    assert [(bare(row["proof"]), row["what is seen"]) for row in rows] == [(p, meanings[p.name]) for p in Proof]
    in_short = tables(section(page("how-it-works.md"), "The life of a fault"), "proof")
    assert [bare(row["proof"]) for row in in_short] == list(Proof)


def test_how_soon_an_end_must_be_seen_is_told_for_every_fault_that_has_a_time_of_its_own() -> None:
    row = next(r for r in tables(page("faults.md"), "proof") if bare(r["proof"]) == Proof.EXIT)
    own = {name: fault.within_s for name, fault in all_faults().items() if fault.within_s != Fault.within_s}
    assert f"{Fault.within_s:g} s, " + ", ".join(f"{s:g} s for `{name}`" for name, s in own.items()) in row["how"]


def test_the_attributes_of_a_fault_are_documented_with_their_defaults() -> None:
    rows = tables(section(page("writing-a-fault.md"), "Attributes"), "attribute")
    known = [name for name, kind in Fault.__annotations__.items() if kind.startswith("ClassVar")]
    assert [bare(row["attribute"]) for row in rows] == known
    defaults = {name: repr(getattr(Fault, name)) if hasattr(Fault, name) else "-" for name in known}
    assert {bare(row["attribute"]): bare(row["default"]) for row in rows} == defaults


# Triggers and targets


def listed(what: str) -> dict[str, str]:
    """A list of the command as its names and titles."""
    return {item["name"].strip(): item["title"] for item in catalogue.items(what)}


def unquoted(rows: list[dict[str, str]], column: str) -> dict[str, str]:
    return {bare(row[column]): row["meaning"].replace("`", "") for row in rows}


def test_triggers_and_the_ways_to_join_them_are_told_as_the_command_lists_them() -> None:
    text = page("triggers.md")
    told = {**unquoted(tables(text, "trigger"), "trigger"), **unquoted(tables(text, "form"), "form")}
    known = {name: title for name, title in listed("triggers").items() if not name.startswith("phase ")}
    assert told == known


def test_the_phases_are_told_with_how_each_is_seen_and_its_limits() -> None:
    rows = tables(section(page("triggers.md"), "Phases"), "phase")
    assert {bare(row["phase"]): row["when"] for row in rows} == PHASES
    assert [bare(row["phase"]) for row in rows] == list(PHASES)
    assert all(len(row["seen by"].split()) >= 4 and row["limits"] for row in rows)


def test_targets_are_told_as_the_command_lists_them() -> None:
    assert unquoted(tables(section(page("triggers.md"), "Targets"), "target"), "target") == listed("targets")


# Expectations


def test_the_words_of_expectations_are_told_with_their_defaults_and_checks() -> None:
    rows = tables(section(page("expectations.md"), "Words"), "word")
    assert unquoted(rows, "word") == listed("expectations")
    found = {name: [check for check, _ in expectation.checks] for name, expectation in words().items()}
    assert {bare(row["word"]).split("(")[0]: quoted(row["checks"]) for row in rows} == found


def examples_of_expect() -> Iterator[str]:
    yield from (line for line in blocks(page("expectations.md"), "")[0].splitlines())
    for file in (*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"):
        found = re.findall(r"--expect '([^']+)'", file.read_text(encoding="utf-8"))
        yield from (text for text in found if not text.startswith("my_"))  # a word of the reader's own


@pytest.mark.parametrize("text", sorted(set(examples_of_expect())))
def test_every_expectation_that_a_page_shows_can_be_given(text: str) -> None:
    assert parse(str(parse(text))) is not None


@pytest.mark.parametrize(("word", "meant"), [("healthy", HEALTHY), ("undisturbed", UNDISTURBED)])
def test_the_two_words_for_whole_expectations_are_spelt_out(word: str, meant: Expectation) -> None:
    assert f"`{word}` is `{meant}`" in page("scenarios.md")


# Scenarios


def expected(cell: str) -> Expectation:
    """The expectation that a cell of the page writes in short."""
    text, _, change = bare(cell).partition(", but ")
    change, _, other = change.partition(" or ")
    for word, meant in (("healthy", HEALTHY), ("undisturbed", UNDISTURBED)):
        text = text.replace(word, f"({meant})")
    found = parse(text.replace(" or ", " | "))
    found = found.but(parse(change)) if change else found
    return found | parse(other) if other else found


def rows_of_scenarios() -> dict[str, dict[str, str]]:
    rows = [row for row in tables(page("scenarios.md"), "scenario") if "expected" in row]
    assert len({row["scenario"] for row in rows}) == len(rows)
    return {bare(row["scenario"]): row for row in rows}


def test_the_page_of_scenarios_has_every_scenario_and_every_suite() -> None:
    assert sorted(rows_of_scenarios()) == sorted(scenarios())
    rows = tables(page("scenarios.md"), "suite")
    told = {bare(row["suite"]): (row["what happens"], tuple(quoted(row["members"]))) for row in rows}
    assert told == {name: (found.title, found.members) for name, found in suites().items()}


@pytest.mark.parametrize("name", list(scenarios()))
def test_the_row_of_a_scenario_says_what_the_scenario_says(name: str) -> None:
    row, request = rows_of_scenarios()[name], requested(scenarios()[name])
    assert row["what happens"] == request.scenario.title
    counted = {fault: int(times or 1) for fault, times in re.findall(r"`([\w-]+)`(?: (\d+) times)?", row["faults"])}
    assert counted == Counter(injection.fault for injection in request.injections)
    assert str(expected(row["expected"])) == str(request.expects)


@pytest.mark.parametrize("name", list(scenarios()))
def test_the_numbers_of_a_scenario_are_all_that_differ_from_the_defaults(name: str) -> None:
    scenario, plain_shape = scenarios()[name], Shape()
    times = ("timeout_s", "health_s", "report_s", "shutdown_s")  # told in tables of their own
    own = {f.name: getattr(scenario.shape, f.name) for f in dataclasses.fields(Shape) if f.name not in times}
    differ = {key: value for key, value in own.items() if value != getattr(plain_shape, key)}
    told = dict(word.split("=") for word in quoted(rows_of_scenarios()[name]["numbers"]))
    assert told == {key: str(value) for key, value in {**differ, **scenario.settings}.items()}


def shortest(scenario: Scenario) -> float:
    """The shortest time-out, of those that notice hangs, that a scenario sets."""
    found = scenario.shape.timeouts
    return min(seconds for name in ("process_group", "worker_health", "report") if (seconds := found[name]) is not None)


def test_the_time_outs_of_the_hang_scenarios_are_those_that_they_set() -> None:
    rows = {
        bare(r["scenario"]): r for r in tables(section(page("scenarios.md"), "Hangs"), "scenario") if "noticed by" in r
    }
    hangs = {n: s for n, s in scenarios().items() if any(a.fault.noticed_by for a in s.inject(s.shape))}
    assert rows.keys() == hangs.keys()
    for name, scenario in hangs.items():
        (noticed,) = {arming.fault.noticed_by for arming in scenario.inject(scenario.shape)}
        for number in ("timeout_s", "health_s", "report_s", "shutdown_s"):
            assert rows[name][f"`{number}`"] == f"{getattr(scenario.shape, number):g}", (name, number)
        assert quoted(rows[name]["noticed by"]) == list(noticed)
        assert rows[name]["by default after"] == _floor(noticed)


def _floor(noticed_by: tuple[str, ...]) -> str:
    floor = floor_s(noticed_by)
    return "never" if floor is None else f"{floor:g} s"


def silence(request: Request) -> float:
    """How long the longest disturbance of a request keeps a rank silent at a stretch, seconds."""
    return max(float(i.values.get("stopped_s", i.values["seconds"])) for i in request.injections)


def test_the_silences_of_the_negative_controls_are_told_beside_their_time_outs() -> None:
    text = section(page("scenarios.md"), "Negative controls")
    rows = {bare(r["scenario"]): r for r in tables(text, "scenario") if "silent at a stretch, s" in r}
    controls = {n: s for n, s in scenarios().items() if s.expects is UNDISTURBED}
    assert rows.keys() == controls.keys()
    for name, scenario in controls.items():
        assert rows[name]["silent at a stretch, s"] == f"{silence(requested(scenario)):g}"
        assert rows[name]["shortest time-out, s"] == f"{shortest(scenario):g}"


def test_every_known_issue_is_told() -> None:
    rows = tables(section(page("scenarios.md"), "Known issues"), "scenario")
    known = {name: s.known_issue for name, s in scenarios().items() if s.known_issue}
    assert {bare(row["scenario"]): row["known issue"] for row in rows} == known


# Time-outs


def test_the_chain_of_time_outs_is_the_one_of_the_code() -> None:
    rows = tables(section(page("timeouts.md"), "The chain"), "name")
    chain = [row for row in rows if "default" in row]
    told = [(bare(r["name"]), bare(r["set by"]), r["default"], r["what it ends"]) for r in chain]
    assert told == [(t.name, t.setting, _floor((t.name,)), t.meaning) for t in TIMEOUTS.values()]
    fields = {bare(row["name"]): bare(row["number of the scenario"]) for row in rows if "default" not in row}
    shape = Shape(timeout_s=11, health_s=12, report_s=13, shutdown_s=14, poll_s=15)
    assert {name: getattr(shape, field) for name, field in fields.items()} == shape.timeouts


def test_which_time_out_notices_which_fault_is_told_for_every_fault_that_needs_one() -> None:
    rows = tables(page("timeouts.md"), "fault")
    told = {bare(r["fault"]): (tuple(quoted(r["noticed by"])), r["by default after"]) for r in rows}
    needing = {name: fault.noticed_by for name, fault in all_faults().items() if fault.noticed_by}
    assert told == {name: (noticed, _floor(noticed)) for name, noticed in needing.items()}
