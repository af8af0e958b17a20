"""Scenarios, faults and checks in files of the user's own: named, listed, run, judged, taken along."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import sys

import pytest

from chaos import own as loading
from chaos.agent.plan import Plan
from chaos.exits import UsageError
from chaos.faults.base import find_fault
from metrics.expectations import parse
from metrics.publish import judge_run
from scenarios import extensions
from scenarios.execute import execute
from scenarios.request import Options, resolve
from scenarios.scenario import find
from scenarios.suite import SuiteRun
from tests.scenarios.extensions.conftest import CHECK, FAULT, SCENARIO
from tests.scenarios.members import Runner


def planned(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# Named on the command line


def test_a_file_is_run_as_a_scenario(command, files):
    plan = planned(command("run", "./leave.py", "--dry-run", "--json"))
    assert (plan["scenario"], plan["injections"][0]["fault"]) == ("leave", "exit")


def test_a_file_is_run_among_scenarios_given_by_name(command, files):
    plans = planned(command("run", "kill-worker", "leave.py", "notice", "--dry-run", "--json"))
    assert [p["scenario"] for p in plans] == ["kill-worker", "leave", "drain-node", "drain-node-unheeded"]


def test_a_scenario_of_a_given_file_has_a_name_like_any_other(command, files):
    assert planned(command("run", "leave", "--from", "leave.py", "--dry-run", "--json"))["scenario"] == "leave"


def test_one_of_several_scenarios_of_a_file_can_be_named(command, write):
    write("two.py", SCENARIO + SCENARIO.split("register\n\n", 1)[1].replace('"leave"', '"again"'))
    assert len(planned(command("run", "two.py", "--dry-run", "--json"))) == 2
    assert planned(command("run", "two.py::again", "--dry-run", "--json"))["scenario"] == "again"
    assert "no scenario 'nosuch', but again, leave" in command("run", "two.py::nosuch").stderr


def test_a_suite_of_somebodys_own_names_scenarios_of_both_kinds(command, write):
    suite = "\nregister(Suite(name='mine', title='Both.', members=('leave', 'segfault')))"
    write("mine.py", SCENARIO.replace("Scenario,", "Scenario, Suite,") + "    " + suite.strip())
    assert {p["scenario"] for p in planned(command("run", "mine.py", "--dry-run", "--json"))} == {"leave", "segfault"}


def test_the_command_that_repeats_a_run_names_the_file_again(monkeypatch, files):
    monkeypatch.setattr(sys, "argv", ["aftershock", "run", "segfault", "leave.py", "--seed", "3"])
    asked = ("segfault", "leave.py")
    chosen = extensions.members(asked)
    options = Options(seed=3)
    commands = [inspect.getattr_static(type(r), "command").fget(r) for r in _requests(chosen, options, asked)]
    assert commands == ["aftershock run segfault --seed 3", "aftershock run leave.py --seed 3"]


def _requests(chosen, options, asked):
    from dataclasses import replace

    return [replace(resolve(one, options), asked=asked) for one in chosen.scenarios]


# Found in other ways


def test_own_faults_scenarios_and_words_are_listed_with_the_file_they_come_from(command, files):
    options = [word for file in files for word in ("--from", file.name)]
    for what, name, file in (("scenarios", "leave", "leave.py"), ("faults", "vanish", "vanish.py"),
                             ("expectations", "few_events(most=100)", "few.py")):  # fmt: skip
        items = json.loads(command("list", what, "--json", *options).stdout)
        (item,) = [item for item in items if item["name"] == name]
        assert item["from"] == file
        assert [i["name"] for i in items if "from" in i] == [name]


def test_what_the_configuration_names_needs_no_option(command, files, write):
    settings = "[tool.aftershock]\nscenarios = ['lea*.py']\nfaults = ['vanish.py']\nchecks = ['few.py']\n"
    write("pyproject.toml", settings)
    assert planned(command("run", "leave", "--dry-run", "--json"))["scenario"] == "leave"
    assert "vanish" in command("list", "faults").stdout


class Point:
    """An entry point of an installed distribution."""

    def __init__(self, value, error=None):
        self.name, self.value, self.module, self.error = "mine", value, value.partition(":")[0], error
        self.dist = type("Distribution", (), {"name": "aftershock-mine"})

    def load(self):
        if self.error:
            raise self.error
        module, name = importlib.import_module(self.module), self.value.partition(":")[2]
        return getattr(module, name) if name else module


@pytest.fixture
def installed(monkeypatch, place):
    """Let a distribution offer entry points of a group."""
    monkeypatch.syspath_prepend(str(place))

    def install(group, point):
        monkeypatch.setattr(extensions.metadata, "entry_points", lambda group="": [point] if group == wanted else [])

    wanted = "aftershock.faults"
    return install


def test_what_an_installed_distribution_offers_is_there_without_being_named(command, files, installed):
    installed("aftershock.faults", Point("vanish"))
    plan = planned(command("run", "--inject", "vanish; at_step(5); Rank(1)", "--dry-run", "--json"))
    assert plan["injections"][0]["fault"] == "vanish"
    items = json.loads(command("list", "faults", "--json").stdout)
    assert [i["from"] for i in items if "from" in i] == ["entry point 'mine' of aftershock-mine"]


def test_a_fault_of_an_installed_distribution_is_imported_by_its_name_in_training_processes(files, installed, place):
    installed("aftershock.faults", Point("vanish"))
    extensions.gather()
    request = resolve(extensions.members((), ["vanish; at_step(5); Rank(1)"]).scenarios[0], Options())
    assert extensions.for_agent(request.taken, request.injections, place) == {"vanish": ""}


def test_a_scenario_that_an_installed_distribution_offers_needs_no_registration(command, write, installed):
    text = SCENARIO.replace(", register", "").replace("register(\n        Scenario", "MINE = (\n        Scenario")
    write("offered.py", text)
    installed("aftershock.faults", Point("offered:MINE"))
    assert planned(command("run", "leave", "--dry-run", "--json"))["scenario"] == "leave"
    items = json.loads(command("list", "--json").stdout)
    assert [i["name"] for i in items if "from" in i] == ["leave"]


def test_a_distribution_that_cannot_be_loaded_is_named(command, installed):
    installed("aftershock.faults", Point("nosuch", ImportError("no module")))
    result = command("list", "faults")
    assert result.exit_code == 64
    assert "entry point 'mine' of aftershock-mine cannot be loaded: ImportError('no module')" in result.stderr


# Mistakes


MISTAKES = {
    "nosuch.py": ("", "nosuch.py: no such file"),
    "empty.py": ("x = 1", "empty.py defines no scenario, fault or check"),
    "broken.py": ("x = (", "broken.py:1: "),
    "raises.py": ("x = 1\ny = x / 0", "raises.py:2: ZeroDivisionError: division by zero"),
    "leaves.py": ("import sys\nsys.exit(3)", "leaves.py:2: SystemExit: 3"),
    "taken.py": (SCENARIO.replace('"leave"', '"segfault"'), "taken.py:3: a scenario called 'segfault' exists already"),
    "only.py": (FAULT, "only.py registers no scenario"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_file_that_cannot_be_used_is_one_line_with_its_place_and_64(command, write, name):
    text, message = MISTAKES[name]
    if text:
        write(name, text)
    result = command("run", name, "--dry-run")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (64, "", 1)
    assert message in result.stderr


def test_a_fault_may_not_take_the_name_of_another(write):
    extensions.take(write("vanish.py", FAULT))
    with pytest.raises(UsageError, match=r"other.py:4: a fault called 'vanish' exists already, in vanish.py"):
        extensions.take(write("other.py", FAULT))


def test_a_check_may_not_take_the_name_of_a_word(write):
    with pytest.raises(UsageError, match="a word called 'recovers' exists already"):
        extensions.take(write("c.py", CHECK.replace("few_events", "recovers")))


def test_a_scenario_whose_own_function_fails_is_told_by_its_line(command, write):
    write("late.py", SCENARIO.replace("Exit(code=3)", "Exit(code=1 // 0)"))
    result = command("run", "late.py", "--dry-run")
    assert result.exit_code == 64
    assert "scenario 'leave': ZeroDivisionError('integer division or modulo by zero') at late.py:7" in result.stderr


def test_a_fault_in_a_file_that_imports_our_rooms_is_refused_before_anything_starts(command, write):
    both = FAULT + SCENARIO.replace("Exit(code=3)", "Vanish()").replace(", Exit", "")
    write("both.py", both)
    result = command("run", "both.py", "--dry-run")
    assert result.exit_code == 64
    assert "both.py:18: fault 'vanish' is loaded inside training processes" in result.stderr


# A run takes along what it needs


@pytest.fixture
def ran(script, place, files, write):
    """A pretended run of a scenario with a fault and a check of somebody's own; returns request and directory."""
    write("mine.py", SCENARIO.replace("Exit(code=3)", "Vanish()").replace("import", "import", 1)
          .replace("    from scenarios", "    from vanish import Vanish\n    from scenarios", 1)
          .replace('"leave"', '"mine"'))  # fmt: skip
    extensions.gather([place / "few.py"])
    (scenario,) = extensions.members(["mine.py"]).scenarios
    request = resolve(scenario, Options(out=place / "out", expect="few_events(most=500)", strict=True))
    return request, execute(request)


def test_a_run_keeps_copies_of_what_it_needs_and_of_nothing_else(ran, place):
    record = json.loads((ran[1] / "scenario.json").read_text())
    assert record["sources"] == ["sources/0/few.py", "sources/1/mine.py"]
    kept = sorted(str(p.relative_to(ran[1] / "sources")) for p in (ran[1] / "sources").rglob("*.py"))
    assert kept == ["0/few.py", "1/mine.py", "1/vanish.py"]
    assert (ran[1] / "sources/1/vanish.py").read_text() == (place / "vanish.py").read_text()
    assert record["strict"] is True


def test_training_processes_are_told_where_the_fault_lies_and_read_the_runs_copy(ran, script, place):
    broken, control = script.conducts
    assert broken.plan.sources == {str(place / "vanish.py"): str(ran[1] / "sources/1/vanish.py")}
    assert control.plan.sources == {}
    assert Plan.read(broken.plan.write()) == broken.plan


def test_a_training_process_that_knows_nothing_loads_the_fault_under_its_own_path(ran, script, place, forget):
    ((source, copy),) = script.conducts[0].plan.sources.items()
    forget()
    (place / "vanish.py").write_text("raise RuntimeError('changed while the run goes on')\n")
    loading.load(source, copy)
    assert inspect.getfile(type(find_fault("vanish"))) == str(place / "vanish.py")


def test_a_stored_run_is_judged_again_by_its_own_copies(ran, place, forget, command):
    forget()
    for name in ("few.py", "vanish.py", "mine.py"):
        (place / name).unlink()
    result = command("analyze", str(ran[1]), "--json")
    assert result.stdout, result.output
    found = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert found["few-events"]["verdict"] == "pass"
    assert "looking" in result.stderr


# Checks of somebody's own


def finding(directory, text):
    _, judgement = judge_run(directory, parse(text))
    return next(f for f in judgement.findings if f.check == text.partition("(")[0].replace("_", "-"))


@pytest.fixture
def stored(place):
    """A stored run, of a pretended record and no event but one."""
    from chaos.made_up import made_up

    return made_up(place / "made", losses=[2.0, 1.0])


def test_a_check_of_somebodys_own_judges_as_any_other(files, stored):
    extensions.take(files[2])
    assert finding(stored, "few_events(most=500)").verdict == "pass"
    assert finding(stored, "few_events(most=1)").verdict == "fail"
    assert str(parse("few_events(most<=5)")) == "few_events(most=5)"


def test_a_check_that_raises_is_unknown_with_its_own_lines_only(write, stored):
    extensions.take(write("few.py", CHECK.replace('print("looking")', "_first(case)") + """

    def _first(case):
        return [e for e in case.history.select("nosuch")][0]
"""))  # fmt: skip
    found = finding(stored, "few_events()")
    assert found.verdict == "unknown"
    assert found.seen.startswith(
        "the check itself failed: IndexError('list index out of range') at few.py:13 in _first"
    )
    assert [line.split(":")[:2] for line in found.evidence["traceback"]] == [["few.py", "6 in few_events"],
                                                                             ["few.py", "13 in _first"]]  # fmt: skip


def test_what_is_no_finding_is_unknown_and_says_so(write, stored):
    extensions.take(write("few.py", CHECK.replace("return Finding(", "return bool(")))
    found = finding(stored, "few_events()")
    assert found.verdict == "unknown"
    extensions.take(write("none.py", CHECK.replace("few_events", "none").replace("return Finding", "x = Finding")))
    assert "none returned None: return a Finding" in finding(stored, "none()").seen


@pytest.mark.parametrize(("strict", "verdict"), [(False, "not-applicable"), (True, "unknown")])
def test_what_is_not_applicable_is_unknown_where_it_is_asked_to_be_strict(write, stored, strict, verdict):
    extensions.take(write("few.py", CHECK.replace("Verdict.PASS if", "Verdict.NOT_APPLICABLE if")))
    record = json.loads((stored / "scenario.json").read_text())
    (stored / "scenario.json").write_text(json.dumps({**record, "strict": strict}))
    assert finding(stored, "few_events()").verdict == verdict


def test_a_made_up_run_is_one_that_can_be_judged(stored):
    case, judgement = judge_run(stored)
    assert {f.check: str(f.verdict) for f in judgement.findings}["history"] == "pass"
    assert [e.data["loss"] for e in case.history.select("step.end") if e.rank == 0] == [2.0, 1.0]


# Suites that are strict


@pytest.mark.parametrize(("strict", "code"), [(False, 0), (True, 2)])
def test_a_skipped_member_makes_a_strict_suite_unknown(place, strict, code):
    requests = [resolve(find(name), Options(out=place)) for name in ("kill-worker", "segfault")]
    (place / "suite").mkdir()
    skipped = {"segfault": "this machine does not permit it"}
    suite = SuiteRun("s", requests, Runner(), place / "suite", {"strict": strict}, True, None, skipped)
    assert suite.run().exit_code == code
