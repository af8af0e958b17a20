"""Whether restored state and stored bytes are what was saved: by the digests that the workload volunteered."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from chaos.history import Event
from metrics.attempts import Attempt, commits_before
from metrics.checkpoints.dcp import BadCheckpoint, Piece, pieces
from metrics.recovery import cut_short
from metrics.verdict import Case, Finding, Verdict

STAMP = "stamp.rank"


Parts = dict[str, str | None]
"""Digests by piece; None where ranks that should agree do not."""


def saved_parts(attempts: list[Attempt]) -> dict[tuple[int, int], Parts]:
    """Digest of every piece saved, by piece, by (attempt, step), over all ranks of the attempt."""
    found: dict[tuple[int, int], Parts] = defaultdict(dict)
    for attempt in attempts:
        for event in attempt.states:
            if event.data["name"] == "saved":
                _merge(found[attempt.number, event.step or 0], event.data["parts"])
    return dict(found)


def _merge(into: Parts, parts: dict[str, str]) -> None:
    for piece, digest in parts.items():
        into[piece] = digest if into.setdefault(piece, digest) == digest else None


def differing(ours: Parts, theirs: Parts) -> list[str]:
    """Pieces that are not the same on both sides; one that ranks disagree on equals nothing."""
    every = ours.keys() | theirs.keys()
    return sorted(piece for piece in every if ours.get(piece) is None or ours.get(piece) != theirs.get(piece))


def check_restored(case: Case) -> Finding:
    """What each rank holds after loading is what was saved: weights, optimizer, schedule, random states, position."""
    name, expected = "restored-state", "state after each load equals the state that was saved, piece by piece"
    saved = saved_parts(case.attempts)
    compared = 0
    restarts = [attempt for attempt in case.attempts if attempt.number > 0]
    if restarts and not any(commits_before(case.attempts, attempt.number) for attempt in restarts):
        return Finding(name, Verdict.NOT_APPLICABLE, expected, "no checkpoint was committed before a restart")
    short = cut_short(case)
    for attempt in restarts:
        commits = commits_before(case.attempts, attempt.number)
        if not commits:
            continue
        source = saved.get((commits[-1].attempt or 0, commits[-1].step or 0))
        restored = [e for e in attempt.states if e.data["name"] == "restored"]
        if source is None or (len(restored) < attempt.world_size and attempt.number not in short):
            seen = f"attempt {attempt.number}: {len(restored)} of {attempt.world_size} ranks told their restored state"
            return Finding(name, Verdict.UNKNOWN, expected, seen)
        for event in restored:
            if odd := sorted(p for p, digest in event.data["parts"].items() if source.get(p) != digest):
                seen = f"attempt {attempt.number}, rank {event.rank}: {len(odd)} pieces differ, first {odd[0]}"
                return Finding(name, Verdict.FAIL, expected, seen, evidence={"pieces": odd[:20]})
            compared += len(event.data["parts"])
        told = {piece for event in restored for piece in event.data["parts"]}
        if attempt.number not in short and (lacking := sorted(source.keys() - told)):
            seen = f"attempt {attempt.number}: {len(lacking)} saved pieces were restored nowhere, first {lacking[0]}"
            return Finding(name, Verdict.FAIL, expected, seen, evidence={"pieces": lacking[:20]})
    if not compared:
        return Finding(name, Verdict.UNKNOWN, expected, "nothing was restored, so nothing could be compared")
    return Finding(name, Verdict.PASS, expected, f"{compared} pieces equal")


def check_stored(case: Case) -> Finding:
    """Every committed checkpoint that retention keeps is whole on disk, with the digests taken at its save."""
    name, expected = (
        "checkpoints",
        "the checkpoints to keep, and no more, hold every piece with the digest taken at save",
    )
    commits = [event for attempt in case.attempts for event in attempt.commits][-case.record.keep :]
    if not commits:
        return Finding(name, Verdict.UNKNOWN, expected, "no checkpoint was committed")
    started = case.history.first("controller.start")
    if started is None:
        return Finding(name, Verdict.UNKNOWN, expected, "where checkpoints went was not recorded")
    storage = _storage(case, started)
    saved = saved_parts(case.attempts)
    total = 0
    for commit in commits:
        folder = storage / commit.data["checkpoint"]
        parts = saved.get((commit.attempt or 0, commit.step or 0))
        if not parts:
            seen = f"what {folder.name} should hold was not told (observe.state)"
            return Finding(name, Verdict.UNKNOWN, expected, seen)
        if fault := _compare(folder, commit, parts):
            return Finding(name, Verdict.FAIL, expected, fault, where=f"storage/{storage.name}/{folder.name}")
        total += len(parts)
    present = {path.name for path in storage.glob("checkpoint_*") if path.is_dir()}
    committed = {_name(commit) for attempt in case.attempts for commit in attempt.commits}
    if extra := sorted((present & committed) - {_name(commit) for commit in commits}):
        seen = f"{len(extra)} checkpoints beyond the {case.record.keep} to keep were not deleted, first {extra[0]}"
        return Finding(name, Verdict.FAIL, expected, seen, where=f"storage/{storage.name}", evidence={"extra": extra})
    orphans = sorted(present - committed)
    seen = f"{len(commits)} checkpoints, {total} pieces equal"
    seen += f"; {len(orphans)} orphan{'s' if len(orphans) > 1 else ''} (saved, never committed)" if orphans else ""
    return Finding(name, Verdict.PASS, expected, seen, where=f"storage/{storage.name}", evidence={"orphans": orphans})


def _name(commit: Event) -> str:
    return str(commit.data["checkpoint"])


def _storage(case: Case, started: Event) -> Path:
    """The experiment directory: in the run directory, wherever that lies by now, else where it was."""
    told = Path(started.data["experiment"])
    moved = case.directory / "storage" / told.name
    return moved if moved.is_dir() else told


def _compare(folder: Path, commit: Event, parts: Parts) -> str:
    """What is wrong with a stored checkpoint, as a sentence; empty when nothing is."""
    try:
        found = list(pieces(folder))
    except BadCheckpoint as error:
        return str(error)
    digests = {piece.key: piece.digest for piece in found}
    if lacking := sorted(parts.keys() - digests.keys()):
        return f"{folder.name} lacks {len(lacking)} pieces that were saved, first {lacking[0]}"
    if odd := sorted(key for key, digest in digests.items() if parts.get(key) != digest):
        return f"{folder.name}: {len(odd)} pieces differ from what was saved, first {odd[0]}"
    return _stamped(folder, commit.step or 0, found)


def _stamped(folder: Path, step: int, found: list[Piece]) -> str:
    """Every shard file must carry the step of this save."""
    stamps = {piece.file: int(piece.value) for piece in found if piece.key.startswith(STAMP)}
    for file in sorted({piece.file for piece in found}):
        if stamps.get(file) != step:
            return f"{folder.name}/{file} carries the stamp of step {stamps.get(file)}, not {step}"
    return ""
