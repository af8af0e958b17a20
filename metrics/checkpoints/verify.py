"""Verifying any checkpoint of torch.distributed.checkpoint from its files alone, without Ray and executing nothing.

Five checks: the metadata can be read; files and metadata fit together; every piece can be decoded and has its checksum;
every piece has the digest that was recorded for it; groups of any size up to a bound could load every value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chaos.history import NAME, History
from metrics.attempts import attempts_of
from metrics.checkpoints import layout
from metrics.checkpoints.content import saved_parts
from metrics.checkpoints.dcp import METADATA, BadCheckpoint, coherent, read_metadata
from metrics.checkpoints.layout import Place, places_of
from metrics.checkpoints.scan import Looked, scan
from metrics.verdict import Finding, Verdict, worst_of

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import Metadata

Parts = Mapping[str, str | None]
"""Digests by piece; None where ranks that should agree did not."""

SHOWN = 20
"""How many names are listed as evidence."""

SCHEMA = 1


class Digests(msgspec.Struct, frozen=True, kw_only=True):
    """A file of recorded digests, as ``--record`` writes it."""

    schema: int = SCHEMA
    checkpoint: str
    pieces: dict[str, str]


@dataclass(frozen=True)
class Recorded:
    """Digests to compare with, and who recorded them."""

    parts: Parts
    source: str


@dataclass(frozen=True)
class Verification:
    """The findings on one checkpoint; its pieces and their bytes; ``digests`` by piece, if all have one."""

    findings: tuple[Finding, ...]
    pieces: int = 0
    size: int = 0
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The worst of the findings."""
        return worst_of(self.findings)


def verify(
    folder: Path,
    recorded: Recorded | None = None,
    worlds: int = 4,
    *,
    digests: bool = False,
    begin: Callable[[int], None] = lambda size: None,
    told: Callable[[int], None] = lambda size: None,
) -> Verification:
    """Verify a checkpoint directory; ``worlds``: the largest group whose loading is tried.

    ``digests`` takes digests even where none are recorded. ``begin`` is told how many bytes there are to read, and
    ``told`` how many were just read, from several threads.
    """
    expected = f"{METADATA} is the metadata of a checkpoint and asks for nothing that would have to be executed"
    try:
        metadata = read_metadata(folder)
        places = places_of(folder, metadata)
        if not places and metadata.state_dict_metadata:
            raise BadCheckpoint(f"{folder / METADATA} places nothing")
    except BadCheckpoint as error:
        local = not (folder / METADATA).exists() and any(folder.glob(f"__*{METADATA}"))
        verdict = Verdict.UNKNOWN if local else Verdict.FAIL
        seen = "every rank wrote metadata of its own (use_collectives=False), which are not read" if local else error
        return Verification((Finding("metadata", verdict, expected, str(seen), METADATA),))
    size = sum(max(0, place.length) for place in places)
    begin(size)
    looked = scan(folder, places, digests=digests or bool(recorded), checksums=not recorded, told=told)
    findings = (
        Finding("metadata", Verdict.PASS, expected, f"{len(metadata.state_dict_metadata)} values", METADATA),
        _sound(folder, "layout", lambda: _layout(folder, metadata, places)),
        _content(looked, recorded),
        _digests(looked, recorded),
        _sound(folder, "loadable", lambda: _loadable(metadata, places, looked, worlds)),
    )
    counting = [one for one in looked if one.place.counts]
    found = {one.place.key: one.digest for one in counting if one.digest}
    return Verification(findings, len(places), size, found if len(found) == len(counting) else {})


def _sound(folder: Path, name: str, check: Callable[[], Finding]) -> Finding:
    """The finding of a check that believes the metadata, which fails it where they contradict themselves."""
    try:
        with coherent(folder):
            return check()
    except BadCheckpoint as error:
        return Finding(name, Verdict.FAIL, "metadata that do not contradict themselves", str(error), METADATA)


def _layout(folder: Path, metadata: Metadata, places: list[Place]) -> Finding:
    """Files and metadata fit together."""
    expected = "every byte of a shard belongs to one piece, and the pieces make up every value exactly once"
    flaws = [*layout.flaws_of_files(folder, places), *layout.flaws_of_values(metadata, places)]
    if flaws:
        return _failed("layout", expected, flaws)
    files = len({place.file for place in places})
    others = layout.other_files(folder, places)
    beside = f"; {len(others)} other files beside them, first {others[0]}" if others else ""
    return Finding("layout", Verdict.PASS, expected, f"{len(places)} pieces in {files} files{beside}", "")


def _failed(name: str, expected: str, flaws: list[str]) -> Finding:
    more = f" (and {len(flaws) - 1} more)" if len(flaws) > 1 else ""
    return Finding(name, Verdict.FAIL, expected, flaws[0] + more, "", {"flaws": flaws[:SHOWN]})


def _content(looked: list[Looked], recorded: Recorded | None) -> Finding:
    """Every piece can be decoded as what the metadata say, and has the checksum in its archive."""
    name, expected = (
        "content",
        "every piece is decoded as what the metadata say, with the checksum that it was stored with",
    )
    if not looked:
        return Finding(name, Verdict.UNKNOWN, expected, "no piece is stored, so nothing was looked at", "")
    if flaws := [f"{one.place.name} in {one.place.file}: {one.flaw}" for one in looked if one.flaw]:
        return _failed(name, expected, flaws)
    if undecided := [one for one in looked if one.undecided]:
        first = f"{undecided[0].place.name} in {undecided[0].place.file}: {undecided[0].undecided}"
        seen = f"{len(undecided)} of {len(looked)} pieces cannot be judged, first {first}"
        return Finding(name, Verdict.UNKNOWN, expected, seen, "")
    if recorded:
        return Finding(name, Verdict.PASS, expected, f"{len(looked)} pieces decoded; digests stand for checksums", "")
    if bare := [one for one in looked if not one.checksummed]:
        seen = f"{len(bare)} of {len(looked)} pieces were stored without a checksum, first {bare[0].place.name}"
        return Finding(name, Verdict.UNKNOWN, expected, f"{seen}, and no digests were recorded", "")
    return Finding(name, Verdict.PASS, expected, f"{len(looked)} pieces decoded, their checksums are right", "")


def _digests(looked: list[Looked], recorded: Recorded | None) -> Finding:
    """Every piece has its recorded digest: the only thing that tells a stale or swapped shard."""
    name, expected = "digests", "every piece has the digest that was recorded for it, and none is lacking"
    if recorded is None:
        seen = "none were recorded, so a stale or swapped shard would not be seen (--record, --against)"
        return Finding(name, Verdict.NOT_APPLICABLE, expected, seen, "")
    here = {one.place.key: one for one in looked if one.place.counts}
    if twins := len([one for one in looked if one.place.counts]) - len(here):
        seen = f"{twins} pieces have the name of another one, so records cannot tell them apart"
        return Finding(name, Verdict.UNKNOWN, expected, seen, "")
    flaws = [f"{key} in {here[key].place.file} {_apart(here[key], digest)}" for key, digest in recorded.parts.items()
             if key in here and not (here[key].flaw or here[key].undecided) and here[key].digest != digest]  # fmt: skip
    flaws += [f"{key} is not in the checkpoint" for key in recorded.parts if key not in here]
    flaws += [f"{key} in {here[key].place.file} was never recorded" for key in here if key not in recorded.parts]
    if flaws:
        return _failed(name, f"{expected} ({recorded.source})", flaws)
    if short := [key for key, one in here.items() if not one.digest]:
        seen = f"{len(short)} of {len(here)} pieces could not be read, first {short[0]}"
        return Finding(name, Verdict.UNKNOWN, expected, seen, "")
    return Finding(name, Verdict.PASS, expected, f"{len(here)} pieces equal those of {recorded.source}", "")


def _apart(one: Looked, digest: str | None) -> str:
    if digest is None:
        return "was saved differently by ranks that should agree"
    return "is not what was recorded"


def _loadable(metadata: Metadata, places: list[Place], looked: list[Looked], worlds: int) -> Finding:
    """Every value can be loaded by groups of 1 to ``worlds`` ranks: readable pieces cover torch's read plans."""
    name, expected = "loadable", f"groups of 1 to {worlds} ranks find every number of every value in a readable piece"
    placed: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for one in looked:
        if not one.flaw:
            placed[one.place.name].add(one.place.offsets)
    for world in range(1, worlds + 1):
        if lacking := list(layout.unread(metadata, placed, world)):
            return _failed(name, expected, [f"a group of {world} cannot load {value}" for value in lacking])
    if undecided := [one.place.name for one in looked if one.undecided]:
        seen = f"{len(undecided)} pieces could not be decoded, first {undecided[0]}"
        return Finding(name, Verdict.UNKNOWN, expected, seen, "")
    return Finding(name, Verdict.PASS, expected, f"read plans of {worlds} world sizes are covered", "")


def recorded_in(file: Path) -> Recorded:
    """The digests of a file that ``--record`` wrote.

    Raises ValueError when it is none.
    """
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Digests)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{file} holds no digests as --record writes them: {error}") from error
    if found.schema != SCHEMA:
        raise ValueError(f"{file} holds no digests as --record writes them: its schema is {found.schema}")
    return Recorded(found.pieces, str(file))


def recorded_by_run(folder: Path) -> Recorded | None:
    """The digests that our run recorded when it saved this checkpoint; None where there is no such run or record."""
    run = next((parent for parent in folder.resolve().parents if (parent / NAME).is_file()), None)
    if run is None:
        return None
    attempts = attempts_of(History.load(run))
    saved = saved_parts(attempts)
    for commit in (commit for attempt in attempts for commit in attempt.commits):
        if commit.data["checkpoint"] == folder.resolve().name:
            parts = saved.get((commit.attempt or 0, commit.step or 0))
            return Recorded(parts, f"run {run.name}") if parts else None
    return None
