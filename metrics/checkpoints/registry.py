"""Whether Ray Train's own record of its checkpoints fits what it committed and what lies in the storage.

A new driver resumes from that record, the file ``checkpoint_manager_snapshot.json``, which Ray rewrites in place at
every commit: after a crash it may be cut short, behind, or name what is gone.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from metrics.checkpoints.content import kept, storage_of
from metrics.verdict import Case, Finding, Verdict

FILE = "checkpoint_manager_snapshot.json"

CHECK = "snapshot"


class _Result(msgspec.Struct):
    checkpoint_dir_name: str


class Snapshot(msgspec.Struct):
    """The record, as far as it matters here: the checkpoints it keeps, in order of their commits, and the latest."""

    checkpoint_results: list[_Result]
    latest_checkpoint_result: _Result | None

    @property
    def names(self) -> list[str]:
        """Directory names of the checkpoints it keeps."""
        return [result.checkpoint_dir_name for result in self.checkpoint_results]


def check(case: Case) -> Finding:
    """Ray's record names the checkpoints to keep and no others, the last one committed as the latest; all are there."""
    expected = f"{FILE} names the checkpoints to keep, the last one committed as the latest, and all of them are there"
    commits = [str(commit.data["checkpoint"]) for commit in kept(case)]
    storage = storage_of(case.directory, case.history)
    if not commits or storage is None:
        why = "no checkpoint was committed" if not commits else "where checkpoints went was not recorded"
        none = Verdict.NOT_APPLICABLE if case.record.script and not commits else Verdict.UNKNOWN
        return Finding(CHECK, none, expected, why)
    where = f"storage/{storage.name}/{FILE}"
    try:
        snapshot = msgspec.json.decode((storage / FILE).read_bytes(), type=Snapshot)
    except FileNotFoundError:
        return Finding(CHECK, Verdict.FAIL, expected, f"{FILE} is missing: a new driver would start over", where)
    except msgspec.ValidationError as error:
        seen = f"{FILE} is written as no known version of Ray writes it: {error}"
        return Finding(CHECK, Verdict.UNKNOWN, expected, seen, where)
    except msgspec.DecodeError as error:
        return Finding(
            CHECK, Verdict.FAIL, expected, f"{FILE} cannot be read, so no driver could resume: {error}", where
        )
    committed = {str(commit.data["checkpoint"]) for attempt in case.attempts for commit in attempt.commits}
    if untold := [name for name in snapshot.names if name not in committed and (storage / name).is_dir()]:
        seen = f"it names {untold[0]}, of whose commit no event tells"
        return Finding(CHECK, Verdict.UNKNOWN, expected, seen, where)
    wrong = _wrong(snapshot, commits, storage)
    if wrong and case.history.first("workload.exit") is None:
        return Finding(CHECK, Verdict.UNKNOWN, expected, f"{wrong}; but the history is cut", where)
    seen = wrong or f"{len(commits)} checkpoints, the latest {commits[-1]}"
    evidence = {"names": snapshot.names, "committed": commits}
    return Finding(CHECK, Verdict.FAIL if wrong else Verdict.PASS, expected, seen, where, evidence)


def _wrong(snapshot: Snapshot, commits: list[str], storage: Path) -> str:
    """What is wrong with the record, as a sentence; empty when nothing is."""
    if lacking := [name for name in commits if name not in snapshot.names]:
        return f"it does not name {lacking[0]}, which was committed and is to be kept"
    if extra := [name for name in snapshot.names if name not in commits]:
        return f"it names {extra[0]}, which is not to be kept"
    latest = snapshot.latest_checkpoint_result
    if latest is None or latest.checkpoint_dir_name != commits[-1]:
        named = latest.checkpoint_dir_name if latest else "none"
        return f"its latest checkpoint is {named}, not {commits[-1]}, which was committed last"
    if gone := [name for name in snapshot.names if not (storage / name).is_dir()]:
        return f"it names {gone[0]}, which is not in the storage"
    return ""
