"""What became of every crash of a sweep, from the histories of its lives; its table, its exit code, its command."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from chaos.exits import ExitCode
from chaos.history import NAME as HISTORY
from chaos.history import HistoryWriter
from metrics.crashes import Aftermath, Fate
from metrics.verdict import RECORD
from scenarios import sweep_record, sweeping
from scenarios.cli import STAGES
from scenarios.crashpoints import Point
from scenarios.execute import StorageFailed
from scenarios.sweep_record import CRASHES, KNOWN_ISSUE, UNDISTURBED, Crash, Lives, SweepRecord, fate_of
from tests.histories import faulty, healthy
from tests.stories import Hit

RANK = Point(stage="save", who="rank 1", words="before openat of __1_0.distcp", rank=1, phase="save", fault="kill")
CONTROLLER = Point(
    stage="snapshot",
    who="controller",
    words="in the middle of a write of the snapshot",
    rank=0,
    phase="report",
    fault="crash-controller-in-call",
    values={"call": "close", "left": 0.5},
    file="checkpoint_manager_snapshot.json",
)


@pytest.fixture
def swept(place):
    """The directory of a sweep that has healed: its own record and history, and those of the undisturbed run."""
    directory = place / "swept"
    directory.mkdir()
    (directory / RECORD).write_bytes(msgspec.json.encode(healthy().record))
    live(directory, UNDISTURBED, healthy().control)
    tell(directory, ("run.healed", {"errors": []}), ("run.end", {}))
    return directory


def tell(directory, *events):
    writer = HistoryWriter(directory)
    for kind, data in events:
        writer.emit(kind, data=data)
    writer.close()


def live(directory, name, run):
    """Store the history of a life; the injections of a story are called crash-0 and so on here."""
    (directory / name).mkdir()
    text = b"".join(run.lines()).replace(b'"kill-', b'"crash-')
    (directory / name / HISTORY).write_bytes(text)


def later(run, number=1):
    """Only what happened from that attempt on, as a life of its own."""
    kept = [event for event in run.events if event.attempt is not None and event.attempt >= number]
    moved = [msgspec.structs.replace(event, attempt=event.attempt - number) for event in kept]
    return type(run)(run.record, tuple(moved))


def crash(number=0, life="ranks-0", next_life="ranks-0", point=RANK):
    return Crash(point=point, injection=f"crash-{number}", life=life, next_life=next_life)


def fate(directory, *arguments, **named):
    return fate_of(crash(*arguments, **named), Lives(directory))


# Ranks


def test_each_crash_of_a_rank_is_judged_by_the_attempt_after_its_own(swept):
    live(swept, "ranks-0", healthy(kills=((1, 6), (0, 9))))
    first, second = fate(swept, 0), fate(swept, 1)
    assert (first.fate, first.step, first.resumed, first.lost_steps) == (Fate.LOST_WORK, 6, 4, 2)
    assert (second.fate, second.step, second.resumed, second.lost_steps) == (Fate.LOST_WORK, 9, 8, 1)


def test_the_last_attempt_may_be_the_one_that_is_missing(swept):
    live(swept, "ranks-0", faulty((Hit(1, 6),), gives_up=True))
    assert fate(swept).fate is Fate.CANNOT_RESUME


def test_an_attempt_that_came_to_no_step_is_passed_over(swept):
    live(swept, "ranks-0", faulty((Hit(1, 6),), (Hit(0, phase="restore"),)))
    assert [(fate(swept, number).fate, fate(swept, number).resumed) for number in range(2)] == [
        (Fate.LOST_WORK, 4), (Fate.CLEAN, 4),
    ]  # fmt: skip


def test_an_attempt_before_the_crash_is_none_that_followed_it(swept):
    live(swept, "ranks-0", faulty((Hit(1, 6),), (Hit(0, 9),), gives_up=True))
    assert [fate(swept, number).fate for number in range(2)] == [Fate.LOST_WORK, Fate.CANNOT_RESUME]


ENDS = {
    "an error": (1, Fate.CANNOT_RESUME),
    "its deadline": (None, Fate.UNKNOWN),
    "a kill": (-9, Fate.UNKNOWN),
    "its end": (0, Fate.UNKNOWN),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_job_cannot_resume_only_when_it_ended_in_error(swept, end):
    code, expected = ENDS[end]
    live(swept, "ranks-0", faulty((Hit(1, 6),), gives_up=True).change("workload.exit", code=code))
    assert (fate(swept).fate, fate(swept).step) == (expected, 6)


def test_a_job_whose_end_was_not_seen_is_unknown(swept):
    live(swept, "ranks-0", faulty((Hit(1, 6),), gives_up=True).until("fault.confirmed"))
    assert fate(swept).fate is Fate.UNKNOWN


def test_a_deviation_after_a_crash_is_that_crashs_alone(swept):
    wrong = healthy(kills=((1, 6), (0, 9))).change("step.end", {"attempt": 2, "rank": 0, "step": 10}, loss=9.9)
    live(swept, "ranks-0", wrong)
    assert [fate(swept, number).fate for number in range(2)] == [Fate.LOST_WORK, Fate.SILENTLY_WRONG]


@pytest.mark.parametrize("gone", ["fault.fired", "fault.confirmed"])
def test_a_crash_that_was_not_seen_to_happen_is_unknown_whatever_followed(swept, gone):
    live(swept, "ranks-0", healthy().drop(gone))
    assert fate(swept) == Aftermath(fate=Fate.UNKNOWN, seen="the point did not come")


def test_why_a_crash_did_not_come_about_is_told(swept):
    told = healthy().select("fault.confirmed")[0]
    failed = msgspec.structs.replace(
        told, kind="fault.failed", data={**told.data, "error": "write came 2 times, not 3"}
    )
    live(swept, "ranks-0", healthy().drop("fault.confirmed").add(failed))
    assert fate(swept) == Aftermath(fate=Fate.UNKNOWN, seen="write came 2 times, not 3")


def test_the_events_of_another_crash_prove_nothing(swept):
    live(swept, "ranks-0", healthy())
    assert fate(swept, 1).fate is Fate.UNKNOWN


def test_a_life_that_never_was_proves_nothing(swept):
    assert fate(swept, life="ranks-7", next_life="ranks-7").fate is Fate.UNKNOWN


def test_a_crash_that_was_never_tried_keeps_its_reason(swept):
    why = Aftermath(fate=Fate.UNKNOWN, seen="strace: not found")
    assert fate_of(Crash(point=RANK, aftermath=why), Lives(swept)) == why
    assert fate_of(Crash(point=RANK), Lives(swept)).seen == "it was not tried"


def test_a_checkpoint_that_was_committed_after_the_crash_had_begun_was_not_there_before(swept):
    """The step of such a commit may be beyond the one resumed from."""
    run = healthy()
    late = msgspec.structs.replace(run.select("checkpoint.commit")[0], wall_ns=run.select("fault.fired")[0].wall_ns + 1)
    live(swept, "ranks-0", run.add(msgspec.structs.replace(late, step=6)))
    assert fate(swept).fate is Fate.LOST_WORK


def test_a_checkpoint_that_was_committed_before_the_crash_must_not_be_lost(swept):
    run = healthy(kills=((1, 9),))
    commit = msgspec.structs.replace(run.select("checkpoint.commit", step=8)[0], step=9)
    live(swept, "ranks-0", run.add(commit))
    assert (fate(swept).fate, fate(swept).seen[:7]) == (Fate.LOST_MORE, "step 9 ")


# The controller


def test_a_crash_of_the_controller_is_judged_by_the_first_attempt_of_the_next_job(swept):
    live(swept, "controller-0", faulty((Hit(1, 6),), gives_up=True))
    live(swept, "controller-1", later(healthy()))
    found = fate(swept, life="controller-0", next_life="controller-1", point=CONTROLLER)
    assert (found.fate, found.step, found.resumed, found.lost_steps) == (Fate.LOST_WORK, 6, 4, 2)


def test_a_job_that_begins_anew_has_lost_what_the_one_before_had_committed(swept):
    live(swept, "controller-0", faulty((Hit(1, 6),), gives_up=True))
    live(swept, "controller-1", healthy().control)
    found = fate(swept, life="controller-0", next_life="controller-1", point=CONTROLLER)
    assert (found.fate, found.seen) == (Fate.LOST_MORE, "step 4 had been committed, and the job went on from 0")


def test_what_a_job_had_gone_on_from_was_committed_too(swept):
    live(swept, "controller-1", later(faulty((Hit(1, 6),), (Hit(0, 7),), gives_up=True)))
    live(swept, "controller-2", healthy().control)
    found = fate(swept, 1, life="controller-1", next_life="controller-2", point=CONTROLLER)
    assert (found.fate, found.resumed) == (Fate.LOST_MORE, 0)


@pytest.mark.parametrize("end", ENDS)
def test_a_next_job_that_makes_no_step_cannot_resume_when_it_ends_in_error(swept, end):
    """However the job that was crashed has ended."""
    code, expected = ENDS[end]
    live(swept, "controller-0", faulty((Hit(1, 6),), gives_up=True).change("workload.exit", code=-9))
    (swept / "controller-1").mkdir()
    tell(swept / "controller-1", ("workload.exit", {"code": code}))
    found = fate(swept, life="controller-0", next_life="controller-1", point=CONTROLLER)
    assert (found.fate, found.step) == (expected, 6)


def test_the_end_of_the_job_that_was_crashed_tells_nothing_of_the_next_one(swept):
    live(swept, "controller-0", faulty((Hit(1, 6),), gives_up=True))
    (swept / "controller-1").mkdir()
    tell(swept / "controller-1", ("workload.start", {"pid": 1}))
    found = fate(swept, life="controller-0", next_life="controller-1", point=CONTROLLER)
    assert (found.fate, found.step) == (Fate.UNKNOWN, 6)


def test_without_a_next_job_nothing_is_known(swept):
    live(swept, "controller-0", faulty((Hit(1, 6),), gives_up=True))
    found = fate(swept, life="controller-0", next_life="", point=CONTROLLER)
    assert found == Aftermath(fate=Fate.UNKNOWN, seen="the job was not started again")


# The known issue


def ended(found, point=CONTROLLER):
    return Crash(point=point, aftermath=Aftermath(fate=found, seen="as seen", step=6, resumed=4, lost_steps=2))


def known_issues(directory, *crashes):
    """As the files tell, and so as the command does."""
    told = json.loads(msgspec.json.encode(judged(directory, *crashes)))
    return [crash["known_issue"] for crash in told["crashes"]]


@pytest.mark.parametrize("call", ["write", "close"])
def test_a_record_that_is_torn_in_its_writing_is_a_known_issue(swept, call):
    point = msgspec.structs.replace(CONTROLLER, values={"call": call})
    assert known_issues(swept, ended(Fate.CANNOT_RESUME, point)) == [KNOWN_ISSUE]


@pytest.mark.parametrize(
    ("found", "point"),
    [
        (Fate.SILENTLY_WRONG, CONTROLLER),
        (Fate.LOST_MORE, CONTROLLER),
        (Fate.UNKNOWN, CONTROLLER),
        (Fate.CLEAN, CONTROLLER),
        (Fate.CANNOT_RESUME, msgspec.structs.replace(CONTROLLER, values={"call": "openat"})),
        (Fate.CANNOT_RESUME, msgspec.structs.replace(CONTROLLER, stage="retention")),
        (Fate.CANNOT_RESUME, RANK),
    ],
)
def test_anything_else_is_none(swept, found, point):
    assert known_issues(swept, ended(found, point)) == [""]


def test_an_issue_that_was_noted_and_is_none_any_more_is_forgotten(swept):
    noted = msgspec.structs.replace(ended(Fate.CLEAN), known_issue=KNOWN_ISSUE)
    assert known_issues(swept, noted) == [""]


# The record


def judged(directory, *crashes):
    (directory / CRASHES).write_bytes(msgspec.json.encode(list(crashes)))
    return sweep_record.make(directory)


OUTCOMES = {
    "all good": ([Fate.CLEAN, Fate.LOST_WORK], 0, "every crash was survived"),
    "a known issue": ([Fate.CLEAN, "known", "known"], 0, "every crash was survived, but for 2 of a known issue"),
    "only known issues": (["known"], 0, "every crash was survived, but for 1 of a known issue"),
    "unknown": ([Fate.CLEAN, Fate.UNKNOWN, Fate.UNKNOWN], 2, "what became of 2 crashes is unknown"),
    "wrong": ([Fate.CLEAN, Fate.SILENTLY_WRONG], 1, "1 silently wrong"),
    "lost": ([Fate.LOST_MORE, Fate.LOST_MORE], 1, "2 lost committed work"),
    "stuck": ([Fate.CANNOT_RESUME], 1, "1 cannot resume"),
    "wrong and unknown": ([Fate.UNKNOWN, Fate.SILENTLY_WRONG, "known"], 1, "1 silently wrong"),
    "nothing": ([], 2, "the job was not crashed at all"),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_the_fates_of_all_crashes_make_one_exit_code(swept, name):
    fates, code, reason = OUTCOMES[name]
    crashes = [ended(Fate.CANNOT_RESUME) if found == "known" else ended(found, RANK) for found in fates]
    record = judged(swept, *crashes)
    assert (record.exit_code, record.reason) == (code, reason)


HARNESS = {
    "aborted": (("run.aborted", {"reason": "SIGINT"}), ExitCode.ABORTED, "aborted by SIGINT, and healed"),
    "a defect": (("run.bug", {"error": "KeyError('x')"}), ExitCode.BUG, "a defect of the harness: KeyError('x')"),
    "not healed": (("run.healed", {"errors": ["directory"]}), ExitCode.NOT_HEALED, None),
    "no cluster": (("run.failed", {"error": "w0 did not start"}), ExitCode.NOT_STEADY, "w0 did not start"),
}


@pytest.mark.parametrize("name", HARNESS)
@pytest.mark.parametrize("found", [Fate.CLEAN, Fate.SILENTLY_WRONG, None])
def test_what_happens_to_the_harness_itself_goes_before(swept, name, found):
    event, code, reason = HARNESS[name]
    tell(swept, event)
    record = judged(swept, *([ended(found, RANK)] if found else []))
    assert record.exit_code == code
    assert reason in (None, record.reason)


def test_a_sweep_that_came_to_no_point_is_judged_all_the_same(swept):
    (swept / UNDISTURBED / HISTORY).unlink()
    record = sweep_record.make(swept)
    assert (record.exit_code, record.crashes) == (ExitCode.UNKNOWN, [])


def test_the_shape_of_the_job_is_that_of_the_stored_scenario(swept):
    asked = {**healthy().record, "workers": 3, "steps": 40, "checkpoint_every": 5}
    (swept / RECORD).write_bytes(msgspec.json.encode(asked))
    record = judged(swept)
    assert (record.workers, record.steps, record.checkpoint_every) == (3, 40, 5)


def test_a_sweep_without_an_undisturbed_run_is_unknown(swept):
    (swept / UNDISTURBED / HISTORY).unlink()
    live(swept, "ranks-0", healthy())
    record = judged(swept, crash())
    assert (record.exit_code, record.crashes[0].aftermath.fate) == (ExitCode.UNKNOWN, Fate.UNKNOWN)


def test_a_whole_sweep_is_read_judged_and_stored(swept):
    live(swept, "ranks-0", healthy(kills=((1, 6), (0, 9))))
    live(swept, "controller-0", faulty((Hit(1, 6),), gives_up=True))
    (swept / "controller-1").mkdir()
    tell(swept / "controller-1", ("workload.exit", {"code": 1}))
    torn = crash(0, "controller-0", "controller-1", CONTROLLER)
    record = judged(swept, crash(0), crash(1), torn)
    assert (record.exit_code, record.reason) == (0, "every crash was survived, but for 1 of a known issue")
    assert dict(record.counts) == {"lost work": 2, "cannot resume": 1}
    sweep_record.write(record, swept)
    text = (swept / sweep_record.NAME).read_bytes()
    assert msgspec.json.decode(text, type=SweepRecord) == record
    assert text.endswith(b"\n")
    assert json.loads(text)["crashes"][0]["aftermath"]["fate"] == "lost work"
    assert [crash["known_issue"] for crash in json.loads(text)["crashes"]] == ["", "", KNOWN_ISSUE]


# The table


def shown(directory, *crashes, width=100):
    record = judged(directory, *crashes)
    stream = io.StringIO()
    sweep_record.show(record, directory, Console(file=stream, width=width))
    return stream.getvalue().splitlines()


def test_the_table_has_a_row_for_each_crash_and_the_lines_under_it_say_the_rest(swept):
    odd = msgspec.structs.replace(ended(Fate.SILENTLY_WRONG, RANK), life="")
    lines = shown(swept, ended(Fate.CLEAN, RANK), odd, ended(Fate.CANNOT_RESUME))
    assert lines[0].split() == ["stage", "who", "crashed", "fate", "from", "lost"]
    assert lines[1].split() == ["save", "rank", "1", "before", "openat", "of", "__1_0.distcp", "clean", "4", "2"]
    assert "3 crashes: 1 clean, 1 silently wrong, 1 cannot resume; at most 2 steps lost, saved every 4" in lines
    assert "save, rank 1, before openat of __1_0.distcp: as seen" in lines
    assert any(line.startswith("1 times the known issue: Ray 2.60 writes its record") for line in lines)
    assert any(line.startswith("exit code 1: 1 silently wrong; ") for line in lines)


def test_the_table_fits_100_columns_whatever_it_holds(swept):
    words = "before its copy, the other ranks having made theirs, and a name that is long: " + "x" * 90
    points = [msgspec.structs.replace(RANK, stage=stage, who="controller", words=words) for stage in STAGES]
    crashes = [
        Crash(point=point, aftermath=Aftermath(fate=found, seen="y" * 150, resumed=123456, lost_steps=123456))
        for point in points
        for found in Fate
    ]
    lines = shown(swept, *crashes)
    assert max(map(len, lines)) <= 100
    for found in Fate:
        assert any(found in line for line in lines[: len(crashes) * 4]), "no fate is cut"


def test_what_is_not_known_is_a_dash(swept):
    lines = shown(swept, Crash(point=RANK))
    assert lines[1].split()[-3:] == ["unknown", "-", "-"]
    assert "save, rank 1, before openat of __1_0.distcp: it was not tried" in lines


def test_brackets_in_what_is_told_are_no_markup(swept):
    tell(swept, ("run.bug", {"error": "KeyError('[/bold]')"}))
    point = msgspec.structs.replace(RANK, words="before openat of [red]file[/red]")
    lines = shown(swept, Crash(point=point, aftermath=Aftermath(fate=Fate.UNKNOWN, seen="[/b] came")))
    text = " ".join(lines)
    assert "[red]file[/red]" in text
    assert "[/b] came" in text
    assert "KeyError('[/bold]')" in text


# The command


MISTAKES = {
    "sweep": "Missing argument",
    "sweep nosuch": "'nosuch' is not 'checkpoint'",
    "sweep checkpoint --stage nosuch": "'nosuch' is not one of 'save', 'transfer', 'report', 'snapshot', 'retention'",
    "sweep checkpoint --set foo": "--set foo: write --set KEY=VALUE",
    "sweep checkpoint --set nosuch=1": "--set nosuch=1: unknown setting",
    "sweep checkpoint --set steps=many": "steps is of type int",
    "sweep checkpoint --set steps=8": "step=12 never comes",
    "sweep checkpoint --set save=never": "save=never must be one of blocking, asynchronous",
    "sweep checkpoint --workers 0": "--workers 0: input should be greater than 0",
    "sweep checkpoint --workers 5": "workers=5 does not divide micro_batches=6",
    "sweep checkpoint --seed -1": "--seed -1: input should be",
    "sweep checkpoint --rank 1": "No such option",
}


@pytest.fixture
def own_chaos(monkeypatch):
    monkeypatch.setattr("chaos.workload.check_own_chaos", lambda: None)


@pytest.mark.parametrize("arguments", MISTAKES)
@pytest.mark.usefixtures("own_chaos")
def test_a_mistake_is_one_line_and_64_and_starts_nothing(command, place, arguments):
    result = command(*arguments.split())
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert result.stderr.startswith("aftershock: ")
    assert result.stderr.count("\n") == 1
    assert MISTAKES[arguments] in result.stderr
    assert list(place.iterdir()) == []


def test_the_help_names_every_stage_and_has_examples(command):
    text = command("sweep", "--help").stdout
    assert f"[{'|'.join(STAGES)}]" in text.replace("\n", "").replace(" ", "")
    examples = [line.split() for line in text.splitlines() if line.strip().startswith("aftershock sweep checkpoint")]
    assert len(examples) >= 3


@pytest.fixture
def sweeps(monkeypatch, swept, own_chaos):
    """The command runs nothing; what it would have run is this sweep. Returns what it was asked for."""
    asked = []

    def execute(request, observers, stages):
        asked.append(stages[2].__self__)
        return swept

    monkeypatch.setattr(sweeping, "execute", execute)
    finding, diagnosis = sweeping.doctor.Finding, sweeping.doctor.Diagnosis
    monkeypatch.setattr(sweeping.doctor, "examine", lambda: diagnosis([finding(**found) for found in FOUND], {}))
    return asked


FOUND = [
    {"name": "memory", "state": "limited", "seen": "1 GiB"},
    {"name": "ptrace", "state": "ok", "seen": "ptrace_scope 0"},
    {"name": "strace", "state": "ok", "seen": "/usr/bin/strace"},
]


def test_every_example_of_the_help_can_be_run(command, sweeps):
    text = command("sweep", "--help").stdout
    for line in [line.split() for line in text.splitlines() if line.strip().startswith("aftershock sweep")]:
        result = command(*line[1:], "--quiet")
        assert result.exit_code == ExitCode.UNKNOWN, result.output  # nothing was crashed here
    assert [sweep.asked for sweep in sweeps] == [STAGES, ("transfer", "snapshot"), STAGES]
    assert [sweep.request.shape.workers for sweep in sweeps] == [2, 2, 3]
    assert sweeps[2].request.config.save == "asynchronous"
    assert {sweep.why_untraced for sweep in sweeps} == {""}


def test_the_command_tells_the_table_stores_the_record_and_exits_with_its_code(command, sweeps, swept):
    live(swept, "ranks-0", healthy())
    (swept / CRASHES).write_bytes(msgspec.json.encode([crash()]))
    result = command("sweep", "checkpoint", "--quiet")
    assert result.exit_code == 0
    assert "lost work" in result.stdout
    told = json.loads(command("sweep", "checkpoint", "--json", "--quiet").stdout)
    assert told == json.loads((swept / sweep_record.NAME).read_text())
    assert (told["schema"], told["workers"], told["steps"], told["checkpoint_every"]) == (1, 2, 12, 4)


@pytest.mark.parametrize("name", ["strace", "ptrace"])
def test_what_tracing_lacks_is_told_to_the_sweep(command, sweeps, monkeypatch, name):
    found = {"name": name, "state": "limited", "seen": "not here", "remedy": "get it"}
    others = [finding for finding in FOUND if finding["name"] != name]
    monkeypatch.setitem(globals(), "FOUND", [*others, found])
    command("sweep", "checkpoint", "--quiet")
    assert [sweep.why_untraced for sweep in sweeps] == [f"{name}: not here; get it"]


# A full disk


@pytest.fixture
def one_run(monkeypatch, swept, own_chaos):
    """``run`` runs nothing either."""
    monkeypatch.setattr("scenarios.execute.execute", lambda request, observers, pool, stages: swept)


COMMANDS = {"sweep checkpoint": "scenarios.sweeping.execute", "run kill-worker": "scenarios.execute.execute"}


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_disk_that_takes_nothing_more_is_6_and_one_line(command, monkeypatch, own_chaos, arguments):
    def full(*given, **named):
        raise StorageFailed("no space left")

    monkeypatch.setattr(COMMANDS[arguments], full)
    result = command(*arguments.split(), "--quiet")
    assert (result.exit_code, result.stdout) == (ExitCode.ABORTED, "")
    assert result.stderr.splitlines()[-1] == "aftershock: no space left"


def failing(number):
    def fail(*given, **named):
        raise OSError(number, os.strerror(number))

    return fail


UNJUDGED = "aftershock: the run is stored and healed, but not judged: "


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("arguments", ["sweep checkpoint --quiet", "analyze swept"])
def test_a_sweep_whose_record_cannot_be_stored_is_told_and_2(command, sweeps, swept, monkeypatch, arguments, number):
    live(swept, "ranks-0", healthy())
    (swept / CRASHES).write_bytes(msgspec.json.encode([crash()]))
    monkeypatch.setattr(sweep_record, "write", failing(number))
    result = command(*arguments.split())
    assert result.exit_code == ExitCode.UNKNOWN
    assert result.stderr.splitlines()[-1].startswith(UNJUDGED)
    assert "lost work" in result.stdout


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_run_whose_verdict_cannot_be_stored_is_told_and_2(command, one_run, monkeypatch, number):
    monkeypatch.setattr("scenarios.cli._judge", failing(number))
    result = command("run", "kill-worker", "--quiet")
    assert (result.exit_code, result.stdout) == (ExitCode.UNKNOWN, "")
    assert result.stderr.splitlines()[-1].startswith(UNJUDGED)


@pytest.mark.parametrize("place_of_it", ["scenarios.sweep_record.write", "scenarios.sweeping.execute"])
def test_any_other_error_is_a_defect_of_ours(command, sweeps, monkeypatch, place_of_it):
    monkeypatch.setattr(place_of_it, failing(errno.EIO))
    result = command("sweep", "checkpoint", "--quiet")
    assert result.exit_code == ExitCode.BUG
    assert "not judged" not in result.stderr


# Judged again


def test_a_sweep_is_judged_again_with_the_same_table_and_record(command, sweeps, swept):
    live(swept, "ranks-0", healthy())
    (swept / CRASHES).write_bytes(msgspec.json.encode([crash()]))
    first, stored = command("sweep", "checkpoint", "--quiet"), (swept / sweep_record.NAME).read_bytes()
    (swept / sweep_record.NAME).unlink()
    again = command("analyze", "swept")
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert (swept / sweep_record.NAME).read_bytes() == stored
    assert json.loads(command("analyze", "swept", "--json").stdout) == json.loads(stored)
    assert not (swept / "verdict.json").exists()


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (healthy(), ExitCode.PASS),
        (faulty((Hit(1, 6),), gives_up=True), ExitCode.FAIL),
        (healthy().drop("fault.confirmed"), ExitCode.UNKNOWN),
    ],
    ids=["survived", "cannot resume", "not seen"],
)
def test_a_sweep_that_is_judged_again_exits_with_what_its_files_tell(command, swept, run, code):
    """Not with what the last record says, which is written anew."""
    live(swept, "ranks-0", run)
    (swept / CRASHES).write_bytes(msgspec.json.encode([crash()]))
    (swept / sweep_record.NAME).write_text("{}")
    assert command("analyze", "swept").exit_code == code
    assert json.loads((swept / sweep_record.NAME).read_bytes())["exit_code"] == code


@pytest.mark.parametrize("text", ["recovers(within=60)", "zzz()"])
def test_of_a_sweep_nothing_else_can_be_expected(command, swept, text):
    before = sorted(swept.iterdir())
    result = command("analyze", "swept", "--expect", text)
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert result.stderr == f"aftershock: --expect {text}: swept is a sweep, of which nothing else can be expected\n"
    assert sorted(swept.iterdir()) == before


DAMAGES = {
    "no record": (lambda sweep: (sweep / RECORD).unlink(), "swept holds no scenario.json: it is no run directory"),
    "a torn record": (lambda sweep: (sweep / RECORD).write_text("{"), "swept/scenario.json cannot be read"),
    "no history": (lambda sweep: (sweep / HISTORY).unlink(), "swept holds no history.jsonl: it is no run directory"),
    "torn crashes": (lambda sweep: (sweep / CRASHES).write_text("[{"), "swept/crashes.json cannot be read"),
    "foreign crashes": (lambda sweep: (sweep / CRASHES).write_text("[{}]"), "swept/crashes.json cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_sweep_that_cannot_be_read_is_one_line_and_64(command, swept, name):
    damage, message = DAMAGES[name]
    damage(swept)
    result = command("analyze", "swept")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (ExitCode.USAGE, "", 1)
    assert message in result.stderr
    assert "name the directory of a sweep, such as one below runs/" in result.stderr


@pytest.mark.parametrize("name", [CRASHES, UNDISTURBED, sweep_record.NAME])
def test_any_trace_of_a_sweep_makes_it_one(place, name):
    assert not sweep_record.is_sweep(place)
    (place / name).mkdir()
    assert sweep_record.is_sweep(place)


def test_a_run_and_what_is_nothing_are_no_sweep(place):
    assert not sweep_record.is_sweep(healthy().write(place / "run", store=False))
    (place / "file").touch()
    assert not any(sweep_record.is_sweep(Path(name)) for name in ("file", "nosuch", "nosuch/nosuch"))
