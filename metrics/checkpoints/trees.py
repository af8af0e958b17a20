"""Where two trees of values differ, name by name, bit by bit; and which names tell of time and place only."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from metrics.checkpoints.archive import BadArchive
from metrics.checkpoints.arrays import Array, apart
from metrics.checkpoints.dcp import BadCheckpoint
from metrics.checkpoints.pickled import SETS, BytesOnly, Call, Nth, Symbol, Unreadable
from metrics.checkpoints.saved import opened
from metrics.checkpoints.values import SHOWN, Gap, distance

TIMES = re.compile(
    r"(^|_)(time|times|timestamp|runtime|walltime|elapsed|duration|date|datetime|hostname|node_ip|pid)$"
    r"|_per_(second|sec)$"
    r"|^time_[a-z_]+_s$"
)
"""Names, in lower case and without what leads up to a slash, of times, speeds and machines, which no two runs share."""

PLACES = {"output_dir", "logging_dir", "run_name", "dirpath"}
"""Names of the places that a run writes to."""

PATHS = {"best_model_checkpoint", "best_model_path", "last_model_path", "kth_best_model_path"}
"""Names of paths of which only the last part counts: the rest is the place that a run writes to."""

DEEPEST = 100
MOST_VALUES = 4_000_000
"""How deep values may be nested, and how many there may be in one file, for the file to be compared by value."""

MOST_GAPS = 10_000
"""Differences beyond which they are counted only."""

ABSENT = object()

PLAIN = (str, int, float, bool, bytes, complex, type(None), Symbol)


@dataclass(frozen=True)
class Words:
    """How the two sides are called: as those that hold something, and as the other one."""

    mine: str = "the run"
    control: str = "the control run"
    other: str = "control"


@dataclass(frozen=True)
class Broken:
    """Stands for a value that cannot be read; ``why`` names its file."""

    why: str


@dataclass
class Found:
    """What comparing has found so far.

    ``passed``: differences that were passed over, by name. ``as_bytes``: files that could only be compared as bytes,
    and why. ``beyond``: how many differences are not in ``gaps``.
    """

    words: Words = Words()
    within: float = 0.0
    gaps: list[Gap] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    as_bytes: list[str] = field(default_factory=list)
    beyond: int = 0

    def add(self, gap: Gap) -> None:
        """Take in a difference."""
        if len(self.gaps) < MOST_GAPS:
            self.gaps.append(gap)
        else:
            self.beyond += 1

    def lone(self, name: str, mine: bool, file: str = "") -> None:
        """Take in what only one side holds."""
        self.add(
            Gap(name, False, math.inf, f"only {self.words.mine if mine else self.words.control} holds it", "", file)
        )


def compare(found: Found, file: str, mine: Any, control: Any, root: str = "") -> None:
    """Find where two trees differ. ``file``: what differences are said to lie in; ``root``: the name of the whole.

    Raises Unreadable when a tree turns out not to be readable, and BadCheckpoint for what is broken in the control.
    """
    _Walk(found, file, root).pair("", "", mine, control, 0)


class _Walk:
    """One walk through two trees."""

    def __init__(self, found: Found, file: str, root: str) -> None:
        self.found, self.file, self.root, self.left = found, file, root or file, MOST_VALUES

    def _place(self, name: str) -> str:
        """The file that a value is said to lie in; none where its name is that of the file."""
        return self.file if name != self.root else ""

    def pair(self, name: str, label: Any, mine: Any, control: Any, depth: int) -> None:
        self.left -= 1
        if depth > DEEPEST or self.left < 0:
            raise BytesOnly(f"its values are nested more than {DEEPEST} deep, or more than {MOST_VALUES}")
        if mine is ABSENT or control is ABSENT:
            self.found.lone(name or self.root, mine is not ABSENT, self._place(name or self.root))
            return
        mine, control = opened(mine), opened(control)
        children = _children(mine, control)
        if children is None:
            self._leaves(name or self.root, label, mine, control)
            return
        for child, ours, theirs in children:
            self.pair(
                f"{name}.{printable(str(child))}" if name else printable(str(child)), child, ours, theirs, depth + 1
            )

    def _leaves(self, name: str, label: Any, mine: Any, control: Any) -> None:
        if type(control) is Broken:
            raise BadCheckpoint(control.why)
        if type(mine) is Broken:
            self._gap(name, math.inf, mine.why)
        elif type(mine) is Array and type(control) is Array:
            self._arrays(name, mine, control)
        elif not _same(mine, control):
            if _passed(label, mine, control):
                self.found.passed.append(": ".join(part for part in (self._place(name), name) if part))
                return
            far = _distance(mine, control)
            if not 0 < self.found.within >= far:
                self._gap(name, far, _both(mine, control, self.found.words.other))

    def _arrays(self, name: str, mine: Array, control: Array) -> None:
        if str(mine) != str(control):
            self._gap(name, math.inf, f"{mine}, {self.found.words.other} {control}", tensor=True)
            return
        try:
            far = apart(mine, control)
        except (BadArchive, OSError) as error:
            raise Unreadable(str(error)) from error
        if not far.odd or 0 < self.found.within >= far.most:
            return
        if mine.sort == "bytes":
            why = f"differs from byte {far.first} on"
        elif math.isinf(far.most):
            why = f"{far.odd} of {mine.numbers} numbers differ"
        else:
            why = f"{far.most:.3g} apart" + ", by signs of zero or NaN" * (not far.most)
        self._gap(name, far.most, why, str(mine), tensor=True)

    def _gap(self, name: str, far: float, why: str, kind: str = "", tensor: bool = False) -> None:
        self.found.add(Gap(name, tensor, far, why, kind, self._place(name)))


def _children(mine: Any, control: Any) -> Iterator[tuple[Any, Any, Any]] | None:
    """What two values are made of, in pairs with labels; None where they are leaves, or not made alike."""
    if type(mine) is not type(control):
        return None
    if type(mine) is dict:
        return _pairs(mine, control)
    if type(mine) in (list, tuple) and not (_leaf(mine) and _leaf(control)):
        return ((place, *pair) for place, pair in enumerate(zip_longest(mine, control, fillvalue=ABSENT)))
    if type(mine) is Call and mine.what == control.what:
        return _pairs(_fields(mine), _fields(control))
    return None


def _pairs(mine: dict[Any, Any], control: dict[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    for label, theirs in control.items():
        yield label, mine.get(label, ABSENT), theirs
    for label, ours in mine.items():
        if label not in control:
            yield label, ours, ABSENT


def _fields(made: Call) -> dict[Any, Any]:
    """What a call is made of, by label: arguments in brackets; items by number, those of a set by what they are."""
    if made.what in SETS and all(type(item) in PLAIN for item in made.items):
        return {repr(item): item for item in made.items}
    found: dict[Any, Any] = {f"({number})": arg for number, arg in enumerate(made.args)}
    found |= {Nth(number): item for number, item in enumerate(made.items)}
    match made.state, made.entries:
        case dict() as state, entries if not entries and not found.keys() & state.keys():
            return found | state
        case None, entries if not found.keys() & entries.keys():
            return found | entries
    return found | {"state": made.state, "entries": made.entries}


def _leaf(value: Any) -> bool:
    """Whether it is one plain value, or a row of them."""
    return type(value) in PLAIN or (type(value) in (list, tuple) and all(type(item) in PLAIN for item in value))


def _same(mine: Any, control: Any) -> bool:
    """Whether two leaves are equal to the bit, types included; their text tells, NaN and signs of zero, too."""
    return type(mine) is type(control) and _leaf(mine) and _leaf(control) and repr(mine) == repr(control)


def _passed(label: Any, mine: Any, control: Any) -> bool:
    """Whether a difference of plain values at that label tells of time and place only."""
    if type(label) is not str or not (_leaf(mine) and _leaf(control)):
        return False
    name = label.rpartition("/")[2].lower().replace("-", "_")
    if name in PATHS and type(mine) is type(control) is str:
        return mine.rstrip("/").rpartition("/")[2] == control.rstrip("/").rpartition("/")[2]
    return name in PLACES or TIMES.search(name) is not None


def _distance(mine: Any, control: Any) -> float:
    """The largest difference between two leaves; infinite where it is none of floats."""
    if type(mine) is type(control) and type(mine) in (list, tuple) and len(mine) == len(control):
        return max((_distance(one, other) for one, other in zip(mine, control, strict=True)), default=0.0)
    if _same(mine, control):
        return 0.0
    numbers = type(mine) in (int, float) and type(control) in (int, float)
    return distance(mine, control) if numbers and float in (type(mine), type(control)) else math.inf


def _both(mine: Any, control: Any, other: str) -> str:
    """Two leaves that differ, as text; of long ones, the first place where they do."""
    ours, theirs = _shown(mine), _shown(control)
    if len(ours) < SHOWN > len(theirs) or type(mine) is not type(control):
        return f"{ours}, {other} {theirs}"
    if type(mine) in (list, tuple):
        pairs = enumerate(zip(mine, control, strict=False))
        place = next((place for place, (one, two) in pairs if not _same(one, two)), None)
        if place is None:
            return f"{len(mine)} items, {other} {len(control)}"
        return f"item {place} is {_shown(mine[place])}, {other} {_shown(control[place])}"
    if type(mine) in (str, bytes):
        place = next((at for at, (a, b) in enumerate(zip(mine, control, strict=False)) if a != b), len(mine))
        return f"{_shown(mine[place:])} from place {place} on, {other} {_shown(control[place:])}"
    return f"{ours}, {other} {theirs}"


def _shown(value: Any) -> str:
    """A value as text that is not too long; of what is no leaf, only what it is."""
    if type(value) is Call:
        return f"a {value.what}"
    if type(value) is dict or not _leaf(value):
        return str(value) if type(value) is Array else f"a {type(value).__name__} of {len(value)}"
    cut = value[:SHOWN] if isinstance(value, (str, bytes, list, tuple)) else value
    return repr(cut)[:SHOWN]


def printable(text: str) -> str:
    """A name as it is, or escaped where it holds what a terminal could take for a command."""
    return text if text.isprintable() else repr(text)[1:-1]
