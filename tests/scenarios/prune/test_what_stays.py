"""Pruning: what goes and what stays, on directories that look like runs; each rule both ways."""

from __future__ import annotations

import json
import os

import pytest

from chaos.exits import UsageError
from chaos.history import HistoryWriter
from chaos.process import current
from scenarios.prune import Action, prune, survey, unit_of
from tests.scenarios.prune.runs import DONE, FAILURES, NOBODY, OPEN, PASS, Out, ledger, names, reason_for

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


# Sweeps


def test_of_sweeps_the_newest_that_passed_stay(out):
    old, new, run = out.sweep(), out.sweep(), out.run()
    done = prune(out.folder, 1)
    assert out.left() == names(new, run)
    assert reason_for(done, old) == (Action.REMOVED, "passed, older than the newest 1")


@pytest.mark.parametrize("code", FAILURES)
def test_a_sweep_that_did_not_pass_stays(out, code):
    failed = out.sweep(code)
    assert reason_for(prune(out.folder, 0), failed) == (Action.KEPT, f"did not pass: exit code {code}")


@pytest.mark.parametrize(("code", "action"), [(1, Action.KEPT), (PASS, Action.REMOVED)])
def test_a_sweep_is_judged_by_its_own_record_whatever_else_lies_there(out, code, action):
    sweep = out.sweep(code)
    (sweep / "verdict.json").write_text(json.dumps({"exit_code": PASS if code else 1}))
    assert reason_for(prune(out.folder, 0), sweep)[0] == action


def test_a_sweep_that_was_never_judged_stays(out):
    cut = out.sweep(None)
    assert reason_for(prune(out.folder, 0), cut) == (Action.KEPT, "no verdict.json: interrupted, or never judged")


@pytest.mark.parametrize("text", ["", "{", "{}", '{"exit_code": null}'])
def test_a_sweep_whose_record_cannot_be_read_stays(out, text):
    damaged = out.sweep()
    (damaged / "sweep.json").write_text(text)
    assert reason_for(prune(out.folder, 0), damaged) == (Action.KEPT, "its sweep.json cannot be read")


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
