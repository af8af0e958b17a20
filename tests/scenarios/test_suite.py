"""Suites: members in order, one control run for one workload, the worst exit code, and a record after each member."""

from __future__ import annotations

import io
import json
from pathlib import Path

import click
import pytest
from rich.console import Console

from chaos.exits import ExitCode, UsageError
from chaos.history import HistoryWriter
from metrics.summary import RecoveryRecord, Summary, TimeRecord
from scenarios import suite
from scenarios.request import Options, resolve
from scenarios.scenario import Scenario, find

NAMES = ("kill-worker", "kill-rank-zero", "segfault")
PASS, FAIL, UNKNOWN = ExitCode.PASS, ExitCode.FAIL, ExitCode.UNKNOWN
VERDICTS = {PASS: "pass", FAIL: "fail", ExitCode.NOT_HEALED: "fail"}


def recovery(seconds=9.0, lost=4, missing=""):
    return RecoveryRecord(
        injection="kill-0", fault="kill", rank=1, step=25, phase="step", total_s=seconds, phases=[], missing=missing,
        step_before=25, resume_step=20, lost_steps=lost, lost_samples=8,
    )  # fmt: skip


RECOVERED = (recovery(),)


def summary(scenario: str, code: ExitCode = PASS, recoveries=RECOVERED) -> Summary:
    return Summary(
        schema=1, run="r", scenario=scenario, title="t", verdict=VERDICTS.get(code, "unknown"), exit_code=int(code),
        reason=f"because of {code.name}", seed=0, workers=2, steps=40, expect="", restarts=1, injections=[],
        recoveries=list(recoveries), checks=[], repeat="c", known_issue="", versions={},
        time=TimeRecord(wall_s=60.0, cluster_start_s=1.0, workload_s=50.0, control_s=5.0, harness_s=4.0),
    )  # fmt: skip


class Runner:
    """Stands for executing and judging: makes the directories that a run would make, and answers with these codes."""

    def __init__(self, *codes: ExitCode, finished: bool = True, control_code: int = 0) -> None:
        self.control_code = control_code
        self.codes = iter(codes)
        self.finished = finished
        self.requests = []
        self.stored = []

    def __call__(self, request):
        out = request.options.out
        self.requests.append(request)
        self.stored.append(json.loads((out / "suite.json").read_text()) if (out / "suite.json").exists() else None)
        directory = out / f"run-{len(self.requests)}"
        directory.mkdir()
        if request.control and self.finished:
            writer = HistoryWriter(directory / "control")
            writer.emit("workload.exit", data={"code": self.control_code})
            writer.close()
        return summary(request.scenario.name, next(self.codes, PASS)), directory


@pytest.fixture
def run(place):
    """Run a suite of these scenarios with a runner; returns its record."""

    def go(runner, *names, **options):
        requests = [resolve(find(name), Options(out=place, **options)) for name in names or NAMES]
        (place / "suite").mkdir(exist_ok=True)
        return suite.SuiteRun("made-up", requests, runner, place / "suite").run()

    return go


def stored(place):
    return json.loads((place / "suite" / "suite.json").read_text())


# The order of things


def test_the_members_run_in_order_each_below_the_suites_directory(run, place):
    runner = Runner()
    record = run(runner)
    assert [request.scenario.name for request in runner.requests] == list(NAMES)
    assert {request.options.out for request in runner.requests} == {place / "suite"}
    assert [member.scenario for member in record.members] == list(NAMES)
    assert [member.directory for member in record.members] == ["run-1", "run-2", "run-3"]


def test_the_record_is_stored_after_each_member_and_incomplete_until_the_last(run, place):
    runner = Runner()
    run(runner)
    assert runner.stored[0] is None
    assert [len(found["members"]) for found in runner.stored[1:]] == [1, 2]
    assert [found["exit_code"] for found in runner.stored[1:]] == [UNKNOWN, UNKNOWN]
    assert (len(stored(place)["members"]), stored(place)["exit_code"], stored(place)["asked"]) == (3, PASS, 3)


def test_what_is_stored_is_what_is_returned(run, place):
    record = run(Runner(PASS, FAIL))
    assert stored(place) == json.loads(
        json.dumps({f: getattr(record, f) for f in record.__struct_fields__}, default=_as)
    )
    assert stored(place)["schema"] == suite.SCHEMA


def _as(member):
    return {field: getattr(member, field) for field in member.__struct_fields__}


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
def test_an_interruption_ends_the_suite(run, place, before):
    runner = Runner(*before, ExitCode.ABORTED)
    assert run(runner).exit_code == ExitCode.ABORTED
    assert len(runner.requests) == len(before) + 1
    assert (len(stored(place)["members"]), stored(place)["asked"]) == (len(before) + 1, 3)


@pytest.mark.parametrize("done", range(3))
def test_an_incomplete_suite_is_never_0(run, place, done):
    def dies(request):
        if len(runner.requests) == done:
            raise RuntimeError("the harness died")
        return runner(request)

    runner = Runner()
    with pytest.raises(RuntimeError):
        run(dies)
    assert not done or stored(place)["exit_code"] == UNKNOWN


# One control run for one workload


def controls(runner):
    return [request.control_from and request.control_from.name for request in runner.requests]


def test_members_with_the_same_workload_share_the_first_ones_control_run(run):
    runner = Runner()
    run(runner)
    assert controls(runner) == [None, "run-1", "run-1"]


def test_members_with_another_workload_have_their_own(run):
    runner = Runner()
    run(runner, "kill-worker", "hang-frozen", "kill-rank-zero", "hang-gil", "kill-two-at-once")
    assert controls(runner) == [None, None, "run-1", "run-2", None]


def test_where_the_first_one_made_no_control_run_the_next_one_does(run):
    runner = Runner(finished=False)
    run(runner)
    assert controls(runner) == [None, None, None]


def test_a_control_run_that_ended_badly_is_not_shared(run):
    runner = Runner(control_code=1)
    run(runner)
    assert controls(runner) == [None, None, None]


def test_without_control_runs_there_is_nothing_to_share(run):
    runner = Runner()
    run(runner, control=False)
    assert controls(runner) == [None, None, None]


# Its lines


def test_a_member_tells_the_worst_of_its_whole_recoveries():
    told = suite.member(
        summary("s", PASS, [recovery(3.0, 2), recovery(8.0, 1), recovery(99.0, 50, "restore")]), Path("d")
    )
    assert (told.recovery_s, told.lost_steps) == (8.0, 2)
    assert (told.scenario, told.verdict, told.restarts, told.wall_s) == ("s", "pass", 1, 60.0)


def test_a_member_that_did_not_recover_tells_no_time():
    told = suite.member(summary("s", FAIL, [recovery(missing="detect")]), Path("d"))
    assert (told.recovery_s, told.lost_steps, told.verdict) == (None, None, "fail")


def test_the_table_has_a_row_for_each_member_and_says_why_one_did_not_pass(run, place):
    record = run(Runner(PASS, FAIL, UNKNOWN))
    screen = io.StringIO()
    suite.show(record, place / "suite", Console(file=screen, width=100))
    lines = screen.getvalue().splitlines()
    rows = {line.split()[0]: line for line in lines}
    assert all(name in rows for name in NAMES)
    assert "pass" in rows["kill-worker"]
    assert "because" not in rows["kill-worker"]
    assert "fail" in rows["kill-rank-zero"]
    assert "FAIL" in screen.getvalue()
    assert lines[-1] == f"1 of 3 passed; exit code 1; {Path('suite', 'suite.json')}"
    assert max(map(len, lines)) <= 100


# The command


@pytest.fixture
def fake_runs(monkeypatch):
    """The command runs nothing: members end with the codes of this runner."""

    def install(*codes):
        runner = Runner(*codes)
        monkeypatch.setattr("scenarios.cli._run_one", lambda request, as_json, quiet: runner(request))
        return runner

    monkeypatch.setattr("chaos.workload.check_own_chaos", lambda: None)
    return install


def test_the_command_exits_with_the_suites_code_and_shows_its_table(command, fake_runs, place):
    runner = fake_runs(PASS, FAIL)
    result = command("run", "kill-every-phase", "--out", "out")
    members = find("kill-every-phase").members
    assert [request.scenario.name for request in runner.requests] == list(members)
    assert result.exit_code == FAIL
    assert f"{len(members) - 1} of {len(members)} passed; exit code 1" in result.stdout
    (directory,) = (place / "out").iterdir()
    assert "-kill-every-phase-" in directory.name
    assert len(json.loads((directory / "suite.json").read_text())["members"]) == len(members)


def test_the_command_prints_the_record_as_json(command, fake_runs, place):
    fake_runs()
    result = command("run", "kill-every-phase", "--json")
    (file,) = place.glob("runs/*/suite.json")
    assert (result.exit_code, json.loads(result.stdout)) == (PASS, json.loads(file.read_text()))


def test_options_hold_for_every_member(command, fake_runs):
    runner = fake_runs()
    command("run", "kill-every-phase", "--seed", "5", "--no-control", "--expect", "recovers(within=7)")
    assert {(r.options.seed, r.control) for r in runner.requests} == {(5, False)}
    assert all("recovers(within=7)" in str(r.expects) for r in runner.requests)


def test_a_member_that_could_not_be_stored_ends_the_suite_with_its_code(command, monkeypatch, fake_runs):
    fake_runs()
    monkeypatch.setattr("scenarios.cli._run_one", lambda request, as_json, quiet: ExitCode.ABORTED)
    assert command("run", "kill-every-phase").exit_code == ExitCode.ABORTED


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
    def leaves(request):
        raise click.exceptions.Exit(5)

    with pytest.raises(click.exceptions.Exit):
        run(leaves)
