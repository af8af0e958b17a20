"""``--inject``: a scenario of names on the command line."""

from __future__ import annotations

import json

import pytest

from chaos.exits import UsageError
from chaos.faults.async_exception import AsyncException
from chaos.faults.hang import Hang
from chaos.faults.kill import Kill
from chaos.schedule import Arming
from chaos.targets import All, Rank, Some
from chaos.triggers import at_step, in_phase, on_attempt
from metrics.expectations import HEALTHY, UNDISTURBED
from scenarios.injecting import arming, scenario

UNDERSTOOD = {
    "kill; at_step(25); Rank(1)": Arming(Kill(), at_step(25), Rank(1)),
    "kill(); at_step(step=25); All()": Arming(Kill(), at_step(25), All()),
    "hang(seconds=2.5); in_phase('save') & at_step(20); Some(1, All())":
        Arming(Hang(seconds=2.5), in_phase("save") & at_step(20), Some(1, All())),
    "async-exception; at_step(5) >> in_phase('restore') & on_attempt(1); Rank(0)":
        Arming(AsyncException(), at_step(5) >> in_phase("restore") & on_attempt(1), Rank(0)),
    "kill; (at_step(5) >> in_phase('first-step')).repeat(2); Rank(0)":
        Arming(Kill(), (at_step(5) >> in_phase("first-step")).repeat(2), Rank(0)),
}  # fmt: skip


@pytest.mark.parametrize("text", UNDERSTOOD)
def test_a_text_is_the_arming_that_python_would_make(text):
    assert arming(text) == UNDERSTOOD[text]


MISTAKES = {
    "kill": "write FAULT; TRIGGER; TARGET, such as 'kill; at_step(25); Rank(1)'",
    "kill; at_step(25);": "write FAULT; TRIGGER; TARGET",
    "kil; at_step(25); Rank(1)": "unknown fault 'kil': did you mean 'kill'?",
    "async-exceptio; at_step(25); Rank(1)": "did you mean 'async-exception'?",
    "kill; at_stp(25); Rank(1)": "unknown trigger 'at_stp': did you mean 'at_step'?",
    "kill; at_step(25); Rnk(1)": "unknown target 'Rnk': did you mean 'Rank'?",
    "kill; Rank(1); at_step(25)": "unknown trigger 'Rank'",
    "kill; 25; Rank(1)": "'25' is in the wrong place",
    "kill; at_step; Rank(1)": "'at_step' is no trigger; `aftershock list triggers` shows them",
    "kill; in_phase('sav'); Rank(1)": "phase 'sav' does not exist",
    "hang(second=2); at_step(2); Rank(1)": "unexpected keyword argument 'second'",
    "hang(seconds=-2); at_step(2); Rank(1)": "seconds=-2 must be a positive number",
    "kill; at_step(; Rank(1)": "is not understood",
    "kill; at_step(__import__('os')); Rank(1)": "unknown trigger '__import__'",
    "kill; at_step(2).__class__(); Rank(1)": "is no trigger",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_what_is_not_understood_is_refused_with_the_way_out(text):
    with pytest.raises(UsageError) as caught:
        arming(text)
    assert MISTAKES[text] in str(caught.value)
    assert str(caught.value).startswith(f"--inject '{text}': ")


def test_what_breaks_nothing_must_leave_the_job_in_peace():
    assert scenario(["kill; at_step(2); Rank(1)"]).expects is HEALTHY
    assert scenario(["delay(seconds=1); at_step(2); Rank(1)"]).expects is UNDISTURBED


def test_several_injections_are_one_scenario_of_the_command(command):
    texts = ("kill; at_step(10); Rank(1)", "exit(code=3); at_step(20); Rank(0)")
    options = [word for text in texts for word in ("--inject", text)]
    plan = json.loads(command("run", *options, "--dry-run", "--json").stdout)
    assert [i["id"] for i in plan["injections"]] == ["kill-0", "exit-0"]
    assert plan["scenario"] == "injected"


def test_a_scenario_beside_an_injection_is_refused(command):
    result = command("run", "kill-worker", "--inject", "kill; at_step(10); Rank(1)", "--dry-run")
    assert (result.exit_code, result.stdout) == (64, "")
    assert "--inject makes a scenario of its own: leave out kill-worker" in result.stderr
