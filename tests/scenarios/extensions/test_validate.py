"""``aftershock validate``: every mistake of every file at once, each with its line and the way out."""

from __future__ import annotations

import functools
import json
import textwrap

import pytest

from tests.scenarios.extensions.conftest import CHECK, FAULT, SCENARIO


@pytest.fixture
def problems(command, write):
    """The problems of a text, as (line, problem)."""

    def find(text, name="mine.py"):
        write(name, text)
        result = command("validate", name, "--json")
        found = json.loads(result.stdout)
        assert result.exit_code == (64 if found else 0), result.output
        assert {p["file"] for p in found} <= {name}
        return [(p["line"], p["problem"]) for p in found]

    return find


def test_sound_files_are_told_with_what_they_define(command, files):
    result = command("validate", *(f.name for f in files))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "leave.py: scenario leave",
        "vanish.py: fault vanish",
        "few.py: check few_events",
    ]


MISTAKES = {
    "syntax": ("x = (", 1, "no Python: '(' was never closed"),
    "import of a name": ("from chaos.triggers import at_stp", 1, "has no 'at_stp': did you mean 'at_step'?"),
    "import of a module": ("import os\nfrom chaos.faults.kil import K", 2, "did you mean 'chaos.faults.kill'?"),
    "unknown name": (SCENARIO.replace("at_step(12)", "at_stp(12)"), 7, "unknown name 'at_stp': did you mean 'at_step'"),
    "name not imported": (SCENARIO.replace(", Exit,", ","), 7, "from scenarios.words import Exit"),
    "unknown field": (SCENARIO.replace("title=", "titel="), 6, "Scenario knows no 'titel': did you mean 'title'?"),
    "unknown setting": (SCENARIO.replace("code=", "cod="), 7, "Exit knows no 'cod': did you mean 'code'?"),
    "lacking field": (SCENARIO.replace('title="Rank 0 leaves with exit code 3.",', ""), 4, "Scenario needs title"),
    "wrong type": (SCENARIO.replace("Rank(0)", "Rank('0')"), 7, "Rank(rank='0'): a whole number is needed"),
    "a truth for a number": (SCENARIO.replace("code=3", "code=True"), 7, "Exit(code=True): a whole number is needed"),
    "too many values": (SCENARIO.replace("Rank(0)", "Rank(0, 1)"), 7, "Rank takes no 2 values in a row"),
    "wrong value": (SCENARIO.replace("code=3", "code=300"), 4, "exit: code=300 must lie between 0 and 255"),
    "step beyond the end": (SCENARIO.replace("at_step(12)", "at_step(99)"), 4, "step=99 never comes"),
    "rank outside": (SCENARIO.replace("Rank(0)", "Rank(7)"), 4, "rank=7 is outside the world of 2 workers"),
    "no armings": (SCENARIO.replace("(Arming(Exit(code=3), at_step(12), Rank(0)),)", "3"), 4, "inject returns a tuple"),
    "name of ours": (SCENARIO.replace('"leave"', '"segfault"'), 4, "scenario 'segfault' exists already"),
    "name of a path": (SCENARIO.replace('"leave"', '"a/b"'), 4, "small letters, digits, hyphens"),
    "an error of its own": (SCENARIO + "    y = [][0]", 11, "IndexError: list index out of range"),
    "fault with a name of ours": (FAULT.replace('"vanish"', '"kill"'), 5, "fault 'kill' exists already, in "),
    "fault without proof": (FAULT.replace("proof = Proof.EXIT", "proof = 'exit'"), 12, "use one of Proof.EXIT"),
    "fault that does nothing": (FAULT.replace("def fire", "def burn"), 5, "it needs fire(self)"),
    "fault without words": (FAULT.replace('certifies = "that a job survives"', ""), 5, "lacks certifies"),
    "unknown time-out": (FAULT.replace("proof =", "noticed_by = ('report_',)\n        proof ="), 12,
                         "there is no time-out 'report_': did you mean 'report'?"),
    "unknown phase": (FAULT.replace("proof =", "points = ('safe',)\n        proof ="), 12, "no phase 'safe'"),
    "fault in the wrong company": ("    import metrics.verdict" + FAULT, 1, "is loaded inside training processes"),
    "check without types": (CHECK.replace("most: int", "most"), 4, "setting most needs a type: int, float or str"),
    "check without a docstring": (CHECK.replace('\"\"\"The history is no longer than that.\"\"\"', "pass"), 4,
                                  "lacks a docstring"),
    "check with a name of ours": (CHECK.replace("few_events", "recovers"), 4, "check 'recovers' exists already"),
    "nothing": ("x = 1", 1, "defines no scenario, fault or check"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_line_and_the_way_out(problems, mistake):
    text, line, message = MISTAKES[mistake]
    found = problems(text)
    assert any(at == line and message in told for at, told in found), found


def test_all_mistakes_of_all_files_are_told_at_once(command, write, files):
    changes = {'"leave"': '"other"', "title=": "titel=", "Rank(0)": "Rank('0')", "Exit(": "Exitt("}
    write("a.py", functools.reduce(lambda text, change: text.replace(*change), changes.items(), SCENARIO))
    write("b.py", FAULT + FAULT.replace("class Vanish", "class Again"))
    result = command("validate", "a.py", "leave.py", "b.py", "nosuch.py")
    lines = result.stdout.splitlines()
    assert result.exit_code == 64
    assert [line.split(": ")[0] for line in lines[:-1]] == ["a.py:6", "a.py:7", "a.py:7", "b.py:22", "nosuch.py:1"]
    assert "fault 'vanish' exists already, in b.py:5" in lines[3]
    assert lines[-1] == "5 problems"


def test_two_files_may_not_use_one_name(command, write, files):
    write("other.py", SCENARIO)
    result = command("validate", "leave.py", "other.py")
    assert "other.py:4: scenario 'leave' exists already, in leave.py:4: give this one another name" in result.stdout


def test_a_file_whose_text_is_unsound_is_not_run(problems, place):
    problems(f"open({str(place / 'trace')!r}, 'w')\nx = nosuch")
    assert not (place / "trace").exists()


def test_a_suite_with_unknown_members_is_told(problems):
    text = "from scenarios.words import Suite, register\nregister(Suite(name='s', title='t', members=('kill-worke',)))"
    assert problems(text) == [(2, "suite 's': unknown scenario 'kill-worke': did you mean 'kill-worker'?")]


def test_what_is_usual_python_is_no_mistake(problems):
    text = """
        from __future__ import annotations
        import functools
        from scenarios import words as w
        from scenarios.words import Scenario, register, Arming, Kill, at_step, Rank, HEALTHY

        def make(*, step: int = 5, **more):
            match step:
                case int() as known: pass
            try:
                (both := [each for each in range(known)])
            except ValueError as error:
                raise error
            with open(__file__) as file: file.read()
            return Scenario(name="made", title="t", inject=lambda shape: (Arming(Kill(), at_step(step), Rank(0)),),
                            **more)

        register(functools.partial(make, expects=HEALTHY)(step=3))
    """
    assert problems(textwrap.dedent(text)) == []
