"""From what one undisturbed run did to files to the points at which a crash is worth trying.

Of each file: before it is opened, before its first byte, half-way, and before it is renamed. A file that is written by
one call cannot be left half-written by the end of a process: there the crash is a machine's, and the file is cut.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from chaos import strace
from chaos.agent.points import SHARD
from chaos.faults.base import Fault
from chaos.faults.crash_in_call import CrashControllerInCall, CrashInCall
from chaos.faults.kill import Kill
from chaos.strace import Call
from metrics.checkpoints.registry import FILE as SNAPSHOT

WRITES = ("write", "pwrite64")
PATIENCE_S = 2.0
"""How long a rank is held so that the others finish the same stage before it dies."""

HALF = 0.5


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One crash: at that stage of a checkpoint, in that rank or, held by that rank, in the controller.

    ``words``: where exactly. ``fault`` and ``values``: what to inject; ``phase``: the point of the agent's where the
    rank is held. ``file``: what it is about, relative to the checkpoint or, in the controller, to the experiment.
    """

    stage: str
    who: str
    words: str
    rank: int
    phase: str
    fault: str
    values: dict[str, Any] = {}
    file: str = ""

    @property
    def in_rank(self) -> bool:
        """Whether it ends the group, which Ray Train starts again."""
        return self.fault in (Kill.name, CrashInCall.name)

    @property
    def in_controller(self) -> bool:
        """Whether it ends the job."""
        return self.fault == CrashControllerInCall.name


@dataclass(frozen=True)
class Recorded:
    """The calls of one checkpoint, in order: ``saves`` and ``transfers`` by rank; paths are relative.

    ``snapshot``: the controller's calls on its record. ``retention``: those by which it deleted one checkpoint.
    """

    saves: Mapping[int, Sequence[Call]] = field(default_factory=dict)
    transfers: Mapping[int, Sequence[Call]] = field(default_factory=dict)
    snapshot: Sequence[Call] = ()
    retention: Sequence[Call] = ()

    @classmethod
    def read(cls, logs: Mapping[int, Path], controller: Path, experiment: str) -> Recorded:
        """Read what strace noted of the ranks and of the controller; ``experiment``: where checkpoints are stored."""
        experiment = os.path.realpath(experiment)
        calls = {rank: [call for call in strace.calls(log) if call.writes] for rank, log in logs.items()}
        central = strace.below(strace.calls(controller), experiment)
        own = [call for call in central if call.path == f"{experiment}/{SNAPSHOT}" and call.writes]
        begins = [number for number, call in enumerate(own) if call.name == "openat"]
        return cls(
            {rank: save_of(found, experiment) for rank, found in calls.items()},
            {rank: _last_checkpoint(strace.below(found, experiment), experiment) for rank, found in calls.items()},
            _relative(own[begins[-1] :] if begins else [], experiment),
            _last_checkpoint([call for call in central if call.name in ("unlink", "unlinkat", "rmdir")], experiment),
        )


def save_of(calls: Sequence[Call], experiment: str) -> list[Call]:
    """The calls of a rank's last save, from the opening of its first shard on; the clearing away is none of them."""
    shards = [call for call in calls if call.name == "openat" and call.path.endswith(SHARD)]
    folders = [str(Path(call.path).parent) for call in shards if not call.path.startswith(f"{experiment}/")]
    if not folders:
        return []
    inside = strace.below(calls, folders[-1])
    first = next(number for number, call in enumerate(inside) if call.path.endswith(SHARD) and call.name == "openat")
    return _relative([call for call in inside[first:] if call.name not in ("unlink", "unlinkat", "rmdir")], folders[-1])


def _last_checkpoint(calls: Sequence[Call], experiment: str) -> list[Call]:
    """Those on the checkpoint directory that comes last among them, relative to it."""
    named = [Path(call.path).relative_to(experiment).parts[0] for call in calls if call.path != experiment]
    folders = [f"{experiment}/{name}" for name in named if name.startswith("checkpoint_") and name != SNAPSHOT]
    return _relative(strace.below(calls, folders[-1]), folders[-1]) if folders else []


def _relative(calls: Sequence[Call], folder: str) -> list[Call]:
    return [dataclasses.replace(call, path=str(Path(call.path).relative_to(folder))) for call in calls]


def points(found: Recorded) -> list[Point]:
    """Every crash to try, in the order of a checkpoint's life."""
    return [
        *(point for rank, calls in found.saves.items() for point in _of_rank("save", rank, calls)),
        *(point for rank, calls in found.transfers.items() for point in _of_rank("transfer", rank, calls)),
        *(point for rank in found.transfers for point in _between(rank)),
        *_of_snapshot(found.snapshot),
        *_of_retention(found.retention),
    ]


def untraced(workers: int) -> list[Point]:
    """The crashes for which nobody need be traced: where the agent itself stands."""
    saved = [("save", rank, "before its first shard is opened") for rank in range(workers)]
    copied = [("transfer", rank, "before its copy") for rank in range(workers)]
    alone = [_point(stage, f"rank {rank}", words, rank, stage, Kill()) for stage, rank, words in (*saved, *copied)]
    return [*alone, *(point for rank in range(workers) for point in _between(rank) if point.fault == Kill.name)]


def unseen(found: Recorded) -> list[Point]:
    """A row for each stage of which nothing was noted in some process that must have gone through it."""
    whole = {"save": all(found.saves.values()), "transfer": all(found.transfers.values())}
    whole |= {"snapshot": bool(found.snapshot), "retention": bool(found.retention)}
    return [point for point in unreached() if not whole[point.stage]]


def unreached() -> list[Point]:
    """What takes tracing, a row for each stage; nothing to inject."""
    told = {"save": "rank", "transfer": "rank", "snapshot": "controller", "retention": "controller"}
    return [
        Point(stage=stage, who=who, words="inside its calls on files", rank=0, phase="", fault="")
        for stage, who in told.items()
    ]


def _of_rank(stage: str, rank: int, calls: Sequence[Call]) -> Iterator[Point]:
    for call, nth, words, left in choose(calls):
        fault = CrashInCall(call=call.name, file=call.path, nth=nth, left=left)
        yield _point(stage, f"rank {rank}", words, rank, stage, fault)


def _between(rank: int) -> Iterator[Point]:
    """Crashes between the ranks, and between a rank's report and the controller's commit."""
    who, late = f"rank {rank}", CrashInCall(call="openat", file=f"__{rank}_0{SHARD}", late_s=PATIENCE_S)
    yield _point("transfer", who, "before its copy, the other ranks having made theirs", rank, "transfer", late)
    yield _point("report", who, "before it reports", rank, "report", Kill())
    yield _point("report", who, "after its report, before the commit", rank, "commit", Kill())


def _of_snapshot(calls: Sequence[Call]) -> Iterator[Point]:
    for call, nth, words, left in choose(calls):
        fault = CrashControllerInCall(call=call.name, file=SNAPSHOT, nth=nth, left=left)
        yield _point("snapshot", "controller", words.replace(f" {call.path}", " the snapshot"), 0, "report", fault)


def _of_retention(calls: Sequence[Call]) -> Iterator[Point]:
    """Of the calls that delete a checkpoint the first, one in the middle and the last."""
    for number in sorted({0, len(calls) // 2, len(calls) - 1}) if calls else ():
        call = calls[number]
        fault = CrashControllerInCall(call=call.name, file=call.path)
        words = f"before {call.name} of {_told(call.path)}, {number} of {len(calls)} deleted"
        yield _point("retention", "controller", words, 0, "report", fault)


def _point(stage: str, who: str, words: str, rank: int, phase: str, fault: Fault) -> Point:
    values = dataclasses.asdict(fault)
    file = str(values.get("file", ""))
    return Point(
        stage=stage, who=who, words=words, rank=rank, phase=phase, fault=fault.name, values=values, file=file
    )  # fmt: skip


Choice = tuple[Call, int, str, float]
"""A call, which of its kind on its file, where that is in words, and which part of the file is left."""


def choose(calls: Sequence[Call]) -> list[Choice]:
    """The calls worth a crash, file after file in the order of their first call."""
    return [choice for path in dict.fromkeys(call.path for call in calls) for choice in _of_file(path, calls)]


def _of_file(path: str, calls: Sequence[Call]) -> Iterator[Choice]:
    mine = [call for call in calls if call.path == path]
    names = [call.name for call in mine]
    written = [name for name in names if name in WRITES]
    for name in dict.fromkeys(names):
        call = mine[names.index(name)]
        if name in WRITES:
            yield call, 1, f"before the first byte of {path}", 1.0
            if len(written) > 2:
                nth = names.count(name) // 2 + 1
                yield call, nth, f"in the middle of {path}, before {name} {nth} of {names.count(name)}", 1.0
        elif name == "close":
            if 0 < len(written) <= 2:
                yield call, 1, f"in the middle of a write of {path}", HALF
        else:
            yield call, 1, f"before {name} of {_told(path)}", 1.0


def _told(path: str) -> str:
    return "its folder" if path == "." else path
