"""Pruning: removing, interrupted and refused; the command; its records; whatever lies there."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.exits import ExitCode
from metrics.summary import Summary
from scenarios import prune as pruning
from scenarios.cli import cli
from scenarios.prune import Action, prune, size_of
from scenarios.suite import Member, SuiteRecord
from scenarios.sweep_record import SweepRecord
from tests.docs.pages import bare, page, section, tables
from tests.scenarios.prune.runs import FAILURES, MIB, PASS, Out, names, reason_for

# Removing


def test_an_interruption_leaves_no_half_run_and_the_next_prune_removes_what_is_left(out, command, monkeypatch):
    run, failed = out.run(), out.run(code=1)

    def interrupted(folder):
        (folder / "verdict.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", interrupted)
        assert command("prune", "--keep", "0").exit_code == ExitCode.ABORTED
    (remains,) = set(out.left()) - {failed.name}
    assert re.fullmatch(r"\.pruning-[0-9a-f]{8}", remains)
    assert not run.exists()
    planned = prune(out.folder, 10, dry_run=True)
    assert reason_for(planned, out.folder / remains)[0] == Action.PLANNED
    done = prune(out.folder, 10)
    assert reason_for(done, out.folder / remains) == (Action.REMOVED, "left by an interrupted prune")
    assert out.left() == names(failed)


def failing_for(folder, function):
    """A function that is refused for one directory."""

    def refuse(path, *arguments):
        if Path(path).name == folder.name:
            raise PermissionError(13, "Permission denied", str(path))
        return function(path, *arguments)

    return refuse


def test_what_cannot_be_moved_is_told_and_stays_whole_and_the_rest_goes(out, command, monkeypatch):
    stuck, free = out.run(), out.run("segfault")
    monkeypatch.setattr(Path, "rename", failing_for(stuck, Path.rename))
    result = command("prune", "--keep", "0")
    assert result.exit_code == ExitCode.FAIL
    assert result.stderr == f"aftershock: {stuck.name} could not be removed: Permission denied\n"
    assert re.search(rf"{stuck.name} +not removed +0\.0 +Permission denied", result.stdout)
    assert "1 removed, " in result.stdout
    assert out.left() == names(stuck)
    assert (stuck / "verdict.json").exists()
    assert not free.exists()


def test_what_can_be_removed_only_in_part_is_told_and_goes_with_the_next_prune(out, monkeypatch):
    run = out.run()

    def refuse(folder):
        raise PermissionError(13, "Permission denied", "file")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        done = prune(out.folder, 0)
    told = (Action.FAILED, "Permission denied; the rest of it goes with the next prune")
    assert (reason_for(done, run), done.freed_bytes) == (told, 0)
    prune(out.folder, 0)
    assert out.left() == []


def test_remains_that_cannot_be_looked_at_are_told(out, monkeypatch):
    remains = out.folder / ".pruning-0123abcd"
    remains.mkdir()
    monkeypatch.setattr(Path, "exists", failing_for(remains, Path.exists))
    assert reason_for(prune(out.folder, 0), remains)[0] == Action.FAILED


def test_two_prunes_at_once_do_not_trip_over_each_other(out, monkeypatch):
    out.run(), out.run("segfault")
    rmtree = shutil.rmtree

    def other_is_faster(folder):
        monkeypatch.setattr(shutil, "rmtree", rmtree)
        prune(out.folder, 0)
        raise FileNotFoundError(2, "No such file or directory", str(folder))

    monkeypatch.setattr(shutil, "rmtree", other_is_faster)
    done = prune(out.folder, 0)
    assert {fate.action for fate in done.directories} == {Action.REMOVED}
    assert out.left() == []


# The command


def contents(folder):
    return sorted((str(path), path.stat().st_mtime_ns) for path in (folder, *folder.rglob("*")))


def test_a_dry_run_touches_nothing_and_says_so(out, command):
    old, failed, new = out.run(), out.run(code=1), out.run()
    (old / "big").write_bytes(bytes(3 * MIB))
    (out.folder / ".pruning-0123abcd").mkdir()
    before = contents(out.folder)
    result = command("prune", "--keep", "1", "--dry-run")
    assert (result.exit_code, contents(out.folder)) == (0, before)
    lines = result.stdout.splitlines()
    assert lines[-1] == "dry run, nothing was touched: 2 would go, 3.0 MiB; 2 stay"
    rows = {line.split()[0]: re.split(r"\s{2,}", line.strip())[1:] for line in lines[1:-1]}
    assert rows[old.name] == ["would go", "3.0", "passed, older than the newest 1"]
    assert rows[failed.name] == ["kept", "0.0", "did not pass: exit code 1"]
    assert rows[new.name] == ["kept", "0.0", "passed, among the newest 1"]
    assert rows[".pruning-0123abcd"] == ["would go", "0.0", "left by an interrupted prune"]


def test_what_a_dry_run_shows_is_what_goes(out):
    for code in (PASS, 1, PASS, PASS, None, PASS):
        out.run(code=code)
    out.suite(PASS), out.suite(PASS, 2)
    planned = {f.directory for f in prune(out.folder, 1, dry_run=True).directories if f.action == Action.PLANNED}
    assert planned
    before = set(out.left())
    prune(out.folder, 1)
    assert before - set(out.left()) == planned


def test_the_end_tells_what_was_freed_and_the_table_fits(out, command):
    for _ in range(2):
        (out.run("a-scenario-with-a-very-long-name-that-somebody-made-up") / "big").write_bytes(bytes(MIB // 2))
    cut, _ = out.suite(PASS, asked=2)
    (out.folder / "notes.txt").touch()
    lines = command("prune", "--keep", "1").stdout.splitlines()
    assert lines[-1] == "1 removed, 0.5 MiB freed; 2 stay; left alone, not ours: 1"
    assert max(len(line.rstrip()) for line in lines) <= 100
    assert cut.exists()


def test_without_options_ten_of_each_stay_below_runs(out, command):
    made = [out.run() for _ in range(12)]
    assert command("prune").exit_code == 0
    assert out.left() == names(*made[2:])


def test_as_json_it_is_one_record(out, command):
    old = out.run()
    (old / "big").write_bytes(bytes(1000))
    out.run()
    size = size_of(old)
    told = json.loads(command("prune", "--keep", "1", "--json").stdout)
    assert {**told, "directories": len(told["directories"])} == {
        "out": "runs", "keep": 1, "dry_run": False, "freed_bytes": size, "others": 0, "directories": 2,
    }  # fmt: skip
    assert told["directories"][1] == {
        "directory": old.name, "name": "kill-worker", "action": "removed",
        "reason": "passed, older than the newest 1", "size_bytes": size,
    }  # fmt: skip


def test_where_nothing_is_there_is_nothing_to_remove(out, command):
    assert command("prune").stdout == "0 removed, 0.0 MiB freed; 0 stay\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--out nosuch", "--out nosuch: No such file or directory; name the directory that holds the runs"),
        ("--out file", "--out file: Not a directory; name the directory that holds the runs"),
        ("--keep -1", "-1 is not in the range x>=0"),
        ("--keep few", "'few' is not a valid integer"),
    ],
)
def test_a_mistake_is_one_line_and_64(place, command, arguments, message):
    (place / "file").touch()
    result = command("prune", *arguments.split())
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (ExitCode.USAGE, "", 1)
    assert message in result.stderr


def test_every_example_of_the_help_is_understood(command):
    lines = command("prune", "--help").stdout.splitlines()
    examples = [line.split()[2:] for line in lines if line.strip().startswith("aftershock prune")]
    assert len(examples) >= 3
    for example in examples:
        cli.commands["prune"].make_context("prune", example)


# Records and documentation


def fields(record):
    return [field.name for field in msgspec.structs.fields(record)]


@pytest.mark.parametrize(
    ("read", "whole"),
    [
        (pruning.RunOutcome, Summary),
        (pruning.RunOutcome, SweepRecord),
        (pruning.SuiteOutcome, SuiteRecord),
        (pruning.MemberOutcome, Member),
    ],
    ids=lambda v: v.__name__,
)
def test_what_is_read_is_what_runs_and_suites_store(read, whole):
    types = {field.name: field.type for field in msgspec.structs.fields(whole)}
    for field in msgspec.structs.fields(read):
        assert types[field.name] == (list[Member] if field.name == "members" else field.type)


def test_the_record_is_documented():
    rows = tables(section(page("run-directory.md"), "Removing old runs"), "name")
    assert [bare(row["name"]) for row in rows] == fields(pruning.Pruning)
    assert re.findall(r"`(\w+)`", rows[-1]["meaning"]) == fields(pruning.Fate)
    assert set(re.findall(r"`([\w ]+)`", section(page("run-directory.md"), "Removing old runs"))) >= set(Action)


# Whatever lies there

RUNS = st.lists(st.tuples(st.sampled_from(["a", "b-c"]), st.sampled_from([PASS, PASS, PASS, *FAILURES, None])))


@settings(max_examples=40, deadline=None)
@given(RUNS, st.lists(st.lists(st.sampled_from([PASS, 1]), min_size=1, max_size=3)), st.integers(0, 3))
def test_nothing_that_failed_is_removed_and_of_each_name_the_newest_that_passed_remain(runs, suites, keep):
    with tempfile.TemporaryDirectory() as folder:
        out = Out(Path(folder))
        made = [(out.run(name, code), name, code) for name, code in runs]
        made += [(out.suite(*codes)[0], "kill-every-phase", max(codes)) for codes in suites]
        prune(out.folder, keep)
        assert all(path.exists() for path, _, code in made if code != PASS)
        passed = [(path, name) for path, name, code in made if code == PASS]
        all_of, left = Counter(n for _, n in passed), Counter(n for path, n in passed if path.exists())
        assert left == Counter({name: n for name, count in all_of.items() if (n := min(keep, count))})
        for name in left:
            there = [path.exists() for path, other in passed if other == name]
            assert there == sorted(there)  # the older ones are those that went
        assert not [path for path in out.left() if path.startswith(".")]
