"""What a sweep makes of its lives: injections, their order, what is tried again; without a cluster."""

from __future__ import annotations

import dataclasses
import errno
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from chaos.cluster.local import ClusterFailed
from chaos.exits import ExitCode, UsageError
from chaos.faults.base import find_fault
from chaos.history import HistoryWriter
from chaos.ledger import Account
from chaos.strace import Call
from chaos.watch import Interrupted
from metrics.crashes import Fate
from scenarios import sweep as sweeping
from scenarios import sweep_record
from scenarios.cli import STAGES
from scenarios.crashpoints import SNAPSHOT, Point, Recorded
from scenarios.execute import execute
from scenarios.request import Options, resolve
from scenarios.sweep import SCENARIO, Sweep, oldest
from scenarios.sweep_record import CRASHES, Crash
from tests.histories import faulty, healthy
from tests.stories import Hit


def in_rank(rank=0, phase="save", fault="crash-in-call", **values):
    """A point in a rank."""
    return Point(
        stage=phase, who=f"rank {rank}", words="somewhere", rank=rank, phase=phase, fault=fault, values=values
    )  # fmt: skip


def in_controller(stage="snapshot", file=SNAPSHOT, call="write"):
    """A point in the controller."""
    values = {"call": call, "file": file}
    fault = "crash-controller-in-call"
    return Point(
        stage=stage, who="controller", words="somewhere", rank=0, phase="report", fault=fault, values=values, file=file
    )  # fmt: skip


@pytest.fixture
def request_():
    return resolve(SCENARIO, Options())


@pytest.fixture
def swept(request_):
    """A sweep with these crashes ahead."""

    def make(*points, asked=STAGES, why=""):
        made = Sweep(request_, [], asked, why)
        made.crashes = [Crash(point=point) for point in points]
        return made

    return make


@pytest.fixture
def run(place, request_):
    """A run whose cluster is up, as far as a sweep that has fake lives can see."""
    directory = place / "run"
    directory.mkdir()
    writer = HistoryWriter(directory)
    yield SimpleNamespace(directory=directory, writer=writer, request=request_, finished=True, run_id="r", conducts=[])
    writer.close()


@dataclass
class Lives:
    """Stands for the lives of a sweep: what happens in each is a function of it, by its name.

    ``missed``: injections that do not come. ``left``: what a life leaves in the storage, by the life's name; one that
    finds ``torn`` there makes no step. ``cut``: lives in which the sweep is interrupted.
    """

    missed: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)
    left: dict[str, str] = field(default_factory=dict)
    begun: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    found: dict[str, str] = field(default_factory=dict)

    def begin(self, sweep, run, name, injections=(), storage=None):
        """In place of ``Sweep._life``."""
        armed = tuple(injections)
        self.begun.append((name, tuple(injection.id for injection in armed)))
        directory = run.directory / name
        directory.mkdir()

        def live():
            record = storage / "record" if storage else None
            before = record.read_text() if record and record.exists() else ""
            self.found[name] = before
            writer = HistoryWriter(directory)
            if before != "torn":
                where = {"attempt": 0, "rank": 0, "step": 1}
                writer.emit("step.end", **where, data={"loss": 1.0, "lr": 0.1, "samples": []})
                writer.emit("checkpoint.transfer.begin", **where, data={"checkpoint": f"checkpoint-of-{name}"})
                for injection in armed:
                    if injection.id not in self.missed:
                        writer.emit("fault.confirmed", data={"injection": injection.id})
                if record:
                    record.write_text(self.left.get(name, f"by {name}"))
            writer.close()
            if name in self.cut:
                raise Interrupted("SIGINT")
            return True

        return SimpleNamespace(run=live, directory=directory)


@pytest.fixture
def lives(monkeypatch):
    made = Lives()
    monkeypatch.setattr(Sweep, "_life", lambda *arguments, **named: made.begin(*arguments, **named))
    return made


def stored(run):
    return msgspec.json.decode((run.directory / CRASHES).read_bytes(), type=list[Crash])


# What is armed


def test_the_sweep_is_refused_where_no_checkpoint_is_ever_deleted():
    with pytest.raises(UsageError, match="step=12 never comes"):
        resolve(SCENARIO, Options(settings={"steps": "11"}))
    with pytest.raises(UsageError, match="step=40 never comes"):
        resolve(SCENARIO, Options(settings={"checkpoint_every": "8", "keep": "4", "steps": "39"}))
    assert resolve(SCENARIO, Options(settings={"steps": "12"})).shape.steps == 12


def test_a_rank_is_crashed_in_the_second_save_of_the_job_and_then_in_the_first_of_each_attempt(swept):
    made = swept(in_rank(0), in_rank(1, "transfer", call="openat", file="__1_0.distcp"))
    first, second = made._in_rank(0, 0), made._in_rank(1, 1)
    assert (first.id, first.rank, str(first.trigger)) == ("crash-0", 0, "in save at step 8 on attempt 0")
    assert (second.id, second.rank, str(second.trigger)) == ("crash-1", 1, "in transfer on attempt 1")
    assert second.values == {"call": "openat", "file": "__1_0.distcp"}
    assert find_fault(second.fault, second.values)


def test_the_controller_of_a_new_job_is_crashed_when_retention_deletes_for_the_first_time(swept):
    made = swept(in_controller())
    injection = made._in_controller(0, "")
    assert (injection.rank, str(injection.trigger)) == (0, "in report at step 12")
    assert injection.values["file"] == SNAPSHOT


def test_the_controller_of_a_job_that_goes_on_is_crashed_in_its_first_commit(swept):
    assert str(swept(in_controller())._in_controller(0, "checkpoint_1").trigger) == "in report"


@pytest.mark.parametrize("file", ["__0_0.distcp", "."])
def test_a_crash_in_retention_is_aimed_at_the_checkpoint_that_is_about_to_go(swept, file):
    made = swept(in_controller("retention", file, "unlink"))
    assert made._in_controller(0, "checkpoint_1").values["file"] == f"checkpoint_1/{file}"
    assert made.crashes[0].point.values["file"] == file, "the point itself stays as it is"


# The oldest checkpoint

RECORDS = {
    "two": ('{"checkpoint_results": [{"checkpoint_dir_name": "c1"}, {"checkpoint_dir_name": "c2"}]}', "c1"),
    "none": ('{"checkpoint_results": []}', ""),
    "empty": ("", ""),
    "torn": ('{"checkpoint_results": [{"checkpoint_dir', ""),
    "foreign": ('["a list"]', ""),
    "nameless": ('{"checkpoint_results": [{}]}', ""),
    "null": ('{"checkpoint_results": null}', ""),
}


@pytest.mark.parametrize("name", RECORDS)
def test_the_oldest_checkpoint_is_the_first_of_rays_record(place, name):
    text, expected = RECORDS[name]
    (place / "experiment").mkdir()
    (place / "experiment" / SNAPSHOT).write_text(text)
    assert oldest(place) == expected


def test_without_a_record_there_is_no_oldest_checkpoint(place):
    assert oldest(place) == oldest(place / "nosuch") == ""


# Crashing ranks


def test_ranks_are_crashed_in_one_job_when_every_point_comes(swept, run, lives):
    made = swept(in_rank(0), in_controller(), in_rank(1), in_rank(0, "report", "kill"))
    made.crash_ranks(run)
    assert lives.begun == [("ranks-0", ("crash-0", "crash-2", "crash-3"))]
    assert [(crash.injection, crash.life, crash.next_life) for crash in stored(run)] == [
        ("crash-0", "ranks-0", "ranks-0"), ("", "", ""), ("crash-2", "ranks-0", "ranks-0"),
        ("crash-3", "ranks-0", "ranks-0"),
    ]  # fmt: skip


def test_after_a_point_that_did_not_come_the_others_are_tried_in_a_new_job(swept, run, lives):
    """In the job before nothing came after it: each point waits for the attempt after the one before."""
    lives.missed = {"crash-1", "crash-2"}
    made = swept(*(in_rank(0) for _ in range(4)))
    made.crash_ranks(run)
    assert lives.begun == [
        ("ranks-0", ("crash-0", "crash-1", "crash-2", "crash-3")),
        ("ranks-1", ("crash-2",)),
    ]
    assert [crash.life for crash in stored(run)] == ["ranks-0", "ranks-0", "ranks-1", "ranks-0"]


def test_each_attempt_of_a_new_job_is_crashed_again_from_its_first(swept, run, monkeypatch):
    armed = []

    def begin(sweep, run, name, injections):
        armed.append([(injection.id, injection.trigger.attempt, injection.trigger.step) for injection in injections])
        (run.directory / name).mkdir()
        HistoryWriter(run.directory / name).close()
        return SimpleNamespace(run=lambda: False)

    monkeypatch.setattr(Sweep, "_life", begin)
    swept(*(in_rank(0) for _ in range(3))).crash_ranks(run)
    assert armed == [
        [("crash-0", 0, 8), ("crash-1", 1, None), ("crash-2", 2, None)],
        [("crash-1", 0, 8), ("crash-2", 1, None)],
        [("crash-2", 0, 8)],
    ]


def test_a_sweep_of_points_none_of_which_comes_ends(swept, run, lives):
    lives.missed = {f"crash-{i}" for i in range(5)}
    swept(*(in_rank(0) for _ in range(5))).crash_ranks(run)
    assert [name for name, _ in lives.begun] == [f"ranks-{i}" for i in range(5)]
    assert all(crash.life for crash in stored(run))


def test_what_came_in_a_job_that_was_interrupted_is_noted_all_the_same(swept, run, lives):
    """Also that it waited for the next point; the ones after that were not tried."""
    lives.missed, lives.cut = {"crash-1", "crash-2", "crash-3"}, {"ranks-0"}
    with pytest.raises(Interrupted):
        swept(*(in_rank(0) for _ in range(4))).crash_ranks(run)
    assert [name for name, _ in lives.begun] == ["ranks-0"]
    assert [(crash.life, crash.next_life) for crash in stored(run)] == [("ranks-0", "ranks-0")] * 2 + [("", "")] * 2


def test_an_interruption_of_a_later_job_keeps_what_the_one_before_has_shown(swept, run, lives):
    lives.missed, lives.cut = {"crash-0", "crash-1"}, {"ranks-1"}
    with pytest.raises(Interrupted):
        swept(*(in_rank(0) for _ in range(3))).crash_ranks(run)
    assert [crash.life for crash in stored(run)] == ["ranks-0", "ranks-1", "ranks-0"]


def test_what_was_stored_of_a_sweep_stays_whole_when_the_disk_is_full(swept, run, lives, monkeypatch):
    made = swept(in_rank(0))
    made._store(run)

    def full(path, data):
        path.open("wb").close()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        made.crash_ranks(run)
    assert [crash.life for crash in stored(run)] == [""]


@pytest.mark.parametrize("stage", ["crash_ranks", "crash_controller"])
def test_nothing_is_crashed_when_the_undisturbed_run_did_not_finish(swept, run, lives, stage):
    run.finished = False
    getattr(swept(in_rank(0), in_controller()), stage)(run)
    assert lives.begun == []


@pytest.mark.parametrize("stage", ["crash_ranks", "crash_controller"])
def test_where_there_is_nothing_to_crash_nothing_is_run(swept, run, lives, stage):
    point = {"crash_ranks": in_controller(), "crash_controller": in_rank(0)}[stage]
    getattr(swept(point), stage)(run)
    assert lives.begun == []


# Crashing the controller


def test_each_job_goes_on_where_the_one_before_has_died_and_the_last_one_is_not_crashed(swept, run, lives):
    made = swept(in_controller(), in_rank(0), in_controller())
    made.crash_controller(run)
    assert lives.begun == [("controller-0", ("crash-0",)), ("controller-1", ("crash-2",)), ("controller-2", ())]
    assert lives.found == {"controller-0": "", "controller-1": "by controller-0", "controller-2": "by controller-1"}
    assert [(crash.life, crash.next_life) for crash in stored(run)] == [
        ("controller-0", "controller-1"), ("", ""), ("controller-1", "controller-2"),
    ]  # fmt: skip


def test_after_a_job_that_cannot_resume_the_next_one_begins_from_before_that_crash(swept, run, lives):
    lives.left = {"controller-1": "torn"}
    swept(in_controller(), in_controller(), in_controller()).crash_controller(run)
    assert [name for name, _ in lives.begun] == [
        "controller-0", "controller-1", "controller-2", "controller-2-again", "controller-3",
    ]  # fmt: skip
    assert lives.found["controller-2"] == "torn"
    assert lives.found["controller-2-again"] == "by controller-0"
    assert [(crash.life, crash.next_life) for crash in stored(run)] == [
        ("controller-0", "controller-1"),
        ("controller-1", "controller-2"),
        ("controller-2-again", "controller-3"),
    ]


def test_a_crash_in_the_very_first_job_can_be_taken_back_too(swept, run, lives):
    lives.left = {"controller-0": "torn"}
    swept(in_controller(), in_controller()).crash_controller(run)
    assert lives.found["controller-1"] == "torn"
    assert lives.found["controller-1-again"] == ""


def test_jobs_that_cannot_resume_one_after_the_other_are_each_taken_back(swept, run, lives):
    lives.left = {name: "torn" for name in ("controller-0", "controller-1-again", "controller-2-again")}
    swept(*(in_controller() for _ in range(3))).crash_controller(run)
    assert [name for name, _ in lives.begun] == [
        "controller-0", "controller-1", "controller-1-again", "controller-2", "controller-2-again", "controller-3",
        "controller-3-again",
    ]  # fmt: skip
    assert [crash.next_life for crash in stored(run)] == ["controller-1", "controller-2", "controller-3"]


def test_where_there_is_no_state_to_go_back_to_the_sweep_goes_on_and_ends(swept, run, lives, monkeypatch):
    """As when the job makes no step from the beginning: every point is unknown, and none is a defect of ours."""
    begin = Lives.begin

    def torn(self, sweep, run, name, injections=(), storage=None):
        (storage / "record").write_text("torn")
        return begin(self, sweep, run, name, injections, storage)

    monkeypatch.setattr(Lives, "begin", torn)
    swept(in_controller(), in_controller()).crash_controller(run)
    assert [name for name, _ in lives.begun] == ["controller-0", "controller-1", "controller-2"]


def test_the_steps_of_checkpoints_are_known_to_the_jobs_that_go_on(swept, run, lives):
    made = swept(in_controller(), in_controller())
    made.crash_controller(run)
    assert made._steps_of == {f"checkpoint-of-controller-{number}": 1 for number in range(3)}


# A life


@pytest.fixture
def begun(swept, run, monkeypatch, place):
    """Begin a life; returns what its conduct was made of, by name, and what the bed was told."""
    names = ("directory", "workload", "plan", "cluster", "writer", "deadline_s", "recovers")
    monkeypatch.setattr(sweeping, "Conduct", lambda *given: SimpleNamespace(**dict(zip(names, given, strict=True))))
    told = []
    run.cluster = "the cluster"
    ledger = SimpleNamespace(extend=lambda seconds: told.append(("time", seconds)))
    run.bed = SimpleNamespace(ledger=ledger, intend_injection=lambda **recipe: told.append(recipe))

    def begin(points, storage=None, steps_of=None):
        made = swept(*points)
        made._steps_of = steps_of or {}
        return made._life(run, "life", [made._in_rank(i, i) for i in range(len(points))], storage), told

    return begin


def options(life):
    return dict(word.removeprefix("--").split("=", 1) for word in life.workload.command[3:])


def test_a_life_is_armed_has_a_folder_of_its_own_and_may_restart_once_more_than_it_is_crashed(begun, run):
    life, told = begun([in_rank(0), in_rank(1)])
    assert life.directory == run.directory / "life"
    assert [injection.id for injection in life.plan.injections] == ["crash-0", "crash-1"]
    assert options(life)["max-failures"] == "3"
    assert options(life)["storage"] == str(run.directory / "life" / "storage")
    assert (life.recovers, life.cluster, run.conducts) == (True, "the cluster", [life])
    assert told[1:] == [{"injection": f"crash-{i}", "fault": "crash-in-call", "target": f"rank {i}"} for i in range(2)]


def test_the_time_of_the_run_is_counted_anew_for_each_life(begun):
    """A sweep is many runs: its watcher must not take it for a harness that is stuck."""
    life, told = begun([in_rank(0)] * 30)
    kind, seconds = told[0]
    assert kind == "time"
    assert seconds > life.deadline_s >= 300 + 29 * 60


def test_a_life_that_goes_on_uses_the_storage_of_all_and_knows_the_steps_of_its_checkpoints(begun, run, place):
    shared = place / "shared"
    shared.mkdir()
    steps = {"checkpoint_1": 4}
    life, _ = begun([], storage=shared, steps_of=steps)
    assert (run.directory / "life" / "storage").resolve() == shared
    assert life.plan.steps_of == steps
    assert not life.recovers
    steps["checkpoint_2"] = 8
    assert life.plan.steps_of == {"checkpoint_1": 4}


# A whole sweep


class Pretended:
    """A conduct that tells a story: an undisturbed run, or one crashed once an attempt."""

    left_nothing = True

    def __init__(self, directory, workload, plan, cluster, writer, deadline_s, recovers):
        self.directory, self.plan, self.writer = directory, plan, writer

    def run(self):
        steps = dict(steps=48, every=4)
        armed = self.plan.injections
        hits = [(Hit(injection.rank, 6 + 4 * number),) for number, injection in enumerate(armed)]
        told = faulty(*hits, **steps, max_failures=len(hits)).events if hits else healthy(**steps).control.events
        for event in told:
            number = str(event.data.get("injection", "")).removeprefix("kill-")
            if number:
                event = msgspec.structs.replace(event, data={**event.data, "injection": armed[int(number)].id})
            if event.kind.split(".")[0] not in ("run", "cluster"):
                self.writer.append(event)
        return True

    def drain(self):
        pass


@pytest.mark.parametrize(
    ("stages", "code", "fates"),
    [
        (["report"], ExitCode.PASS, {Fate.LOST_WORK: 4}),
        (STAGES, ExitCode.UNKNOWN, {Fate.LOST_WORK: 8, Fate.UNKNOWN: 4}),
        (["snapshot"], ExitCode.UNKNOWN, {Fate.UNKNOWN: 1}),
        (["retention"], ExitCode.UNKNOWN, {Fate.UNKNOWN: 1}),
    ],
    ids=["report", "all", "snapshot", "retention"],
)
def test_without_tracing_the_points_of_the_agent_are_crashed_and_the_others_are_unknown(
    script, place, monkeypatch, stages, code, fates
):
    monkeypatch.setattr(sweeping, "Conduct", Pretended)
    request = resolve(SCENARIO, Options(out=place / "out"))
    made = Sweep(request, [], stages, "strace: not found; install strace")
    directory = execute(request, stages=made.stages)
    record = sweep_record.make(directory)
    assert (record.exit_code, dict(record.counts)) == (code, {str(fate): count for fate, count in fates.items()})
    assert {crash.aftermath.seen for crash in record.crashes if crash.aftermath.fate is Fate.UNKNOWN} <= {
        "strace: not found; install strace"
    }
    account = Account.read(directory / "ledger.jsonl")
    assert (account.open, account.ttl_s >= 900) == ({}, True)


def test_a_stage_that_no_tracer_saw_is_unknown_and_the_others_are_told_apart(script, place, monkeypatch):
    """Tracing is allowed, and yet nothing is noted: the lives told here are nobody's."""
    monkeypatch.setattr(sweeping, "Conduct", Pretended)
    monkeypatch.setattr(sweeping.Recorder, "_trace", lambda recorder, pid, name: None)
    request = resolve(SCENARIO, Options(out=place / "out"))
    monkeypatch.setattr(Pretended, "run", lambda conduct: False)
    directory = execute(request, stages=Sweep(request, [], STAGES, "").stages)
    record = sweep_record.make(directory)
    assert record.exit_code == ExitCode.UNKNOWN
    unseen = [crash.point.stage for crash in record.crashes if "no such call was noted" in crash.aftermath.seen]
    assert unseen == ["save", "transfer", "snapshot", "retention"]
    assert json.loads((directory / CRASHES).read_text())


SEEN = Recorded(
    saves={rank: [Call(7, "openat", f"__{rank}_0.distcp", True, False)] for rank in range(2)},
    transfers={rank: [Call(7, "mkdir", ".", True, False)] for rank in range(2)},
    snapshot=[Call(7, name, SNAPSHOT, True, False) for name in ("openat", "write", "close")],
    retention=[Call(7, name, path, True, False) for name, path in (("unlink", "__0_0.distcp"), ("rmdir", "."))],
)
SNAPSHOTS = [("snapshot", "openat"), ("snapshot", "write"), ("snapshot", "close")]
RETENTIONS = [("retention", "unlink"), ("retention", "rmdir")]


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (["retention"], [*SNAPSHOTS[:1], *RETENTIONS]),
        (["retention", "snapshot"], [*SNAPSHOTS, *RETENTIONS]),
        (["snapshot"], SNAPSHOTS),
        (["retention", "save"], [("save", "openat"), ("save", "openat"), *SNAPSHOTS[:1], *RETENTIONS]),
        (["save"], [("save", "openat")] * 2),
    ],
    ids=["retention", "retention and snapshot", "snapshot", "retention and save", "save"],
)
def test_before_what_retention_deletes_a_job_is_crashed_that_leaves_checkpoints_behind(
    script, place, monkeypatch, stages, expected
):
    monkeypatch.setattr(sweeping, "Conduct", Pretended)
    monkeypatch.setattr(sweeping.Recorded, "read", lambda *logs: SEEN)
    monkeypatch.setattr(Pretended, "run", lambda conduct: False)
    made = Sweep(resolve(SCENARIO, Options(out=place / "out")), [], stages, "")
    execute(made.request, stages=made.stages)
    assert [(crash.point.stage, crash.point.values["call"]) for crash in made.crashes] == expected


@pytest.mark.parametrize(
    ("cut", "code", "fates"),
    [
        (False, ExitCode.PASS, [Fate.LOST_WORK] * 4),
        (True, ExitCode.ABORTED, [Fate.LOST_WORK, Fate.LOST_WORK, Fate.UNKNOWN, Fate.UNKNOWN]),
    ],
)
def test_a_sweep_that_is_interrupted_tells_what_it_had_seen(script, place, monkeypatch, cut, code, fates):
    whole = Pretended.run

    def run(conduct):
        armed = conduct.plan.injections
        if not (cut and armed):
            return whole(conduct)
        conduct.plan = dataclasses.replace(conduct.plan, injections=armed[:2])
        whole(conduct)
        raise Interrupted("SIGINT")

    monkeypatch.setattr(sweeping, "Conduct", Pretended)
    monkeypatch.setattr(Pretended, "run", run)
    request = resolve(SCENARIO, Options(out=place / "out"))
    directory = execute(request, stages=Sweep(request, [], ["report"], "no tracing").stages)
    record = sweep_record.make(directory)
    assert (record.exit_code, [crash.aftermath.fate for crash in record.crashes]) == (code, fates)


# A cluster that does not start


@pytest.mark.parametrize("again", [False, True])
def test_a_sweep_whose_cluster_did_not_start_is_3_with_the_reason_also_when_it_is_judged_again(
    script, command, monkeypatch, again
):
    monkeypatch.setattr("chaos.workload.check_own_chaos", lambda: None)
    script.start_error = ClusterFailed("w0 said: no port is free")
    result = command("sweep", "checkpoint", "--quiet")
    (directory,) = Path("runs").iterdir()
    if again:
        result = command("analyze", str(directory))
    assert result.exit_code == ExitCode.NOT_STEADY
    assert "exit code 3: w0 said: no port is free" in result.stdout
    assert json.loads((directory / sweep_record.NAME).read_bytes())["crashes"] == []
    assert not (directory / "verdict.json").exists()
