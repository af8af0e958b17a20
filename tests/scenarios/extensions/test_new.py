"""``aftershock new``: a starting point with its test, sound as it stands."""

from __future__ import annotations

import ast

import pytest

from chaos import own as loading
from scenarios.starting import KINDS

LINES = 90
"""What a fault with its test may take."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_starting_point_is_sound_and_bears_the_users_name(command, place, kind):
    result = command("new", kind, f"tests/my_{kind}_2.py")
    assert result.stdout.splitlines() == [
        f"wrote tests/my_{kind}_2.py",
        f"wrote tests/test_my_{kind}_2.py",
        f"next: aftershock validate tests/my_{kind}_2.py",
    ]
    shown = {"scenario": "scenario my-scenario-2", "fault": "fault my-fault-2", "check": "check my_check_2"}[kind]
    assert command("validate", f"tests/my_{kind}_2.py").stdout == f"tests/my_{kind}_2.py: {shown}\n"
    texts = [path.read_text() for path in (place / "tests").iterdir()]
    assert not any("starter" in text.lower() for text in texts)
    assert all(ast.parse(text) for text in texts)


def test_a_fault_with_its_test_is_short(command, place):
    command("new", "fault", "my_fault.py")
    assert sum(len(file.read_text().splitlines()) for file in place.glob("*.py")) < LINES


def test_a_scenario_is_ten_lines(command, place):
    command("new", "scenario", "mine.py")
    lines = (place / "mine.py").read_text().split('"""')[2].splitlines()
    assert len([line for line in lines if line.strip() and not line.strip().startswith("#")]) <= 10


def test_the_starting_point_of_a_fault_does_what_it_says(command, place):
    command("new", "fault", "my_fault.py")
    fault = loading.load(place / "my_fault.py").module.MyFault
    assert (fault.name, fault(code=7).cause) == ("my-fault", "exit code 7")


@pytest.mark.parametrize("there", ["mine.py", "test_mine.py"])
def test_nothing_is_overwritten(command, write, place, there):
    write(there, "x = 1")
    result = command("new", "check", "mine.py")
    assert (result.exit_code, result.stdout) == (64, "")
    assert f"{there} is there already" in result.stderr
    assert len(list(place.iterdir())) == 1


@pytest.mark.parametrize("name", ["mine", "my-scenario.py", "1st.py"])
def test_a_name_that_is_no_modules_is_refused(command, name):
    result = command("new", "scenario", name)
    assert result.exit_code == 64
    assert "name a Python file of letters, digits and underscores, such as my_scenario.py" in result.stderr
