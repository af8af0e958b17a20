"""Suites: members on shared clusters, one control run for one workload, the worst exit code, a record after each."""

from __future__ import annotations

import itertools
import json
import signal
from types import SimpleNamespace

import click
import msgspec
import pytest

from chaos.exits import ExitCode, UsageError
from chaos.history import HistoryWriter
from chaos.watch import Interrupted
from scenarios import suite
from scenarios.learning import Unfit
from scenarios.scenario import Scenario, find
from scenarios.suite import Spent
from scenarios.testbed import StillStanding
from tests.scenarios.members import ABORTED, FAIL, NAMES, PASS, UNKNOWN, Runner, junit, summary

MIXED = ("kill-worker", "hang-frozen", "kill-rank-zero", "hang-gil", "kill-two-at-once")
"""Three clusters: of two nodes, of two with the time-outs of the hangs, of three."""


def stored(place):
    return json.loads((place / "suite" / "suite.json").read_text())


# The order of things


def test_the_members_run_in_order_each_below_the_suites_directory(run, place):
    runner = Runner()
    record = run(runner)
    assert runner.names == list(NAMES)
    assert {request.options.out for request in runner.requests} == {place / "suite"}
    assert [member.scenario for member in record.members] == list(NAMES)
    assert [member.directory for member in record.members] == ["run-1", "run-2", "run-3"]


def test_members_of_one_cluster_run_together_and_are_recorded_in_the_order_asked(run, place):
    runner = Runner()
    record = run(runner, *MIXED)
    assert runner.names == ["kill-worker", "kill-rank-zero", "hang-frozen", "hang-gil", "kill-two-at-once"]
    assert record.asked == [member.scenario for member in record.members] == list(MIXED)
    assert record.clusters == 3
    assert sorted(path.name for path in place.glob("suite/cluster-*")) == ["cluster-1", "cluster-2", "cluster-3"]


def test_a_cluster_key_that_changes_at_each_look_is_asked_for_once(run, monkeypatch):
    """As that of oom-worker, whose nodes have a threshold that goes by the free memory."""
    free = itertools.count(20, 3)
    memory = lambda: SimpleNamespace(total=64 << 30, available=next(free) << 30)  # noqa: E731
    monkeypatch.setattr("psutil.virtual_memory", memory)
    runner = Runner()
    record = run(runner, "kill-worker", "oom-worker", "segfault")
    assert runner.names == ["kill-worker", "segfault", "oom-worker"]
    assert (record.clusters, record.exit_code) == (2, PASS)


def test_the_record_is_stored_before_the_first_member_and_after_each(run, place):
    runner = Runner()
    run(runner)
    assert [len(found["members"]) for found in runner.stored] == [0, 1, 2]
    assert {found["exit_code"] for found in runner.stored} == {UNKNOWN}
    found = stored(place)
    assert (len(found["members"]), found["exit_code"], found["asked"]) == (3, PASS, list(NAMES))
    assert sorted(path.name for path in place.glob("suite/.*")) == []


def test_what_is_stored_is_what_is_returned(run, place):
    record = run(Runner(PASS, FAIL))
    assert stored(place) == msgspec.to_builtins(record)
    assert (record.schema, record.suite, record.options) == (suite.SCHEMA, "made-up", {"seed": 0})


# The exit code


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ((PASS, PASS, PASS), PASS),
        ((PASS, UNKNOWN, PASS), UNKNOWN),
        ((UNKNOWN, FAIL, PASS), FAIL),
        ((FAIL, ExitCode.NOT_STEADY, UNKNOWN), ExitCode.NOT_STEADY),
        ((ExitCode.NOT_INJECTED, FAIL, PASS), ExitCode.NOT_INJECTED),
        ((PASS, ExitCode.BUG, ExitCode.NOT_INJECTED), ExitCode.BUG),
        ((FAIL, ExitCode.BUG, ExitCode.NOT_HEALED), ExitCode.NOT_HEALED),
    ],
    ids=str,
)
def test_the_worst_member_decides_and_the_others_run_all_the_same(run, place, codes, worst):
    runner = Runner(*codes)
    assert run(runner).exit_code == worst
    assert len(runner.requests) == len(codes)
    assert [m["exit_code"] for m in stored(place)["members"]] == list(codes)


@pytest.mark.parametrize("before", [(), (PASS,), (PASS, FAIL)], ids=str)
def test_an_interruption_inside_a_member_ends_the_suite(run, place, before):
    runner = Runner(*before, ABORTED)
    assert run(runner).exit_code == ABORTED
    assert len(runner.requests) == len(before) + 1
    assert (len(stored(place)["members"]), stored(place)["asked"]) == (len(before) + 1, list(NAMES))


@pytest.mark.parametrize("error", [Interrupted("SIGTERM"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("before", [(), (PASS,), (PASS, FAIL)], ids=str)
def test_an_interruption_between_members_or_in_the_judging_is_recorded_and_ends_the_clusters(run, place, error, before):
    runner = Runner(*before, error)
    assert run(runner).exit_code == ABORTED
    assert [m["exit_code"] for m in stored(place)["members"]] == list(before)
    assert {bed.key for bed in runner.beds} == {""}  # ended


def test_an_interruption_of_a_member_that_could_not_be_healed_ends_the_suite_too(run, place):
    class Unhealed(Runner):
        def __call__(self, request, pool=None):
            found, directory = super().__call__(request, pool)
            writer = HistoryWriter(directory)
            writer.emit("run.aborted", data={"reason": "SIGINT"})
            writer.close()
            return found, directory

    runner = Unhealed(ExitCode.NOT_HEALED)
    assert run(runner).exit_code == ExitCode.NOT_HEALED
    assert len(runner.requests) == len(stored(place)["members"]) == 1


def test_from_the_first_member_on_a_signal_is_an_interruption_and_at_the_end_it_is_not(run):
    handlers = []

    def runner(request, pool):
        handlers.append(signal.getsignal(signal.SIGTERM))
        return summary(request.scenario.name), request.options.out

    run(runner)
    assert all(callable(handler) for handler in handlers)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with pytest.raises(Interrupted, match="SIGTERM"):
        handlers[0](signal.SIGTERM, None)


@pytest.mark.parametrize("done", range(3))
def test_an_incomplete_suite_is_never_0(run, place, done):
    with pytest.raises(RuntimeError):
        run(Runner(*[PASS] * done, RuntimeError("the harness died")))
    assert (len(stored(place)["members"]), stored(place)["exit_code"]) == (done, UNKNOWN)


def test_a_mistake_that_shows_in_a_member_only_ends_the_suite(run):
    runner = Runner(PASS, UsageError("--out: 3 MiB are free there"))
    record = run(runner)
    assert (record.exit_code, len(runner.requests)) == (ABORTED, 2)
    assert (record.members[1].verdict, record.members[1].reason) == ("unknown", "--out: 3 MiB are free there")


def test_where_the_cluster_before_still_stands_the_member_is_not_healed_and_the_others_run(run):
    runner = Runner(PASS, StillStanding("processes 1: still alive after SIGKILL: 7"), PASS)
    record = run(runner)
    assert [member.exit_code for member in record.members] == [PASS, ExitCode.NOT_HEALED, PASS]
    assert record.members[1].reason == "processes 1: still alive after SIGKILL: 7"
    assert record.exit_code == ExitCode.NOT_HEALED


class Stubborn(Runner):
    """The cluster of the last member cannot be ended."""

    def serve(self, bed):
        super().serve(bed)
        bed.ledger.intend("directory", path="/")


def test_what_is_left_of_the_last_cluster_is_told_and_decides(run, place):
    record = run(Stubborn(FAIL), "kill-worker")
    (left,) = record.left
    assert left.startswith("directory 0: / is not in ")
    assert (record.exit_code, stored(place)["left"]) == (ExitCode.NOT_HEALED, [left])


# Members that this machine does not permit


def test_a_skipped_member_is_told_and_does_not_count(run, place):
    runner = Runner(PASS, FAIL)
    record = run(runner, skipped={"kill-rank-zero": "memory: 2 GiB; 6 are needed"})
    assert runner.names == ["kill-worker", "segfault"]
    member = record.members[1]
    assert (member.verdict, member.exit_code, member.directory) == ("skipped", PASS, "")
    assert member.reason == "memory: 2 GiB; 6 are needed"
    assert record.exit_code == FAIL
    assert junit(place)["kill-rank-zero"] == ["skipped"]


def test_a_suite_passes_when_all_that_were_not_skipped_pass(run):
    assert run(Runner(), skipped={"kill-rank-zero": "no"}).exit_code == PASS


def test_a_suite_of_skipped_members_alone_is_not_green(run):
    runner = Runner()
    assert run(runner, skipped=dict.fromkeys(NAMES, "no")).exit_code == UNKNOWN
    assert runner.requests == []


def test_a_member_for_which_the_script_is_unfit_is_skipped_with_the_reason(run):
    def runner(request, pool):
        if request.scenario.name == "kill-rank-zero":
            raise Unfit("it has one rank")
        return Runner()(request, pool)

    record = run(runner)
    assert [m.verdict for m in record.members] == ["pass", "skipped", "pass"]
    assert (record.members[1].reason, record.exit_code) == ("it has one rank", PASS)


# What is shared


def test_members_with_the_same_workload_share_the_first_ones_control_run(run):
    runner = Runner()
    record = run(runner)
    assert runner.controls == [None, "run-1", "run-1"]
    assert list(record.controls.values()) == ["run-1"]


def test_members_share_a_control_run_whatever_their_time_outs_but_not_another_workloads(run):
    runner = Runner()
    record = run(runner, *MIXED)
    assert runner.controls == [None, "run-1", "run-1", "run-1", None]
    assert sorted(record.controls.values()) == ["run-1", "run-5"]


def test_where_the_first_one_made_no_control_run_the_next_one_does(run):
    runner = Runner(finished=False)
    run(runner)
    assert runner.controls == [None, None, None]


def test_a_control_run_that_ended_badly_is_not_shared(run):
    runner = Runner(control_code=1)
    assert run(runner).controls == {}
    assert runner.controls == [None, None, None]


def test_without_control_runs_there_is_nothing_to_share(run):
    runner = Runner()
    run(runner, control=False)
    assert runner.controls == [None, None, None]


def test_all_members_are_given_the_same_pool(run):
    runner = Runner()
    record = run(runner)
    assert len({id(pool) for pool in runner.pools}) == 1
    assert (record.clusters, runner.pools[0].starts) == (1, 1)


def test_without_sharing_each_member_has_a_cluster_and_a_control_run_of_its_own(run, place):
    runner = Runner()
    record = run(runner, share=False)
    assert (runner.pools, runner.controls) == ([None] * 3, [None] * 3)
    assert (record.controls, record.clusters) == ({}, 0)
    assert list(place.glob("suite/cluster-*")) == []


# The command


def test_the_command_exits_with_the_suites_code_and_shows_its_table(command, fake_runs, place):
    runner = fake_runs(PASS, FAIL)
    result = command("run", "kill-every-phase", "--out", "out")
    members = find("kill-every-phase").members
    assert sorted(runner.names) == sorted(members)
    assert result.exit_code == FAIL
    assert f"{len(members) - 1} of {len(members)} passed; exit code 1" in result.stdout
    (directory,) = (place / "out").iterdir()
    assert "-kill-every-phase-" in directory.name
    found = json.loads((directory / "suite.json").read_text())
    assert [member["scenario"] for member in found["members"]] == list(members)


def test_the_command_prints_the_record_as_json_with_the_time_of_all(command, fake_runs, place):
    fake_runs()
    result = command("run", "kill-every-phase", "--json")
    (file,) = place.glob("runs/*/suite.json")
    told = json.loads(result.stdout)
    spent = told.pop("spent")
    assert (result.exit_code, told) == (PASS, json.loads(file.read_text()))
    assert list(spent) == list(Spent.__struct_fields__)
    assert spent["workload_s"] == 9 * 50.0


def test_options_hold_for_every_member(command, fake_runs):
    runner = fake_runs()
    command("run", "kill-every-phase", "--seed", "5", "--no-control", "--expect", "recovers(within=7)")
    assert {(r.options.seed, r.control) for r in runner.requests} == {(5, False)}
    assert all("recovers(within=7)" in str(r.expects) for r in runner.requests)
    assert {request.asked for request in runner.requests} == {("kill-every-phase",)}


def test_several_names_make_a_selection(command, fake_runs, place):
    runner = fake_runs()
    result = command("run", "segfault", "kill-worker", "segfault")
    assert (result.exit_code, runner.names) == (PASS, ["segfault", "kill-worker"])
    (file,) = place.glob("runs/*-selection-*/suite.json")
    record = json.loads(file.read_text())
    assert (record["suite"], record["asked"]) == ("selection", ["segfault", "kill-worker"])


def test_no_share_is_heeded_and_recorded(command, fake_runs, place):
    runner = fake_runs()
    command("run", "segfault", "kill-worker", "--no-share")
    assert runner.pools == [None, None]
    (file,) = place.glob("runs/*/suite.json")
    assert json.loads(file.read_text())["options"]["share"] is False


def test_what_this_machine_does_not_permit_is_skipped_in_a_suite(command, fake_runs, monkeypatch):
    memory = SimpleNamespace(total=64 << 30, available=8 << 30)
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    runner = fake_runs()
    result = command("run", "kill-worker", "oom-worker")
    assert (result.exit_code, runner.names) == (PASS, ["kill-worker"])
    assert "1 of 2 passed, 1 skipped; exit code 0" in result.stdout
    assert command("run", "oom-worker", "oom-worker").exit_code == UNKNOWN
    assert runner.names == ["kill-worker"]


def test_a_member_that_could_not_be_stored_ends_the_suite_with_its_code(command, monkeypatch, fake_runs):
    fake_runs()
    monkeypatch.setattr("scenarios.cli._run_one", lambda request, as_json, quiet, pool=None: ABORTED)
    result = command("run", "kill-every-phase")
    assert result.exit_code == ABORTED
    assert "9 not run to the end" in result.stdout


def test_a_mistake_in_one_member_starts_none(command, fake_runs, place):
    runner = fake_runs()
    assert command("run", "kill-every-phase", "--set", "max_failures=0").exit_code == ExitCode.USAGE
    assert (runner.requests, list(place.iterdir())) == ([], [])


def test_where_no_directory_can_be_made_is_a_mistake(place):
    (place / "file").touch()
    with pytest.raises(UsageError, match="name a directory that can be written"):
        suite.make_directory(place / "file", "made-up")


def test_two_suites_in_the_same_second_have_directories_of_their_own(place):
    assert suite.make_directory(place, "one") != suite.make_directory(place, "one")


def test_a_suite_lists_scenarios_only():
    assert all(isinstance(find(name), Scenario) for name in find("kill-every-phase").members)


def test_an_exit_of_click_passes_through(run):
    with pytest.raises(click.exceptions.Exit):
        run(Runner(click.exceptions.Exit(5)))
