"""``aftershock list``: what a scenario is made of, as text that fits a terminal and as JSON that holds the same."""

from __future__ import annotations

import json
import re

import pytest

from chaos.faults.base import Attack, all_faults, settings
from chaos.targets import TARGETS
from chaos.triggers import PHASES, TRIGGERS
from metrics.expectations import TERMS, parse
from scenarios import catalogue
from scenarios.cli import LISTS
from scenarios.scenario import Scenario, Suite, all_scenarios


@pytest.fixture
def listed(command):
    """What the command lists, as text or as JSON."""

    def show(what, *options):
        result = command("list", what, *options)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    return show


def squeezed(text):
    return re.sub(r"\s+", " ", text)


# Every list


def test_the_command_knows_the_lists_that_there_are():
    assert set(LISTS) == set(catalogue.LISTS)


@pytest.mark.parametrize("what", LISTS)
def test_the_text_fits_a_terminal_of_100_columns(listed, what):
    assert max(map(len, listed(what).splitlines())) <= 100


@pytest.mark.parametrize("what", LISTS)
def test_every_item_has_a_name_and_a_title_in_plain_words(what):
    items = catalogue.items(what)
    names = [item["name"] for item in items]
    assert len(names) == len(set(names)) > 0
    assert all(item["title"] and "``" not in item["title"] for item in items)
    assert all(list(item)[:2] == ["name", "title"] for item in items)


@pytest.mark.parametrize("what", LISTS)
def test_the_json_holds_the_items(listed, what):
    assert json.loads(listed(what, "--json")) == catalogue.items(what)


@pytest.mark.parametrize("what", LISTS)
def test_the_text_holds_every_name_in_order(listed, what):
    text = listed(what)
    places = [f"\n{text}".index(f"\n{item['name']} ") for item in catalogue.items(what)]
    assert places == sorted(places)


def test_without_a_word_the_scenarios_are_listed(command, listed):
    assert command("list").stdout == listed("scenarios")
    assert command("list", "--json").stdout == listed("scenarios", "--json")


# Scenarios


def test_every_scenario_and_suite_is_listed():
    assert [item["name"] for item in catalogue.items("scenarios")] == list(all_scenarios())


def test_a_scenario_tells_its_expectation_in_the_form_that_can_be_given():
    for item in catalogue.items("scenarios"):
        found = all_scenarios()[item["name"]]
        assert item["title"] == found.title
        if isinstance(found, Scenario):
            assert str(parse(item["expects"])) == item["expects"] == str(found.expectation(found.shape))
            assert (item["needs"], item["known_issue"]) == (list(found.needs), found.known_issue)


def test_a_suite_tells_its_members():
    suites = {name: list(s.members) for name, s in all_scenarios().items() if isinstance(s, Suite)}
    assert suites == {i["name"]: i["members"] for i in catalogue.items("scenarios") if "members" in i}


# Faults


@pytest.mark.parametrize("name", list(all_faults()))
def test_a_fault_tells_what_its_class_says(name):
    fault = all_faults()[name]
    item = next(item for item in catalogue.items("faults") if item["name"] == name)
    assert item["settings"] == settings(fault)
    assert (item["confirmed_by"], item["certifies"]) == (fault.effect, fault.certifies)
    assert (item["does_not_certify"], item["only_in"]) == (fault.not_certified, list(fault.points))
    where, what, end = item["capabilities"]
    assert where.startswith("from outside" if issubclass(fault, Attack) else "inside")
    assert ("negative control" in what) is not fault.breaks
    assert ("heals" in end) is issubclass(fault, Attack)


def test_the_text_shows_the_settings_with_their_defaults(listed):
    assert "settings: seconds=8.0, stopped_s=0.2, running_s=0.2" in squeezed(listed("faults"))


# Triggers, targets, expectations


def test_every_trigger_way_to_join_and_phase_is_listed():
    names = [item["name"] for item in catalogue.items("triggers")]
    assert [name.split("(")[0] for name in names[: len(TRIGGERS)]] == [build.__name__ for build in TRIGGERS]
    assert {"a & b", "a >> b", "a.repeat(n)"} < set(names)
    phases = {
        i["name"].removeprefix("  phase "): i["title"] for i in catalogue.items("triggers") if "phase " in i["name"]
    }
    assert phases == PHASES


def test_every_target_is_listed_with_what_it_takes():
    names = [item["name"] for item in catalogue.items("targets")]
    assert [name.split("(")[0] for name in names] == [target.__name__ for target in TARGETS]
    assert {"Rank(rank)", "All()", "Node(node)"} < set(names)


def test_every_word_of_expectations_is_listed_with_its_defaults():
    names = [item["name"] for item in catalogue.items("expectations")]
    assert [name.split("(")[0] for name in names] == list(TERMS)
    assert {"recovers(within=120.0)", "completes()", "fails(error)", "stays_flat(by=0.25, files=20.0)"} < set(names)
