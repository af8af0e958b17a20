"""``--dry-run``: the whole plan, the same one each time, and nothing touched."""

from __future__ import annotations

import json
import re

import pytest

from chaos.exits import ExitCode
from chaos.faults.base import all_faults
from chaos.faults.delay import Delay
from chaos.faults.kill import Kill
from chaos.schedule import Arming
from chaos.targets import All, Node, Rank
from chaos.triggers import at_step, in_phase
from scenarios.preview import preview
from scenarios.request import Options, resolve
from scenarios.scenario import Scenario, Suite, all_scenarios, find

SCENARIOS = {name: found for name, found in all_scenarios().items() if isinstance(found, Scenario)}
SUITES = {name: found for name, found in all_scenarios().items() if isinstance(found, Suite)}


def planned(name="kill-worker", **options):
    return preview(resolve(find(name), Options(**options)))


@pytest.fixture
def dry(command):
    """What ``--dry-run`` prints for these arguments; it must go well."""

    def run(*arguments):
        result = command("run", *arguments, "--dry-run")
        assert (result.exit_code, result.stderr) == (ExitCode.PASS, "")
        return result.stdout

    return run


# The same each time


@pytest.mark.parametrize("name", all_scenarios())
def test_the_same_request_gives_the_same_plan_byte_for_byte_and_touches_nothing(dry, place, name):
    assert dry(name) == dry(name)
    assert dry(name, "--json") == dry(name, "--json")
    assert list(place.iterdir()) == []


def test_the_same_seed_draws_the_same_plan_and_others_draw_others(dry):
    seven = dry("kill-two-at-once", "--seed", "7")
    assert dry("kill-two-at-once", "--seed", "7") == seven
    others = {dry("kill-two-at-once", "--seed", str(seed)).replace(f"seed {seed}", "seed 7") for seed in range(12)}
    assert len(others) == 3  # of three workers two are hit
    assert seven in others


def test_the_plan_does_not_hang_on_what_else_was_planned_before(dry):
    first = dry("kill-two-at-once", "--seed", "3")
    dry("restart-ten-times", "--seed", "5")
    assert dry("kill-two-at-once", "--seed", "3") == first


# What it says


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_text_tells_every_injection_and_what_is_expected(dry, name):
    plan, text = planned(name), re.sub(r"\s+", " ", dry(name))
    assert f"{name}: {plan['title']}" in text
    for injection in plan["injections"]:
        assert f"{injection['id']} {injection['fault']} {injection['target']} {injection['when']}" in text
    assert f"expects {plan['expects']}" in text
    assert f"deadline {plan['deadline_s']:g} s" in text
    assert "nothing was started or touched (--dry-run)" in text


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_json_is_the_plan_itself(dry, name):
    assert json.loads(dry(name, "--json")) == planned(name)


@pytest.mark.parametrize("name", SUITES)
def test_a_suites_plan_is_that_of_its_members_in_order(dry, name):
    names = list(SCENARIOS) if SUITES[name].members == ("*",) else SUITES[name].members
    assert json.loads(dry(name, "--json")) == [planned(member) for member in names]
    text = dry(name)
    places = [f"\n{text}".index(f"\n{member}: ") for member in names]
    assert places == sorted(places)


def test_the_plan_of_several_is_that_of_each_in_the_order_given(dry):
    told = json.loads(dry("segfault", "kill-worker", "segfault", "--seed", "3", "--json"))
    assert told == [planned("segfault", seed=3), planned("kill-worker", seed=3)]


@pytest.mark.parametrize(("name", "count"), [("kill-worker", 2), ("drain-node", 3), ("node-returns", 2)])
def test_the_nodes_are_those_at_the_start_whether_or_not_they_hold_a_worker(dry, name, count):
    assert planned(name)["nodes"] == [f"w{number}" for number in range(count)]
    assert f"workers on {count} nodes, " in dry(name)


def test_options_show_in_the_plan(dry):
    told = json.loads(
        dry("kill-worker", "--workers", "3", "--rank", "2", "--step", "17", "--seed", "9", "--deadline", "77",
            "--set", "checkpoint_every=5", "--no-control", "--expect", "recovers(within=60)", "--json")
    )  # fmt: skip
    (injection,) = told["injections"]
    assert (injection["target"], injection["when"]) == ("rank 2", "at step 17")
    assert (told["workers"], told["nodes"], told["checkpoint_every"]) == (3, ["w0", "w1", "w2"], 5)
    assert (told["seed"], told["deadline_s"], told["control_run"]) == (9, 77, False)
    assert told["expects"].startswith("recovers(within=60) & restarts()")


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_settings_of_each_fault_are_all_shown(name):
    for injection in planned(name)["injections"]:
        fault = all_faults()[injection["fault"]](**injection["settings"])
        assert {key: getattr(fault, key) for key in injection["settings"]} == injection["settings"]


@pytest.mark.parametrize("error", ["[red]", "[/x]", "a\nb"])
def test_what_the_user_wrote_is_shown_as_it_is(dry, error):
    assert f"& fails(error={error!r})\n" in dry("kill-worker", "--expect", f"fails(error={error!r})")


# The blast radius


def radius(scenario, **options):
    return preview(resolve(scenario, Options(**options)))["blast_radius"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_victims_are_those_of_the_injections_and_no_other(name):
    plan = planned(name)
    assert plan["blast_radius"]["victims"] == sorted({injection["target"] for injection in plan["injections"]})
    assert 0 < plan["blast_radius"]["share_of_workers"] <= 1


def test_the_share_is_that_of_the_workers(armed):
    assert radius(armed(at_step(5), Rank(1)))["share_of_workers"] == 0.5
    assert radius(armed(at_step(5), Rank(1)), workers=3)["share_of_workers"] == pytest.approx(1 / 3)
    assert radius(armed(at_step(5), All()), workers=3)["share_of_workers"] == 1
    assert radius(armed(at_step(5), Node("w0")))["victims"] == ["node w0"]


def test_what_does_not_break_the_job_costs_no_restart_and_no_step(armed):
    harmless = radius(armed(fault=Delay(seconds=1)))
    assert (harmless["restarts_at_most"], harmless["steps_at_risk_for_each"]) == (0, 0)
    both = armed(inject=lambda shape: (
        Arming(Delay(seconds=1), in_phase("save"), Rank(0)), Arming(Kill(), at_step(25), Rank(1)),
    ))  # fmt: skip
    assert radius(both)["restarts_at_most"] == 1


def test_restarts_are_bounded_by_the_budget(armed):
    many = armed(at_step(5).repeat(9))
    assert radius(many)["restarts_at_most"] == 3
    assert radius(many, settings={"max_failures": "-1"})["restarts_at_most"] == 9


# Time-outs


@pytest.mark.parametrize(
    ("name", "floor"),
    [("kill-worker", None), ("hang-frozen", 600.0), ("hang-blocked", 1800.0), ("missing-report", None)],
)
def test_how_long_the_defaults_would_leave_a_hang_alone_is_told(name, floor):
    assert planned(name)["noticed_by_default_after_s"] == floor


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_time_outs_that_must_notice_are_shown_beside_the_defaults(dry, name):
    noticing = {word for i in planned(name)["injections"] for word in all_faults()[i["fault"]].noticed_by}
    shown = [line for line in dry(name).splitlines() if line.startswith("notices ")]
    assert len(shown) == bool(noticing)
    assert all(f"{word} {planned(name)['timeouts_s'][word]:g} s, by default " in shown[0] for word in noticing)


def test_a_time_out_that_is_off_never_notices(dry):
    assert "report never, by default never" in dry("missing-report", "--set", "report_s=0")


@pytest.mark.parametrize("name", [name for name, found in SCENARIOS.items() if found.known_issue])
def test_a_known_issue_is_shown(dry, name):
    assert f"known    {SCENARIOS[name].known_issue}" in dry(name)
