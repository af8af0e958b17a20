"""What a group of another size must hold after loading: the digests of its own shards, cut from the stored checkpoint.

A digest covers the shape and the offsets of a piece. So shards that were saved by 3 ranks and restored by 2 cannot be
compared with each other: each must be compared with the tensor that they are parts of.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from metrics.checkpoints.dcp import Stored
from metrics.checkpoints.scan import pieces
from metrics.checkpoints.values import STAMP

if TYPE_CHECKING:
    import torch

Parts = dict[str, str | None]
"""Digests by piece; None where ranks that should agree do not."""

Offsets = tuple[int, ...]

PIECE = re.compile(r"(?P<name>.+)@(?P<offsets>(\d+(,\d+)*)?)", re.DOTALL)


def expected_parts(folder: Path, saved: Parts, told: Iterable[str]) -> Parts:
    """What ranks that told these pieces must hold, after a save by a group of another size; stamps left out.

    Only tensors that are cut otherwise than at the save are read from the checkpoint. One that is not what was saved
    there has no right digest at all: None.
    Raises BadCheckpoint when it is needed and cannot be read.
    """
    before, after = _by_name(saved), _by_name(told)
    cut = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    found = {key: digest for key, digest in saved.items() if not key.startswith(STAMP) and _name(key) not in cut}
    if not cut:
        return found
    stored = Stored(folder)
    on_disk = {piece.place.key: piece.digest for piece in pieces(folder)}
    for name in cut:
        keys = [key for key in saved if _name(key) == name]
        sound = all(saved[key] is not None and saved[key] == on_disk.get(key) for key in keys)
        digests = _cut(name, stored.value(name), after[name])
        found |= digests if sound else dict.fromkeys(digests)
    return found


def _by_name(keys: Iterable[str]) -> dict[str, set[Offsets]]:
    """Offsets of the pieces of each tensor; of a plain value, none."""
    found: dict[str, set[Offsets]] = {}
    for key in keys:
        if not key.startswith(STAMP):
            found.setdefault(_name(key), set()).update(_offsets(key))
    return found


def _name(key: str) -> str:
    whole = PIECE.fullmatch(key)
    return whole["name"] if whole else key


def _offsets(key: str) -> list[Offsets]:
    whole = PIECE.fullmatch(key)
    return [tuple(map(int, whole["offsets"].split(","))) if whole["offsets"] else ()] if whole else []


def _cut(name: str, whole: torch.Tensor, offsets: set[Offsets]) -> Parts:
    """Digests of a tensor's pieces that begin at these offsets; each reaches to the next one, or to the end."""
    from chaos.digest import piece_key, tensor_digest

    ends = [_ends({place[dim] for place in offsets}, size) for dim, size in enumerate(whole.shape)]
    found: Parts = {}
    for place in offsets:
        slices = tuple(slice(begin, ends[dim][begin]) for dim, begin in enumerate(place))
        found[piece_key(name, place)] = tensor_digest(name, tuple(whole.shape), place, whole[slices])
    return found


def _ends(begins: set[int], size: int) -> dict[int, int]:
    """Where the piece ends that begins at each of these places of one dimension."""
    return dict(itertools.pairwise([*sorted(begins), size]))
