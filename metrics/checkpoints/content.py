"""Whether restored state and stored bytes are what was saved: by the digests that the workload volunteered."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from chaos.history import NAME, Event, History
from metrics.attempts import Attempt, commits_before
from metrics.checkpoints.dcp import METADATA, BadCheckpoint, Stored
from metrics.checkpoints.resharded import Parts, expected_parts
from metrics.checkpoints.scan import Looked, Unjudged, pieces
from metrics.checkpoints.values import STAMP
from metrics.recovery import cut_short
from metrics.verdict import Case, Finding, Verdict, untold


def saved_parts(attempts: list[Attempt]) -> dict[tuple[int, int], Parts]:
    """Digest of every piece saved, by piece, by (attempt, step), over all ranks of the attempt."""
    found: dict[tuple[int, int], Parts] = defaultdict(dict)
    for attempt in attempts:
        for event in attempt.states:
            if event.data["name"] == "saved":
                merge(found[attempt.number, event.step or 0], event.data["parts"])
    return dict(found)


def merge(into: Parts, parts: dict[str, str]) -> None:
    """Take in the pieces of one more rank; one that ranks disagree on has no digest."""
    for piece, digest in parts.items():
        into[piece] = digest if into.setdefault(piece, digest) == digest else None


def differing(ours: Parts, theirs: Parts) -> list[str]:
    """Pieces that are not the same on both sides; one that ranks disagree on equals nothing."""
    every = ours.keys() | theirs.keys()
    return sorted(piece for piece in every if ours.get(piece) is None or ours.get(piece) != theirs.get(piece))


@dataclass(frozen=True)
class _Load:
    """One attempt's answer: how many pieces were compared; what is wrong or unknown, with the pieces it is about."""

    verdict: Verdict
    seen: str = ""
    pieces: list[str] = field(default_factory=list)
    compared: int = 0


def check_restored(case: Case) -> Finding:
    """What each rank holds after loading is what was saved: weights, optimizer, schedule, random states, position."""
    name, expected = "restored-state", "state after each load equals the state that was saved, piece by piece"
    restarts = [attempt for attempt in case.attempts if attempt.number > 0]
    commits = {attempt.number: commits_before(case.attempts, attempt.number) for attempt in restarts}
    if restarts and not any(commits.values()):
        return Finding(name, Verdict.NOT_APPLICABLE, expected, "no checkpoint was committed before a restart")
    saved = saved_parts(case.attempts)
    if case.record.script and not saved:
        call = 'observe.state("saved", tree) and observe.state("restored", tree)'
        return untold(case, name, expected, "the workload told of no state (observe.state)", call)
    loads = [
        _load(case, saved, attempt, commits[attempt.number][-1]) for attempt in restarts if commits[attempt.number]
    ]
    for verdict in (Verdict.FAIL, Verdict.UNKNOWN):
        if load := next((load for load in loads if load.verdict is verdict), None):
            evidence = {"pieces": load.pieces[:20]} if load.pieces else {}
            return Finding(name, verdict, expected, load.seen, evidence=evidence)
    compared = sum(load.compared for load in loads)
    if not compared:
        return Finding(name, Verdict.UNKNOWN, expected, "nothing was restored, so nothing could be compared")
    return Finding(name, Verdict.PASS, expected, f"{compared} pieces equal")


Held = list[tuple[int | None, dict[str, str]]]
"""What ranks told that they hold: rank, and digests by piece."""


def _load(case: Case, saved: dict[tuple[int, int], Parts], attempt: Attempt, commit: Event) -> _Load:
    """Compare what the ranks of an attempt told after loading with what was saved for that commit."""
    source = saved.get((commit.attempt or 0, commit.step or 0))
    held: Held = [(event.rank, event.data["parts"]) for event in attempt.states if event.data["name"] == "restored"]
    ranks, short = len({rank for rank, _ in held}), attempt.number in cut_short(case)
    if source is None or (ranks < attempt.world_size and not short):
        seen = f"attempt {attempt.number}: {ranks} of {attempt.world_size} ranks told their restored state"
        return _Load(Verdict.UNKNOWN, seen)
    sizes = {a.world_size for a in case.attempts if a.number in (attempt.number, commit.attempt)} - {0}
    if len(sizes) <= 1:
        return _compared(attempt, source, held, whole=not short)
    if ranks < attempt.world_size:
        return _Load(Verdict.PASS)  # how tensors were cut is known only when every rank told of its shards
    return _load_of_another_size(case, attempt, commit, source, held)


def _load_of_another_size(case: Case, attempt: Attempt, commit: Event, source: Parts, held: Held) -> _Load:
    """The same where the save is of another world size: shards and stamps are others, the tensors must not be."""
    storage = storage_of(case.directory, case.history)
    if storage is None:
        return _Load(Verdict.UNKNOWN, "where checkpoints went was not recorded")
    held = [(rank, {p: d for p, d in parts.items() if not p.startswith(STAMP)}) for rank, parts in held]
    try:
        right = expected_parts(storage / _name(commit), source, {piece for _, parts in held for piece in parts})
    except BadCheckpoint as error:
        why = f"attempt {attempt.number} has another world size than the save, whose tensors it takes to compare"
        return _Load(Verdict.UNKNOWN, f"{why}: {error}")
    return _compared(attempt, right, held, whole=True)


def _compared(attempt: Attempt, source: Parts, held: Held, whole: bool) -> _Load:
    """``whole``: whether every saved piece must have been restored on some rank."""
    for rank, parts in held:
        if odd := sorted(piece for piece, digest in parts.items() if source.get(piece) != digest):
            seen = f"attempt {attempt.number}, rank {rank}: {len(odd)} pieces differ, first {odd[0]}"
            return _Load(Verdict.FAIL, seen, odd)
    told = {piece for _, parts in held for piece in parts}
    if whole and (lacking := sorted(source.keys() - told)):
        seen = f"attempt {attempt.number}: {len(lacking)} saved pieces were restored nowhere, first {lacking[0]}"
        return _Load(Verdict.FAIL, seen, lacking)
    return _Load(Verdict.PASS, compared=sum(len(parts) for _, parts in held))


def check_stored(case: Case) -> Finding:
    """Every committed checkpoint that retention keeps is whole on disk, with the digests taken at its save."""
    name, expected = (
        "checkpoints",
        "the checkpoints to keep, and no more, hold every piece with the digest taken at save",
    )
    commits = kept(case)
    if not commits:
        none = Verdict.NOT_APPLICABLE if case.record.script else Verdict.UNKNOWN
        return Finding(name, none, expected, "no checkpoint was committed")
    storage = storage_of(case.directory, case.history)
    if storage is None:
        return Finding(name, Verdict.UNKNOWN, expected, "where checkpoints went was not recorded")
    saved = saved_parts(case.attempts)
    if case.record.script and not saved:
        return _whole(case, name, storage, commits)
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
    return _retained(case, name, expected, storage, f"{len(commits)} checkpoints, {total} pieces equal")


def _whole(case: Case, name: str, storage: Path, commits: list[Event]) -> Finding:
    """Of a user's script, which told no digests: every checkpoint to keep is there, and one of DCP's can be read."""
    expected = "the checkpoints to keep, and no more, are there; those of torch.distributed.checkpoint are whole"
    for commit in commits:
        folder = storage / _name(commit)
        where = f"storage/{storage.name}/{folder.name}"
        if not folder.is_dir() or not size_of(folder):
            return Finding(name, Verdict.FAIL, expected, f"{folder.name} holds nothing", where=where)
        try:
            for metadata in sorted(folder.rglob(METADATA)):
                pieces(metadata.parent)
        except Unjudged as error:
            return Finding(name, Verdict.UNKNOWN, expected, str(error), where=where)
        except BadCheckpoint as error:
            return Finding(name, Verdict.FAIL, expected, str(error), where=where)
    seen = f"{len(commits)} checkpoints, {sum(size_of(storage / _name(c)) for c in commits) / 1e6:.1f} MB"
    return _retained(case, name, expected, storage, seen)


def _retained(case: Case, name: str, expected: str, storage: Path, seen: str) -> Finding:
    """What is there beyond the checkpoints to keep: too many of them, or orphans."""
    commits = kept(case)
    present = {path.name for path in storage.glob("checkpoint_*") if path.is_dir()}
    committed = {_name(commit) for attempt in case.attempts for commit in attempt.commits}
    if extra := sorted((present & committed) - {_name(commit) for commit in commits}):
        seen = f"{len(extra)} checkpoints beyond the {case.record.keep} to keep were not deleted, first {extra[0]}"
        return Finding(name, Verdict.FAIL, expected, seen, where=f"storage/{storage.name}", evidence={"extra": extra})
    orphans = {orphan: size_of(storage / orphan) for orphan in sorted(present - committed)}
    if orphans:
        word = "orphans" if len(orphans) > 1 else "orphan"
        seen += f"; {len(orphans)} {word} (saved, never committed), {sum(orphans.values()) / 1e6:.1f} MB"
    return Finding(name, Verdict.PASS, expected, seen, where=f"storage/{storage.name}", evidence={"orphans": orphans})


def kept(case: Case) -> list[Event]:
    """The commits of the checkpoints that retention keeps, in order; where a score decides, of those that are there."""
    started = case.history.first("controller.start")
    told = {str(event.data["checkpoint"]): event for attempt in case.attempts for event in attempt.commits}
    if started is not None and started.data.get("score"):
        storage = storage_of(case.directory, case.history)
        there = [commit for name, commit in told.items() if storage is not None and (storage / name).is_dir()]
        return there or list(told.values())[-1:]
    return list(told.values())[-case.record.keep :]


def size_of(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _name(commit: Event) -> str:
    return str(commit.data["checkpoint"])


def storage_of(directory: Path, history: History) -> Path | None:
    """The experiment directory: in the run directory, wherever that lies by now, else in the one that it was made in.

    None where that is not told, or where it was somebody's own, who may have other things there by now.
    """
    started = history.first("controller.start")
    if started is None:
        return None
    told = Path(started.data["experiment"])
    moved = directory / "storage" / told.name
    if moved.is_dir():
        return moved
    return told if (told.parents[1] / NAME).exists() else None


def _compare(folder: Path, commit: Event, parts: Parts) -> str:
    """What is wrong with a stored checkpoint, as a sentence; empty when nothing is."""
    try:
        found = pieces(folder)
        stamps = _stamps(folder, found)
    except BadCheckpoint as error:
        return str(error)
    digests = {piece.place.key: piece.digest for piece in found}
    if lacking := sorted(parts.keys() - digests.keys()):
        return f"{folder.name} lacks {len(lacking)} pieces that were saved, first {lacking[0]}"
    if odd := sorted(key for key, digest in digests.items() if parts.get(key) != digest):
        return f"{folder.name}: {len(odd)} pieces differ from what was saved, first {odd[0]}"
    for file in sorted({piece.place.file for piece in found}):
        if stamps.get(file) != commit.step:
            return f"{folder.name}/{file} carries the stamp of step {stamps.get(file)}, not {commit.step}"
    return ""


def _stamps(folder: Path, found: list[Looked]) -> dict[str, int]:
    """The step that each shard file carries."""
    stored = Stored(folder)
    stamps = [piece.place for piece in found if piece.place.name.startswith(STAMP)]
    return {place.file: int(stored.value(place.name)) for place in stamps}
