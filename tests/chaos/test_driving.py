"""Aftershock from Python: the command is driven as a subprocess, and what it prints becomes a typed result."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import chaos
from chaos import driving
from chaos.exits import UsageError
from chaos.results import Check, Result
from tests.chaos.fakes import Fake, member_told, suite_told, told


@pytest.fixture
def fake(tmp_path, monkeypatch):
    fake = Fake(tmp_path / "fake")
    monkeypatch.setattr(driving, "COMMAND", fake.command)
    return fake


def imported(statement, *names):
    """Which of these packages are there after a statement in a fresh process."""
    code = f"import sys; {statement}; print(*{{n.split('.')[0] for n in sys.modules}} & {set(names)})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=chaos.INSTALLATION)
    return done.stdout.split()


def test_the_package_itself_stays_light():
    assert imported("import chaos", "ray", "torch", "msgspec", "subprocess", "json") == []


def test_to_drive_the_command_none_of_our_other_rooms_is_imported():
    assert imported("from chaos import run", "ray", "torch", "metrics", "scenarios", "trainer", "msgspec") == []


def test_what_the_package_offers_is_there_and_nothing_else():
    assert all(getattr(chaos, name) is not None for name in chaos.__all__)
    with pytest.raises(AttributeError, match="module 'chaos' has no attribute 'nosuch'"):
        chaos.nosuch  # noqa: B018


# A run


def test_a_run_is_a_result_with_checks_recoveries_and_its_directory(fake, tmp_path):
    fake.answer(run={"output": told(), "directories": [str(tmp_path / "run")]})
    result = chaos.run("kill-worker", quiet=True)
    assert isinstance(result, Result)
    assert (result.passed, result.verdict, result.exit_code, result.restarts) == (True, "pass", 0, 1)
    assert result.directory == tmp_path / "run"
    assert result.check("steps") == Check(name="steps", verdict="pass", expected="40 steps, each once",
                                          seen="step 21 twice", where="history.jsonl")  # fmt: skip
    assert [(p.name, p.seconds, p.rank) for p in result.recoveries[0].phases] == [
        ("detect", 0.104, None), ("restore", 0.5, 1)]  # fmt: skip
    assert result.told["schema"] == 1
    with pytest.raises(KeyError, match="no check 'nosuch': there are steps"):
        result.check("nosuch")


def test_a_result_that_failed_tells_what_broke_where_and_how_to_repeat_it(fake, tmp_path):
    fake.answer(run={"output": told(verdict="fail", code=1), "code": 1, "directories": [str(tmp_path)]})
    result = chaos.run("kill-worker", quiet=True)
    assert not result.passed
    assert str(result).splitlines() == [
        "kill-worker: fail (exit code 1): fail: steps",
        "  steps: fail",
        "    expected  40 steps, each once",
        "    seen      step 21 twice",
        "    see       history.jsonl",
        "  recovery  kill of rank 1 in step at step 25: 0.604 s (detect 0.104, restore 0.500)",
        f"  directory {tmp_path}",
        "  repeat    aftershock run kill-worker",
    ]


def test_a_suite_is_a_result_whose_members_tell_their_own_checks(fake, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "verdict.json").write_text(json.dumps(told("kill-worker", "fail", 1)))
    members = member_told("kill-worker", "fail", 1, "one"), member_told("segfault"), member_told("oom", "skipped")
    fake.answer(run={"output": suite_told(*members, code=1), "code": 1, "directories": [str(tmp_path)]})
    result = chaos.run("preprod", quiet=True)
    assert (result.verdict, result.reason, result.passed) == ("fail", "1 of 3 passed", False)
    assert result.member("kill-worker").check("steps").verdict == "fail"
    assert result.member("kill-worker").directory == tmp_path / "one"
    assert result.member("segfault").passed
    assert not result.member("oom").passed
    assert "  oom: skipped: because of skipped" in str(result)
    with pytest.raises(KeyError, match="no member 'nosuch'"):
        result.member("nosuch")


@pytest.mark.parametrize(("code", "verdict"), [(6, "unknown"), (70, "unknown"), (5, "fail"), (4, "unknown")])
def test_a_command_that_prints_nothing_is_a_result_with_its_last_message(fake, code, verdict):
    fake.answer(run={"output": "", "code": code, "progress": "a line\naftershock: what it was"})
    result = chaos.run("kill-worker", quiet=True)
    assert (result.verdict, result.exit_code, result.reason) == (verdict, code, "what it was")
    assert result.directory is None


def test_a_mistake_is_raised_with_the_message_of_the_command(fake):
    fake.answer(run={"output": "", "code": 64, "progress": "aftershock: unknown scenario 'x': did you mean 'y'?"})
    with pytest.raises(UsageError, match=r"^unknown scenario 'x': did you mean 'y'\?$"):
        chaos.run("x", quiet=True)


# Options


def test_options_are_those_of_the_command(fake, tmp_path):
    fake.answer(run={"output": told()})
    chaos.run(
        tmp_path / "mine.py", workers=3, rank=0, expect="recovers(within=60)", set={"dropout": 0, "steps": 20},
        control=False, share=True, strict=True, resume=False, out=tmp_path, files=["a.py", "b.py"], seed=0,
        deadline=None, quiet=True,
    )  # fmt: skip
    (words,) = fake.calls
    assert words == [
        "run", str(tmp_path / "mine.py"), "--json", "--workers", "3", "--rank", "0", "--expect", "recovers(within=60)",
        "--set", "dropout=0", "--set", "steps=20", "--no-control", "--share", "--strict", "--out", str(tmp_path),
        "--from", "a.py", "--from", "b.py", "--seed", "0",
    ]  # fmt: skip


def test_faults_triggers_and_targets_are_given_by_name(fake):
    fake.answer(run={"output": told()})
    chaos.run(inject="kill; at_step(25); Rank(1)", quiet=True)
    assert fake.calls == [["run", "--json", "--inject", "kill; at_step(25); Rank(1)"]]


def test_an_unknown_option_is_told_with_the_nearest():
    with pytest.raises(TypeError, match="unknown option 'worker': did you mean 'workers'"):
        chaos.run("kill-worker", worker=3)


def test_every_option_is_one_of_the_command():
    from scenarios.cli import cli

    known = {option for parameter in cli.commands["run"].params for option in parameter.opts}
    assert {f"--{'from' if name == 'files' else name}" for name in driving.Options.__annotations__} <= known


# Progress, interruption


def test_progress_goes_to_standard_error_or_wherever_it_is_wanted(fake, capsys):
    fake.answer(run={"output": told(), "progress": "  steady   wait"})
    chaos.run("kill-worker")
    assert capsys.readouterr() == ("", "  steady   wait\n")
    elsewhere = io.StringIO()
    chaos.run("kill-worker", progress=elsewhere)
    assert (capsys.readouterr().err, elsewhere.getvalue()) == ("", "  steady   wait\n")


def interrupt_when(file):
    def look():
        while not file.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=look, daemon=True).start()


def test_an_interruption_is_passed_on_and_the_heal_awaited(fake):
    fake.answer(run={"wait": 60})
    interrupt_when(fake.folder / "waiting")
    with pytest.raises(KeyboardInterrupt):
        chaos.run("kill-worker", quiet=True)
    assert (fake.folder / "healed").exists()


def test_impatience_does_not_cut_the_heal_short(fake):
    fake.answer(run={"wait": 60})
    messages = io.StringIO()

    def twice():
        while not (fake.folder / "waiting").exists():
            time.sleep(0.01)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.6)

    threading.Thread(target=twice, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        chaos.run("kill-worker", progress=messages)
    assert (fake.folder / "healed").exists()
    assert "still healing what the run has made" in messages.getvalue()


# Plans, files, checks: with the true command


def test_a_plan_is_what_the_dry_run_tells(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (plan,) = chaos.plan(inject="exit(code=3); at_step(12); Rank(0)", workers=3)
    assert (plan["workers"], plan["injections"][0]["id"]) == (3, "exit-0")
    with pytest.raises(UsageError, match="did you mean 'kill-worker'"):
        chaos.plan("kill-worke")
    assert list(tmp_path.iterdir()) == []


def test_the_mistakes_of_a_file_are_raised_with_their_lines(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text("from chaos.triggers import at_stp\nx = nosuch\n")
    with pytest.raises(UsageError) as caught:
        chaos.validate("bad.py")
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == ["bad.py:1", "bad.py:2"]
