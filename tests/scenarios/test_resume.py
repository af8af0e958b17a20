"""Going on with a suite that was interrupted: which one, refused when, and what is kept of it."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.exits import ExitCode, UsageError, worst
from chaos.history import HistoryWriter
from chaos.ledger import Ledger
from chaos.process import Identity
from chaos.watch import Interrupted
from scenarios import suite
from scenarios.request import Options, resolve
from scenarios.scenario import find
from scenarios.suite import SuiteRecord, SuiteRun, to_resume
from tests.scenarios.members import ABORTED, FAIL, NAMES, PASS, UNKNOWN, Runner, summary

OPTIONS = {"seed": 0, "settings": {}, "deadline": None, "share": True}
ID = "0123abcd"


def record(*codes, name="preprod", **changes):
    """An interrupted suite: its members ended with these codes."""
    members = [
        suite.member(summary(s, ExitCode(code)), Path(f"run-{s}")) for s, code in zip(NAMES, codes, strict=False)
    ]
    values = dict(
        schema=suite.SCHEMA, suite=name, exit_code=2, asked=list(NAMES), options=OPTIONS, members=members, controls={},
        clusters=1, left=[], wall_s=100.0,
    )  # fmt: skip
    return SuiteRecord(**{**values, **changes})


@pytest.fixture
def put(place):
    """Store such a suite below ``runs``; each new one is a day newer. Returns its directory."""
    days = iter(range(11, 31))

    def store(found, name="preprod"):
        directory = place / "runs" / f"202611{next(days)}-120000-{name}-{ID}"
        directory.mkdir(parents=True)
        if isinstance(found, SuiteRecord):
            suite.store(found, directory)
        else:
            (directory / "suite.json").write_text(found)
        return directory

    return store


def asked(name="preprod", out=Path("runs"), options=OPTIONS, members=NAMES):
    return to_resume(out, name, options, list(members))


# Which one


def test_the_newest_of_that_name_is_resumed(put):
    put(record(PASS))
    newest = put(record(PASS, FAIL))
    put(record(name="full"), "full")
    put(record(name="preprod-full"), "preprod-full")
    directory, before = asked()
    assert (directory, before) == (newest, record(PASS, FAIL))


@pytest.mark.parametrize("codes", [(), (PASS,), (ABORTED,), (PASS, ABORTED), (FAIL, PASS, ABORTED)], ids=str)
def test_one_is_unfinished_while_a_member_is_missing_or_was_aborted(put, codes):
    directory = put(record(*codes))
    assert asked()[0] == directory


@pytest.mark.parametrize("text", ['{"schema": 1, "asked": 9}', "{", ""])
def test_another_suite_that_cannot_be_read_is_in_nobodys_way(put, text):
    mine = put(record(PASS))
    put(text, "kill-every-phase")
    assert asked()[0] == mine


# Refused when


def refused(**changes):
    with pytest.raises(UsageError) as error:
        asked(**changes)
    said = str(error.value)
    assert said.startswith("--resume: ")
    assert "\n" not in said
    return said


def test_without_one_there_is_nothing_to_resume(put, place):
    told = "--resume: no run of preprod below runs; leave --resume out, or name its --out"
    assert refused() == told
    (place / "runs").mkdir()
    assert refused() == told
    put(record(name="full"), "full")
    assert refused() == told
    (place / "runs" / f"20261129-120000-preprod-{ID}").mkdir()
    assert refused() == told


@pytest.mark.parametrize("codes", [(PASS, PASS, PASS), (FAIL, UNKNOWN, ExitCode.NOT_HEALED)], ids=str)
def test_a_finished_one_is_not_run_again(put, codes):
    put(record(PASS))
    directory = put(record(*codes))
    told = f"--resume: runs/{directory.name}/suite.json is finished; start again without --resume"
    assert refused() == told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 7}, "seed=7 (was 0)"),
        ({"deadline": 60.0}, "deadline=60.0 (was None)"),
        ({"settings": {"steps": "9"}}, "settings={'steps': '9'} (was {})"),
        ({"share": False, "seed": 1}, "seed=1 (was 0), share=False (was True)"),
        ({"novel": 3}, "novel=3 (was None)"),
    ],
)
def test_other_options_are_named_with_what_they_were(put, changes, told):
    put(record(PASS))
    said = refused(options={**OPTIONS, **changes})
    assert f"was run with other options: {told}; resume with the same options, or start again" in said


def test_an_option_that_is_gone_is_named_too(put):
    put(record(PASS, options={**OPTIONS, "old": 1}))
    assert "old=None (was 1)" in refused()


@pytest.mark.parametrize("members", [NAMES[:2], (*NAMES, "hang-gil"), NAMES[::-1]], ids=str)
def test_other_members_are_refused_naming_those_it_was_asked_for(put, members):
    put(record(PASS))
    said = refused(members=members)
    assert "was asked for kill-worker, kill-rank-zero, segfault; resume with the same options, or start" in said


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 1, "suite": "preprod", "asked": 12, "members": []}', "\xff"]
)
def test_one_that_cannot_be_read_is_refused(put, text):
    put(record(PASS))
    directory = put(text)
    said = refused()
    assert said.startswith(f"--resume: runs/{directory.name}/suite.json cannot be read: ")
    assert said.endswith("; start again without --resume")


def test_one_that_still_runs_is_refused_and_resumed_once_its_harness_is_gone(put):
    directory = put(record(PASS))
    folder = directory / "cluster-1"
    folder.mkdir()
    other = Identity.of(os.getppid())
    head = {"schema": 1, "run": "cafe0001", "opened": 0.0, "ttl_s": 1.0}

    def owned_by(pid, start):
        (folder / "ledger.jsonl").write_text(json.dumps({**head, "owner": {"pid": pid, "start": start}}) + "\n")

    owned_by(other.pid, other.start)
    assert f"is still running as process {other.pid}; wait for its end, or end it" in refused()
    owned_by(other.pid, other.start + 1)  # another life of that pid
    assert asked()[0] == directory
    (folder / "ledger.jsonl").write_text("cut sho")
    assert asked()[0] == directory


def test_an_earlier_suite_of_this_very_process_is_not_taken_for_running(put):
    directory = put(record(PASS))
    (directory / "run-1").mkdir()
    Ledger.open(directory / "run-1", "cafe0001")
    assert asked()[0] == directory


# What is kept


@pytest.fixture
def resumed(place):
    """Go on with a suite of these members below ``suite``."""

    def go(runner, before, names=NAMES, **options):
        requests = [resolve(find(name), Options(out=place)) for name in names]
        (place / "suite").mkdir(exist_ok=True)
        return SuiteRun("preprod", requests, runner, place / "suite", OPTIONS, before=before, **options).run()

    return go


def test_finished_members_are_kept_and_aborted_ones_run_again(resumed):
    before = record(PASS, ABORTED)
    runner = Runner(FAIL)
    found = resumed(runner, before)
    assert runner.names == ["kill-rank-zero", "segfault"]
    assert found.members[0] == before.members[0]
    assert [(m.scenario, m.exit_code) for m in found.members] == list(zip(NAMES, (PASS, FAIL, PASS), strict=True))
    assert (found.exit_code, found.asked, found.options) == (FAIL, list(NAMES), OPTIONS)


def test_a_member_that_failed_or_was_skipped_is_not_run_again(resumed):
    before = record(FAIL, PASS)
    skipped = msgspec.structs.replace(before.members[1], verdict="skipped", directory="")
    runner = Runner()
    found = resumed(runner, msgspec.structs.replace(before, members=[before.members[0], skipped]))
    assert (runner.names, found.exit_code) == (["segfault"], FAIL)


def test_the_wall_time_goes_on_and_the_interruption_is_left_out(resumed, monkeypatch):
    clock = {"now": 0.0}
    run = SuiteRun.run

    def starts_at_1000(under_way):
        under_way._began = clock["now"] = 1000.0
        return run(under_way)

    def takes_70(request, pool):
        clock["now"] += 70
        return summary(request.scenario.name), request.options.out

    monkeypatch.setattr(SuiteRun, "run", starts_at_1000)
    monkeypatch.setattr(suite, "time", SimpleNamespace(monotonic=lambda: clock["now"], time=lambda: clock["now"]))
    found = resumed(takes_70, record(PASS, wall_s=100.0))
    assert found.wall_s == 100.0 + 2 * 70.0
    assert found.spent.harness_s == found.wall_s - 3 * 56.0


def test_controls_go_on_serving_and_clusters_are_numbered_on(resumed, place):
    key = resolve(find("kill-worker"), Options()).workload_key
    writer = HistoryWriter(place / "suite" / "run-kill-worker" / "control")
    writer.emit("workload.exit", data={"code": 0})
    writer.close()
    runner = Runner()
    found = resumed(runner, record(PASS, controls={key: "run-kill-worker"}, clusters=3))
    assert runner.controls == ["run-kill-worker"] * 2
    assert runner.requests[0].control_from == place / "suite" / "run-kill-worker"
    assert (found.controls, found.clusters) == ({key: "run-kill-worker"}, 4)
    assert [path.name for path in (place / "suite").glob("cluster-*")] == ["cluster-4"]


def test_a_control_run_that_somebody_has_removed_meanwhile_is_made_anew(resumed):
    key = resolve(find("kill-worker"), Options()).workload_key
    runner = Runner()
    found = resumed(runner, record(PASS, controls={key: "run-kill-worker", "other": "gone"}))
    assert runner.controls == [None, "run-1"]
    assert found.controls == {key: "run-1"}


def test_what_could_not_be_undone_before_is_not_forgotten(resumed):
    found = resumed(Runner(), record(PASS, left=["processes 1: still alive"]))
    assert (found.exit_code, found.left) == (ExitCode.NOT_HEALED, ["processes 1: still alive"])


# Whenever it is interrupted

MIXED = ("kill-worker", "hang-frozen", "kill-rank-zero", "hang-gil", "kill-two-at-once", "long-evaluation")
REQUESTS = [resolve(find(name), Options()) for name in MIXED]
ENDS = [code for code in ExitCode if code not in (ABORTED, ExitCode.USAGE)]


class Breaks(Runner):
    """Members that end with their own codes, interrupted at some of the runs, counted over all resumptions.

    ``breaks``: at which run, and how: ``inside`` a member, in the ``judging`` of it, or ``killed`` with no time left.
    ``whole``: the requests of those that were not.
    """

    def __init__(self, codes, breaks):
        super().__init__()
        self.own, self.breaks, self.whole = codes, breaks, []

    def __call__(self, request, pool=None):
        way = self.breaks.get(len(self.requests), "")
        ends = {"inside": ABORTED, "judging": Interrupted("SIGINT"), "killed": RuntimeError("the harness is gone")}
        own = self.own[request.scenario.name]
        self.codes = [*[None] * len(self.requests), ends.get(way) or own]
        outcome = super().__call__(request, pool)
        self.whole += [] if way else [request]
        return outcome


@settings(max_examples=30, deadline=None)
@given(
    codes=st.lists(st.sampled_from(ENDS), min_size=len(MIXED), max_size=len(MIXED)),
    breaks=st.dictionaries(st.integers(0, 11), st.sampled_from(["inside", "judging", "killed"]), max_size=7),
)
def test_however_often_a_suite_is_interrupted_each_member_runs_once_to_its_end(codes, breaks):
    own = dict(zip(MIXED, codes, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        out, runner = Path(folder), Breaks(own, breaks)
        found, parts = whole(out, runner)
        assert sorted(runner.ended) == sorted(MIXED)
        assert len(runner.requests) == len(MIXED) + sum(at < len(runner.requests) for at in breaks)
        assert [(m.scenario, m.exit_code) for m in found.members] == list(own.items())
        assert found.exit_code == worst(codes) == uninterrupted(own)
        assert len({m.directory for m in found.members}) == len(MIXED)
        assert all(before.wall_s <= after.wall_s for before, after in itertools.pairwise(parts))
        assert found.spent.wall_s == found.wall_s
        shares_as_it_should(found, runner, out)


def whole(out, runner):
    """Start a suite and resume it until it is finished; the record at the end, and after each part."""
    directory, before, parts = suite.make_directory(out, "mixed"), None, []
    while True:
        under_way = SuiteRun("mixed", REQUESTS, runner, directory, OPTIONS, True, before)
        try:
            under_way.run()
        except RuntimeError:
            under_way._pool.close()  # what a killed harness leaves is healed by others
        parts.append(msgspec.json.decode((directory / "suite.json").read_bytes(), type=SuiteRecord))
        try:
            directory, before = to_resume(out, "mixed", OPTIONS, list(MIXED))
        except UsageError as error:
            assert "is finished" in str(error)
            return parts[-1], parts


def uninterrupted(own):
    with tempfile.TemporaryDirectory() as folder:
        return whole(Path(folder), Breaks(own, {}))[0].exit_code


def shares_as_it_should(found, runner, out):
    """Never two control runs of whole members for one workload; each cluster has a ledger of its own."""
    assert all(suite.is_sound_control(r.control_from) for r in runner.requests if r.control_from)
    made = Counter(request.workload_key for request in runner.whole if request.control_from is None)
    assert set(made.values()) <= {1}
    assert set(found.controls) == {request.workload_key for request in REQUESTS}
    folders = sorted(path.name for path in out.glob("*/cluster-*"))
    assert folders == sorted(f"cluster-{number}" for number in range(1, found.clusters + 1))
    heads = [path.read_text().count('"owner"') for path in out.glob("*/cluster-*/ledger.jsonl")]
    assert heads == [1] * found.clusters


# The command


def test_the_command_goes_on_where_it_was_interrupted(command, fake_runs, place):
    first = fake_runs(PASS, FAIL, ABORTED)
    assert command("run", *NAMES, "--seed", "3").exit_code == ABORTED
    second = fake_runs(PASS)
    result = command("run", *NAMES, "--seed", "3", "--resume")
    assert (first.names, second.names) == (list(NAMES), ["segfault"])
    assert result.exit_code == FAIL
    assert "2 of 3 passed; exit code 1" in result.stdout
    assert len(list((place / "runs").iterdir())) == 1
    assert second.requests[0].control_from.name == "run-1"


def test_the_command_refuses_in_one_line_and_starts_nothing(command, fake_runs, place):
    def is_refused(told, *arguments):
        runner = fake_runs()
        result = command("run", *arguments, "--resume")
        assert (result.exit_code, result.stdout, runner.requests) == (ExitCode.USAGE, "", [])
        assert result.stderr.startswith("aftershock: --resume: ")
        assert result.stderr.count("\n") == 1
        assert told in result.stderr

    is_refused("no run of selection below runs", *NAMES)
    is_refused("kill-worker is a single scenario; only a suite can be resumed", "kill-worker")
    assert list(place.iterdir()) == []
    fake_runs(PASS, ABORTED)
    command("run", *NAMES)
    is_refused("seed=4 (was 0)", *NAMES, "--seed", "4")
    is_refused("share=False (was True)", *NAMES, "--no-share")
    is_refused("was asked for kill-worker, kill-rank-zero, segfault", *NAMES[:2])
    is_refused("no run of kill-every-phase below runs", "kill-every-phase")
    is_refused("no run of selection below elsewhere", *NAMES, "--out", "elsewhere")
    fake_runs()
    assert command("run", *NAMES, "--resume").exit_code == PASS
    is_refused("is finished; start again without --resume", *NAMES)
