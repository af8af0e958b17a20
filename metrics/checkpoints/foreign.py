"""Comparing two stored checkpoints of the same step, in whatever form a training script stored them.

Nothing in them is executed, and memory does not grow with them, but for what ``docs/comparing-checkpoints.md`` names.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from metrics.checkpoints.archive import BadArchive
from metrics.checkpoints.arrays import apart, raw
from metrics.checkpoints.dcp import METADATA, BadCheckpoint
from metrics.checkpoints.folders import files_of, opened_file
from metrics.checkpoints.forms import File, content, form_of, values
from metrics.checkpoints.pickled import BytesOnly, Unreadable
from metrics.checkpoints.sharded import shards, tree_of
from metrics.checkpoints.trees import Found, Words, compare, printable
from metrics.checkpoints.values import Gap

STATES = ("torch.save", "safetensors", "numpy", "pickle")
"""Forms that hold the state of a training, in the order in which they are told; others are others."""

Files = dict[str, Path]
"""The files of a checkpoint by their names in it."""


@dataclass(frozen=True)
class Comparison:
    """What sets two checkpoints apart, and what that rests on.

    ``passed``: values that differ, but whose names tell of time and place only. ``as_bytes``: files that were compared
    as bytes, though they seem to hold values, and why. ``beyond``: how many differences are not in ``gaps``. ``files``
    and ``size`` are of the control, in bytes.
    """

    gaps: tuple[Gap, ...]
    passed: tuple[str, ...]
    as_bytes: tuple[str, ...]
    beyond: int
    files: int
    size: int


def differences(mine: Path, control: Path, within: float = 0.0) -> list[Gap]:
    """What sets two checkpoints of the same step apart, in the order of their files; empty where nothing does.

    Bitwise by default; floats may be ``within`` of each other. Raises BadCheckpoint when ``control`` cannot be read.
    """
    return list(compared(mine, control, within).gaps)


def compared(mine: Path, control: Path, within: float = 0.0, words: Words | None = None) -> Comparison:
    """The same with what it rests on. Two files can be compared as two folders can."""
    if mine.is_file() and control.is_file():
        ours, theirs = {control.name: mine}, {control.name: control}
    else:
        ours, theirs = files_of(mine), files_of(control)
    if not theirs:
        raise BadCheckpoint(f"{control} holds no file, so there is nothing to compare")
    files, size = len(theirs), sum(path.stat().st_size for path in theirs.values() if path.is_file())
    found = Found(words or Words(), within)
    _Pair(found, mine, control, ours, theirs).compare()
    lists = tuple(found.gaps), tuple(found.passed), tuple(found.as_bytes)
    return Comparison(*lists, found.beyond, files, size)


@dataclass
class _Pair:
    """Two checkpoints under comparison, and their files that are still to be compared."""

    found: Found
    mine: Path
    control: Path
    ours: Files
    theirs: Files

    def compare(self) -> None:
        """Compare what is sharded, then file by file; the names of files are told where there are several."""
        sharded = [name for name in self.theirs if PurePosixPath(name).name == METADATA and name in self.ours]
        several = bool(sharded) or len(self.ours.keys() | self.theirs.keys()) > 1
        for name in sharded:
            self._sharded(name)
        for name in self.theirs:
            if name in self.ours:
                self._file(name, printable(name) if several else "")
            else:
                self.found.lone(printable(name), mine=False)
        for name in sorted(self.ours.keys() - self.theirs.keys()):
            self.found.lone(printable(name), mine=True)

    def _sharded(self, name: str) -> None:
        """Compare two folders of torch.distributed.checkpoint, whose files are then done with."""
        place = PurePosixPath(name).parent
        theirs, accounted = tree_of(self.control / place), shards(self.control / place)
        try:
            ours, accounted = tree_of(self.mine / place), accounted | shards(self.mine / place)
        except BadCheckpoint as error:
            self._gap(printable(name), str(error))
        else:
            self._trees(place, ours, theirs)
        for file in (str(place / file) for file in accounted):
            self.ours.pop(file, None)
            self.theirs.pop(file, None)

    def _trees(self, place: PurePosixPath, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
        try:
            compare(self.found, "" if place == PurePosixPath() else printable(str(place)), ours, theirs)
        except Unreadable as error:
            raise BadCheckpoint(f"{self.control / place} cannot be compared: {error}") from error

    def _file(self, name: str, told: str) -> None:
        with ExitStack() as stack:
            theirs = stack.enter_context(opened_file(self.control, name, self.theirs[name]))
            try:
                ours = stack.enter_context(opened_file(self.mine, name, self.ours[name]))
            except BadCheckpoint as error:
                self._gap(printable(name), str(error))
                return
            try:
                if not _equal(ours, theirs):
                    self._differing(printable(name), told, ours, theirs)
            except (Unreadable, BadArchive, OSError) as error:
                raise BadCheckpoint(f"{name} cannot be read to its end: {error}") from error

    def _differing(self, name: str, told: str, ours: File, theirs: File) -> None:
        """Compare two files whose bytes differ by what they hold; as bytes where neither can be read, or one is large.

        One that is broken is a difference; in the control, it leaves nothing to compare with.
        """
        forms = form_of(ours), form_of(theirs)
        if forms[0] != forms[1] and all(forms) and "zip" not in forms:
            self._gap(name, f"{forms[0]}, {self.found.words.other} {forms[1]}")
            return
        read = _read(ours, forms[0] or forms[1]), _read(theirs, forms[1] or forms[0])
        match read:
            case (BytesOnly() as error, _) | (_, BytesOnly() as error) | (Unreadable() as error, Unreadable()):
                self._bytes(name, told, ours, theirs, str(error))
            case _, Unreadable() as error:
                raise BadCheckpoint(f"{self.theirs[theirs.name]} cannot be read: {error}")
            case Unreadable() as error, _:
                self._gap(name, f"cannot be read: {error}")
            case _:
                self._values(name, told, ours, theirs, read)

    def _values(self, name: str, told: str, ours: File, theirs: File, read: tuple[Any, Any]) -> None:
        known = len(self.found.gaps), len(self.found.passed)
        try:
            compare(self.found, told, *read, name)
        except Unreadable as error:
            del self.found.gaps[known[0] :], self.found.passed[known[1] :]
            self._bytes(name, told, ours, theirs, str(error))

    def _bytes(self, name: str, told: str, ours: File, theirs: File, why: str) -> None:
        self.found.as_bytes.append(f"{name}: {why}")
        compare(self.found, told, content(ours), content(theirs), name)

    def _gap(self, name: str, why: str) -> None:
        self.found.add(Gap(name, False, math.inf, why))


def _read(file: File, form: str) -> Any:
    """What a file holds; why it cannot be read, as an error, where it cannot."""
    try:
        return values(file, form)
    except Unreadable as error:
        return error
    except (BadArchive, OSError) as error:
        return Unreadable(str(error))


def _equal(mine: File, control: File) -> bool:
    """Whether two files hold the same bytes."""
    sides = (raw(one.handle, 0, one.size) for one in (mine, control))
    return mine.size == control.size and not apart(*sides).odd


def kinds(folder: Path) -> str:
    """What a checkpoint is made of, in words: ``DCP, 2 shards`` or ``safetensors, 3 files, 2 others``.

    Raises BadCheckpoint when it cannot be listed.
    """
    found = files_of(folder)
    told, counted = [], Counter[str]()
    for name in [name for name in found if PurePosixPath(name).name == METADATA]:
        place = PurePosixPath(name).parent
        try:
            files = {str(place / file) for file in shards(folder / place)}
        except BadCheckpoint:
            continue
        told.append(f"DCP, {_many(len(files) - 1, 'shard')}")
        found = {name: path for name, path in found.items() if name not in files}
    for name, path in found.items():
        counted[_form(folder, name, path)] += 1
    told += [f"{form}, {_many(counted[form], 'file')}" for form in STATES if counted[form]]
    others = sum(number for form, number in counted.items() if form not in STATES)
    if not told:
        return f"{_many(others, 'file')} of no known form" if others else "nothing"
    return "; ".join(told) + (f", {_many(others, 'other')}" if others else "")


def _form(folder: Path, name: str, path: Path) -> str:
    try:
        with opened_file(folder, name, path) as file:
            return form_of(file)
    except (BadCheckpoint, OSError):
        return ""


def _many(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)
