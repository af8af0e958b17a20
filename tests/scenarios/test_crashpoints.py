"""From strace's notes of one undisturbed run to the points at which the job is crashed."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from chaos.faults.base import find_fault
from chaos.faults.crash_in_call import InCall
from chaos.strace import Call
from chaos.triggers import PHASES
from scenarios import crashpoints
from scenarios.cli import STAGES
from scenarios.crashpoints import SNAPSHOT, Point, Recorded, choose

STORE = "/d/exp"
OPEN = "O_WRONLY|O_CREAT|O_TRUNC"


def opened(path, flags=OPEN):
    return f'openat(AT_FDCWD</cwd>, "{path}", {flags}, 0666) = 3<{path}>'


def wrote(path, times):
    return [f'write(3<{path}>, ""..., 1261) = 1261'] * times


def save(rank, folder, times=5):
    """What a rank of torch's distributed checkpoint does to save; rank 0 writes the metadata."""
    shard, made = f"{folder}/__{rank}_0.distcp", f"{folder}/.metadata.tmp"
    lines = [
        f'mkdir("{folder}", 0777) = -1 EEXIST (File exists)',
        opened(shard),
        *wrote(shard, times),
        f"fsync(3<{shard}>) = 0",
        f"close(3<{shard}>) = 0",
    ]
    if rank == 0:
        lines += [opened(made), f"fsync(3<{made}>) = 0", *wrote(made, 1), f"close(3<{made}>) = 0"]
        lines += [f'rename("{made}", "{folder}/.metadata") = 0']
    return lines


def copied(rank, folder, name, times=1):
    """What pyarrow does to copy the files of a rank to the storage; and the clearing away after it."""
    files = [f"__{rank}_0.distcp", *([".metadata"] if rank == 0 else [])]
    lines = [f'mkdir("{STORE}/{name}", 0777) = 0']
    for file in files:
        there = f"{STORE}/{name}/{file}"
        lines += [opened(f"{folder}/{file}", "O_RDONLY"), opened(there), *wrote(there, times)]
        lines += [f"close(3<{there}>) = 0", f"close(4<{folder}/{file}>) = 0"]
    return [*lines, *(f'unlink("{folder}/{file}") = 0' for file in files), f'rmdir("{folder}") = 0']


def committed(doomed=""):
    """What the controller does to its record, and to the checkpoint that it does not keep."""
    record = f"{STORE}/{SNAPSHOT}"
    lines = [opened(record), *wrote(record, 1), f"close(3<{record}>) = 0"]
    if doomed:
        files = [".metadata", "__0_0.distcp", "__1_0.distcp"]
        lines += [f'openat(AT_FDCWD</cwd>, "{STORE}/{doomed}", O_RDONLY|O_DIRECTORY) = 3<{STORE}/{doomed}>']
        lines += [f'unlink("{STORE}/{doomed}/{file}") = 0' for file in files]
        lines += [f'rmdir("{STORE}/{doomed}") = 0']
    return lines


@pytest.fixture
def recorded(place):
    """Read the logs of two ranks and the controller over three commits, of which the last one deletes a checkpoint."""

    def read(change=lambda logs: None):
        names = ["checkpoint_1", "checkpoint_2", "checkpoint_3"]
        logs = {
            f"rank{rank}": [
                line
                for number, name in enumerate(names)
                for line in [*save(rank, f"/t/checkpoint-{number}"), *copied(rank, f"/t/checkpoint-{number}", name)]
            ]
            for rank in range(2)
        }
        logs["controller"] = [*committed(), *committed(), *committed("checkpoint_1")]
        change(logs)
        for name, lines in logs.items():
            noise = ['openat(AT_FDCWD</cwd>, "/etc/hosts", O_RDONLY) = 3</etc/hosts>', *wrote("pipe:[1]", 2)]
            (place / name).write_text("".join(f"17 {line}\n" for line in [*noise, *lines]))
        return Recorded.read({rank: place / f"rank{rank}" for rank in range(2)}, place / "controller", STORE)

    return read


def told(points):
    return [(point.stage, point.who, point.words) for point in points]


# Reading


def test_of_several_saves_the_last_one_is_read_from_its_first_shard_on(recorded):
    found = recorded()
    assert [call.name for call in found.saves[1][:8]] == ["openat", *["write"] * 5, "fsync", "close"]
    assert {call.path for call in found.saves[1]} == {"__1_0.distcp"}
    assert {call.path for call in found.saves[0]} == {"__0_0.distcp", ".metadata.tmp", ".metadata"}
    assert not {"mkdir", "unlink", "rmdir"} & {call.name for calls in found.saves.values() for call in calls}
    assert sum(call.name == "openat" for call in found.saves[0]) == 2


def test_of_several_transfers_the_last_one_is_read_without_what_was_only_read(recorded):
    found = recorded()
    assert [(call.name, call.path) for call in found.transfers[1]] == [
        ("mkdir", "."),
        ("openat", "__1_0.distcp"),
        ("write", "__1_0.distcp"),
        ("close", "__1_0.distcp"),
    ]


def test_of_the_record_the_last_writing_is_read_and_of_retention_the_one_checkpoint_that_goes(recorded):
    found = recorded()
    assert [(call.name, call.path) for call in found.snapshot] == [
        (name, SNAPSHOT) for name in ("openat", "write", "close")
    ]
    assert [(call.name, call.path) for call in found.retention] == [
        ("unlink", ".metadata"), ("unlink", "__0_0.distcp"), ("unlink", "__1_0.distcp"), ("rmdir", "."),
    ]  # fmt: skip


def test_a_checkpoint_that_is_deleted_by_relative_names_is_read_alike(recorded):
    def relative(logs):
        folder = f"{STORE}/checkpoint_1"
        logs["controller"] = [
            *committed(),
            f'unlinkat(5<{folder}>, "__0_0.distcp", 0) = 0',
            f'unlinkat(4<{STORE}>, "checkpoint_1", AT_REMOVEDIR) = 0',
        ]

    assert [(call.name, call.path) for call in recorded(relative).retention] == [
        ("unlinkat", "__0_0.distcp"),
        ("unlinkat", "."),
    ]


def test_a_storage_that_is_reached_through_a_link_is_read_by_its_real_name(place):
    (place / "real").mkdir()
    (place / "link").symlink_to("real")
    there = f"{place}/link/checkpoint_1/__0_0.distcp"
    kernel = f"{place.resolve()}/real/checkpoint_1/__0_0.distcp"
    (place / "rank0").write_text(f"7 {opened(there)}\n7 {wrote(kernel, 1)[0]}\n7 close(3<{kernel}>) = 0\n")
    found = Recorded.read({0: place / "rank0"}, place / "controller", f"{place}/link")
    assert [(call.name, call.path) for call in found.transfers[0]] == [
        (name, "__0_0.distcp") for name in ("openat", "write", "close")
    ]


@pytest.mark.parametrize("lines", [[], ["garbage", "17 +++ exited with 0 +++"]])
def test_of_logs_that_tell_nothing_nothing_is_read(recorded, lines):
    found = recorded(lambda logs: logs.update({name: lines for name in logs}))
    assert (dict(found.saves), dict(found.transfers)) == ({0: [], 1: []}, {0: [], 1: []})
    assert (list(found.snapshot), list(found.retention)) == ([], [])


def test_logs_that_are_missing_are_read_as_empty_ones(place):
    found = Recorded.read({0: place / "rank0"}, place / "controller", STORE)
    assert found.saves == {0: []}
    assert (list(found.snapshot), list(found.retention)) == ([], [])


# Points


def test_the_points_follow_a_checkpoint_through_its_life(recorded):
    points = crashpoints.points(recorded())
    stages = list(dict.fromkeys(point.stage for point in points))
    assert stages == list(STAGES)
    assert {point.who for point in points if point.in_rank} == {"rank 0", "rank 1"}
    assert {point.stage for point in points if point.in_controller} == {"snapshot", "retention"}
    assert all(point.in_rank is not point.in_controller for point in points)


def test_the_points_of_a_save(recorded):
    assert [
        words for stage, who, words in told(crashpoints.points(recorded())) if (stage, who) == ("save", "rank 0")
    ] == [
        "before openat of __0_0.distcp",
        "before the first byte of __0_0.distcp",
        "in the middle of __0_0.distcp, before write 3 of 5",
        "before fsync of __0_0.distcp",
        "before openat of .metadata.tmp",
        "before fsync of .metadata.tmp",
        "before the first byte of .metadata.tmp",
        "in the middle of a write of .metadata.tmp",
        "before rename of .metadata.tmp",
    ]


def test_the_points_of_a_transfer_and_of_what_comes_after_it(recorded):
    points = [found for found in told(crashpoints.points(recorded())) if found[1] == "rank 1" and found[0] != "save"]
    assert points == [
        ("transfer", "rank 1", "before mkdir of its folder"),
        ("transfer", "rank 1", "before openat of __1_0.distcp"),
        ("transfer", "rank 1", "before the first byte of __1_0.distcp"),
        ("transfer", "rank 1", "in the middle of a write of __1_0.distcp"),
        ("transfer", "rank 1", "before its copy, the other ranks having made theirs"),
        ("report", "rank 1", "before it reports"),
        ("report", "rank 1", "after its report, before the commit"),
    ]


def test_the_points_of_the_controller(recorded):
    points = [point for point in crashpoints.points(recorded()) if point.in_controller]
    assert [(point.stage, point.words) for point in points] == [
        ("snapshot", "before openat of the snapshot"),
        ("snapshot", "before the first byte of the snapshot"),
        ("snapshot", "in the middle of a write of the snapshot"),
        ("retention", "before unlink of .metadata, 0 of 4 deleted"),
        ("retention", "before unlink of __1_0.distcp, 2 of 4 deleted"),
        ("retention", "before rmdir of its folder, 3 of 4 deleted"),
    ]
    assert {(point.rank, point.phase) for point in points} == {(0, "report")}
    assert [point.file for point in points] == [*[SNAPSHOT] * 3, ".metadata", "__1_0.distcp", "."]


@pytest.mark.parametrize(("count", "numbers"), [(0, []), (1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (9, [0, 4, 8])])
def test_of_a_retention_the_first_the_middle_and_the_last_call_are_tried(count, numbers):
    calls = [Call(7, "unlink", f"file{number}", True, False) for number in range(count)]
    points = crashpoints.points(Recorded(retention=calls))
    assert [point.file for point in points] == [f"file{number}" for number in numbers]


def test_where_nothing_may_be_traced_the_points_of_the_agent_are_left():
    points = crashpoints.untraced(2)
    assert told(points) == [
        ("save", "rank 0", "before its first shard is opened"),
        ("save", "rank 1", "before its first shard is opened"),
        ("transfer", "rank 0", "before its copy"),
        ("transfer", "rank 1", "before its copy"),
        ("report", "rank 0", "before it reports"),
        ("report", "rank 0", "after its report, before the commit"),
        ("report", "rank 1", "before it reports"),
        ("report", "rank 1", "after its report, before the commit"),
    ]
    assert {point.fault for point in points} == {"kill"}
    assert all(point.in_rank for point in points)


def test_what_takes_tracing_is_a_row_of_its_own_with_nothing_to_inject():
    points = crashpoints.unreached()
    assert [(point.stage, point.who) for point in points] == [
        ("save", "rank"), ("transfer", "rank"), ("snapshot", "controller"), ("retention", "controller"),
    ]  # fmt: skip
    assert not any(point.in_rank or point.in_controller for point in points)


SILENCE = {
    "save": lambda logs: logs.update(rank1=copied(1, "/t/c", "checkpoint_1")),
    "transfer": lambda logs: logs.update(rank0=save(0, "/t/c")),
    "snapshot": lambda logs: logs.update(controller=committed("checkpoint_1")[3:]),
    "retention": lambda logs: logs.update(controller=committed()),
}


@pytest.mark.parametrize("stage", SILENCE)
def test_a_stage_of_which_a_process_told_nothing_is_not_passed_over(recorded, stage):
    """Else a tracer that did not attach would make the sweep smaller, and greener."""
    assert [point.stage for point in crashpoints.unseen(recorded(SILENCE[stage]))] == [stage]


def test_where_all_told_what_they_did_nothing_is_unseen(recorded):
    assert crashpoints.unseen(recorded()) == []


# Each point


def every(recorded):
    return [*crashpoints.points(recorded()), *crashpoints.untraced(2), *crashpoints.unreached()]


def test_a_point_survives_its_storage(recorded):
    for point in every(recorded):
        assert msgspec.json.decode(msgspec.json.encode(point), type=Point) == point


def test_every_point_names_a_fault_that_can_be_made_and_fits_its_phase(recorded):
    for point in every(recorded):
        if not point.fault:
            continue
        fault = find_fault(point.fault, point.values)
        assert dataclasses.asdict(fault) == point.values
        assert point.phase in PHASES
        assert point.phase in (fault.points or PHASES), point
        if isinstance(fault, InCall):
            assert fault.file == point.file


# Choosing


def calls(*names, path="f"):
    return [Call(7, name, path, True, False) for name in names]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([], []),
        (["openat"], [("openat", 1, 1.0)]),
        (["openat", "close"], [("openat", 1, 1.0)]),
        (["openat", "write", "close"], [("openat", 1, 1.0), ("write", 1, 1.0), ("close", 1, 0.5)]),
        (["openat", *["write"] * 2, "close"], [("openat", 1, 1.0), ("write", 1, 1.0), ("close", 1, 0.5)]),
        (["openat", *["write"] * 3, "close"], [("openat", 1, 1.0), ("write", 1, 1.0), ("write", 2, 1.0)]),
        (["openat", *["write"] * 10, "close"], [("openat", 1, 1.0), ("write", 1, 1.0), ("write", 6, 1.0)]),
        (["openat", *["pwrite64"] * 4], [("openat", 1, 1.0), ("pwrite64", 1, 1.0), ("pwrite64", 3, 1.0)]),
        (["write", "fsync", "fsync", "rename"], [("write", 1, 1.0), ("fsync", 1, 1.0), ("rename", 1, 1.0)]),
        (["close"], []),
    ],
    ids=lambda value: "-".join(value) if value and isinstance(value[0], str) else "",
)
def test_of_a_file_its_opening_its_first_byte_its_middle_and_its_renaming_are_chosen(names, chosen):
    assert [(call.name, nth, left) for call, nth, _, left in choose(calls(*names))] == chosen


def test_files_are_chosen_one_after_the_other_in_the_order_of_their_first_call():
    found = [*calls("openat", path="a"), *calls("openat", "write", path="b"), *calls("rename", path="a")]
    assert [(call.path, call.name) for call, *_ in choose(found)] == [
        ("a", "openat"), ("a", "rename"), ("b", "openat"), ("b", "write"),
    ]  # fmt: skip
