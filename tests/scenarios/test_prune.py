"""Pruning: what goes and what stays, on directories that look like runs; each rule both ways."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.exits import ExitCode, UsageError
from chaos.history import HistoryWriter
from chaos.process import current
from metrics.summary import Summary
from metrics.verdict import Record
from scenarios import prune as pruning
from scenarios.cli import cli
from scenarios.prune import Action, prune, size_of, survey, unit_of
from scenarios.suite import Member, SuiteRecord
from tests.docs.pages import bare, page, section, tables

NOBODY = {"pid": 2**22 + 1, "start": 1}
OPEN = {"entry": 0, "kind": "processes"}
DONE = {"done": 0}
MIB = 2**20
PASS = int(ExitCode.PASS)
FAILURES = [int(code) for code in ExitCode if code is not ExitCode.PASS]


def record(scenario, run):
    return Record(
        schema=2, run=run, scenario=scenario, title="t", command="c", seed=0, workers=2, steps=40, checkpoint_every=10,
        keep=2, max_failures=3, poll_s=0.5, control=True, expect="", timeouts={}, injections=[], settings={},
        versions={},
    )  # fmt: skip


def ledger(folder, *lines, owner=NOBODY):
    head = {"schema": 1, "run": "r", "owner": owner, "opened": 0.0, "ttl_s": 1.0}
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))


class Out:
    """A directory with things that look like runs; each new one is an hour newer than the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.made = 0

    def name(self, scenario: str) -> str:
        self.made += 1
        return f"202611{1 + self.made // 24:02}-{self.made % 24:02}0000-{scenario}-{self.made:08x}"

    def run(self, scenario="kill-worker", code: int | None = PASS, *, below=None, entries=(OPEN, DONE), owner=NOBODY):
        """A run that ended with that code; None for one without a verdict."""
        folder = (below or self.folder) / self.name(scenario)
        folder.mkdir()
        (folder / "scenario.json").write_bytes(msgspec.json.encode(record(scenario, folder.name[-8:])))
        ledger(folder, *entries, owner=owner)
        (folder / "history.jsonl").touch()
        if code is not None:
            (folder / "verdict.json").write_text(json.dumps({"exit_code": code, "verdict": "-"}))
        return folder

    def suite(self, *codes: int, name="kill-every-phase", asked=0, code=None):
        """A suite whose members ended with these codes; ``code``: its own, by default the greatest of theirs."""
        folder = self.folder / self.name(name)
        folder.mkdir()
        members = [self.run(f"member-{i}", code, below=folder) for i, code in enumerate(codes)]
        self.record_suite(folder, members, name, asked or len(codes), max(codes) if code is None else code)
        return folder, members

    def record_suite(self, folder, members, name, asked, code):
        found = {"suite": name, "exit_code": code, "asked": ["s"] * asked}
        (folder / "suite.json").write_text(json.dumps({**found, "members": [{"directory": m.name} for m in members]}))

    def left(self):
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def out(place):
    return Out(place / "runs")


def names(*folders):
    return sorted(folder.name for folder in folders)


def reason_for(done, folder):
    return next((fate.action, fate.reason) for fate in done.directories if fate.directory == folder.name)


# The newest stay


def test_of_each_name_the_newest_that_passed_stay(out):
    first, second, third = out.run(), out.run(), out.run()
    other, suite = out.run("segfault"), out.suite(PASS, PASS)[0]
    done = prune(out.folder, 2)
    assert out.left() == names(second, third, other, suite)
    assert reason_for(done, first) == (Action.REMOVED, "passed, older than the newest 2")
    assert reason_for(done, second) == (Action.KEPT, "passed, among the newest 2")


def test_with_none_to_keep_all_that_passed_go(out):
    out.run(), out.run("segfault"), out.suite(PASS)
    assert {fate.reason for fate in prune(out.folder, 0).directories} == {"passed"}
    assert out.left() == []


def test_the_age_is_the_one_in_the_name_whatever_the_files_say(out):
    old, new = out.run(), out.run()
    os.utime(old, (2e9, 2e9))
    os.utime(new, (1e9, 1e9))
    prune(out.folder, 1)
    assert out.left() == names(new)


def test_what_is_kept_in_any_case_takes_no_place_of_those_that_passed(out):
    passed, failed = out.run(), out.run(code=1)
    prune(out.folder, 1)
    assert out.left() == names(passed, failed)


# What did not pass stays


@pytest.mark.parametrize("code", FAILURES)
def test_a_run_that_did_not_pass_stays(out, code):
    failed = out.run(code=code)
    assert reason_for(prune(out.folder, 0), failed) == (Action.KEPT, f"did not pass: exit code {code}")
    assert out.left() == names(failed)


def test_a_run_without_a_verdict_stays(out):
    cut = out.run(code=None)
    assert reason_for(prune(out.folder, 0), cut) == (Action.KEPT, "no verdict.json: interrupted, or never judged")


@pytest.mark.parametrize("text", ["", "{", "{}", "[0]", '{"exit_code": "0"}', '{"exit_code": null}', "\xff\0"])
def test_a_run_whose_verdict_cannot_be_read_stays(out, text):
    damaged = out.run()
    (damaged / "verdict.json").write_text(text)
    assert reason_for(prune(out.folder, 0), damaged) == (Action.KEPT, "its verdict.json cannot be read")


# What is in place stays


def test_a_run_whose_harness_lives_stays_and_goes_when_it_has_died(out):
    me = current()
    run = out.run(owner={"pid": me.pid, "start": me.start})
    assert reason_for(prune(out.folder, 0), run) == (Action.KEPT, "running")
    ledger(run, OPEN, DONE, owner={"pid": me.pid, "start": me.start + 1})  # another life of the same pid
    assert reason_for(prune(out.folder, 0), run) == (Action.REMOVED, "passed")


def test_a_run_that_is_not_healed_stays_and_goes_when_it_is(out):
    run = out.run(entries=(OPEN,))
    assert reason_for(prune(out.folder, 0), run) == (Action.KEPT, "not healed: run `aftershock heal` first")
    ledger(run, OPEN, DONE)
    prune(out.folder, 0)
    assert out.left() == []


@pytest.mark.parametrize("text", [None, "", "{}\n", '{"schema": 1}\n', '{"schema": 1, "run": "r", "owner": 3}\n'])
def test_a_run_whose_ledger_cannot_be_read_stays(out, text):
    run = out.run()
    (run / "ledger.jsonl").unlink()
    if text is not None:
        (run / "ledger.jsonl").write_text(text)
    assert reason_for(prune(out.folder, 0), run)[1] == "its ledger.jsonl cannot be read, so it may not be healed"


# Suites


def test_a_suite_goes_as_a_whole(out):
    out.suite(PASS, PASS)
    done = prune(out.folder, 0)
    assert (out.left(), len(done.directories)) == ([], 1)


def test_a_suite_that_did_not_pass_stays_as_a_whole(out):
    suite, members = out.suite(PASS, 1, PASS)
    assert reason_for(prune(out.folder, 0), suite) == (Action.KEPT, "did not pass: exit code 1")
    assert [member.exists() for member in members] == [True] * 3


def test_an_unfinished_suite_stays(out):
    suite, _ = out.suite(PASS, asked=3)
    assert reason_for(prune(out.folder, 0), suite) == (Action.KEPT, "unfinished: 1 of 3 members ran")


def test_a_suite_whose_record_cannot_be_read_stays(out):
    suite, _ = out.suite(PASS)
    (suite / "suite.json").write_text("{")
    assert reason_for(prune(out.folder, 0), suite) == (Action.KEPT, "its suite.json cannot be read")


@pytest.mark.parametrize(("code", "action"), [(1, Action.KEPT), (PASS, Action.REMOVED)])
def test_a_suite_stays_when_a_member_has_been_judged_anew_and_fails(out, code, action):
    suite, members = out.suite(PASS, PASS)
    (members[1] / "verdict.json").write_text(json.dumps({"exit_code": code}))
    told = reason_for(prune(out.folder, 0), suite)
    assert told == (action, f"{members[1].name}: did not pass: exit code 1" if code else "passed")


def test_a_first_try_that_a_resumed_suite_has_repeated_does_not_hold_the_suite(out):
    suite, _ = out.suite(PASS)
    out.run("member-0", code=6, below=suite)
    prune(out.folder, 0)
    assert out.left() == []


@pytest.mark.parametrize("entries", [(OPEN,), (OPEN, DONE)])
def test_a_suite_stays_while_a_member_is_not_healed(out, entries):
    suite, members = out.suite(PASS, PASS)
    ledger(members[0], *entries)
    told = reason_for(prune(out.folder, 0), suite)
    whole = f"{members[0].name}: not healed: run `aftershock heal` first"
    assert told == ((Action.REMOVED, "passed") if DONE in entries else (Action.KEPT, whole))


@pytest.mark.parametrize("lives", [True, False])
def test_a_suite_stays_while_the_owner_of_a_shared_cluster_lives(out, lives):
    suite, members = out.suite(PASS, PASS)
    for member in members:
        (member / "ledger.jsonl").unlink()
    (suite / "cluster-1").mkdir()
    me = current()
    ledger(suite / "cluster-1", OPEN, DONE, owner={"pid": me.pid, "start": me.start} if lives else NOBODY)
    told = reason_for(prune(out.folder, 0), suite)
    assert told == ((Action.KEPT, "cluster-1: running") if lives else (Action.REMOVED, "passed"))


def test_a_suite_without_any_ledger_stays(out):
    suite, members = out.suite(PASS)
    (members[0] / "ledger.jsonl").unlink()
    assert reason_for(prune(out.folder, 0), suite)[1] == "no ledger.jsonl in it, so it may not be healed"


# What serves others stays


def serves(origin, run):
    """The control run of ``origin`` serves ``run``."""
    writer = HistoryWriter(run)
    writer.emit("control.shared", data={"from": str(origin)})
    writer.close()


def test_a_run_whose_control_run_serves_one_that_stays_stays_too_also_by_way_of_others(out):
    first, second, failed, alone = out.run(), out.run(), out.run(code=1), out.run()
    serves(first, second)
    serves(second, failed)
    done = prune(out.folder, 0)
    assert out.left() == names(first, second, failed)
    assert reason_for(done, second) == (Action.KEPT, f"its control run serves {failed.name}")
    assert reason_for(done, first) == (Action.KEPT, f"its control run serves {second.name}")
    assert reason_for(done, alone)[0] == Action.REMOVED


def test_a_run_that_serves_only_what_goes_goes_too(out):
    first, second = out.run(), out.run()
    serves(first, second)
    serves(second, first)  # a circle holds nothing
    prune(out.folder, 0)
    assert out.left() == []


def test_a_suite_whose_member_serves_one_that_stays_stays(out):
    suite, members = out.suite(PASS)
    failed = out.run(code=1)
    serves(members[0], failed)
    assert reason_for(prune(out.folder, 0), suite) == (Action.KEPT, f"its control run serves {failed.name}")


def test_what_serves_is_found_although_all_was_moved(out, place):
    first, failed = out.run(), out.run(code=1)
    serves(place / "elsewhere" / first.name, failed)
    prune(out.folder, 0)
    assert out.left() == names(first, failed)


# What is none of ours is left alone


def test_all_else_is_left_alone_and_counted(out, place):
    (out.folder / "notes.txt").write_text("mine")
    (out.folder / out.name("no-record")).mkdir()
    renamed = out.run().rename(out.folder / "20261101-000000-the-one-for-the-paper-00000001")
    odd = out.run().rename(out.folder / "baseline")
    suite = out.suite(PASS)[0].rename(out.folder / "20261101-000000-my-suite-00000002")
    damaged = out.run()
    (damaged / "scenario.json").write_text("{}")
    before = out.left()
    done = prune(out.folder, 0)
    assert (out.left(), done.others, done.directories) == (before, 6, [])
    assert {renamed.name, odd.name, suite.name, damaged.name} <= set(before)


def test_links_are_neither_followed_nor_removed(out, place):
    elsewhere = Out(place / "elsewhere")
    run, (suite, _) = elsewhere.run(), elsewhere.suite(PASS)
    for target in (run, suite):
        (out.folder / target.name).symlink_to(target)
    (out.folder / ".pruning-00000000").symlink_to(elsewhere.folder)
    before = out.left()
    done = prune(out.folder, 0)
    assert (out.left(), done.others, done.directories) == (before, 3, [])
    assert elsewhere.left() == names(run, suite)


def test_a_link_inside_a_run_goes_without_what_it_points_to(out, place):
    precious = place / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (out.run() / "storage").symlink_to(precious)
    prune(out.folder, 0)
    assert (out.left(), (precious / "file").read_text()) == ([], "x")


def test_a_member_of_a_suite_that_is_a_link_is_not_looked_into(out):
    suite, members = out.suite(PASS)
    failed = out.run(code=1)
    (suite / failed.name).symlink_to(failed)
    unit = unit_of(suite)
    assert unit is not None
    assert (unit.runs, unit.guard) == (tuple(members), "")


def test_a_run_or_a_suite_itself_is_no_place_for_runs(out):
    run, (suite, _) = out.run(), out.suite(PASS)
    for folder, file in ((run, "scenario.json"), (suite, "suite.json")):
        with pytest.raises(UsageError, match=f"it holds a {file}, so it is one run or suite; name the directory above"):
            survey(folder)


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
