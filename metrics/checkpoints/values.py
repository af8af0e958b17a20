"""How far the values of two checkpoints are apart, whatever the world sizes that saved them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metrics.checkpoints.dcp import BadCheckpoint, Stored

if TYPE_CHECKING:
    import torch

STAMP = "stamp.rank"
"""What the names of stamps begin with: there is one for each rank, so a group of another size leaves others."""

SHOWN = 60
"""How much of a plain value is shown."""


@dataclass(frozen=True)
class Gap:
    """How far the values of one name are apart: 0 where they are equal, infinite where no number tells.

    ``why``: what sets them apart, for people. ``kind``: type and shape of an array, where both sides have the same.
    ``file``: where the value lies, if the checkpoint has several files.
    """

    name: str
    tensor: bool
    apart: float
    why: str
    kind: str = ""
    file: str = ""

    def __str__(self) -> str:
        told = f"{self.name} ({self.kind})" if self.kind else self.name
        return ": ".join(part for part in (self.file, told, self.why) if part)


def gaps(mine: Path, control: Path) -> list[Gap]:
    """The gap of every value but the stamps, by name, between two checkpoint directories.

    What only one of them holds, or ``mine`` does not let read, is infinitely far apart.
    Raises BadCheckpoint when ``control`` cannot be read.
    """
    theirs = Stored(control)
    try:
        ours = Stored(mine)
    except BadCheckpoint as error:
        return [Gap(mine.name, False, math.inf, str(error))]
    held, wanted = ({name for name in side.names if not name.startswith(STAMP)} for side in (ours, theirs))
    sides = ((held - wanted, "run"), (wanted - held, "control run"))
    lone = [Gap(name, False, math.inf, f"only the {side} holds it") for names, side in sides for name in names]
    return sorted([*lone, *(_gap(name, ours, theirs) for name in held & wanted)], key=lambda gap: gap.name)


def _gap(name: str, ours: Stored, theirs: Stored) -> Gap:
    import torch

    control = theirs.value(name)
    tensor = isinstance(control, torch.Tensor)
    try:
        mine = ours.value(name)
    except BadCheckpoint as error:
        return Gap(name, tensor, math.inf, str(error))
    apart = distance(mine, control)
    why = f"{apart:.3g} apart" if math.isfinite(apart) else f"{_shown(mine)}, control {_shown(control)}"
    return Gap(name, tensor, apart, why)


def _shown(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return repr(value)[:SHOWN]


def distance(mine: Any, control: Any) -> float:
    """The largest absolute difference between two values, in their own unit; never NaN.

    0 where they are equal. Infinite where they differ and are no floats, where shape, type or length differ, and where
    either is NaN. Random states are tensors of bytes: equal or infinitely far apart.
    """
    match mine, control:
        case (Mapping(), Mapping()) if mine.keys() == control.keys():
            return max((distance(value, control[key]) for key, value in mine.items()), default=0.0)
        case (list(), list()) | (tuple(), tuple()) if len(mine) == len(control):
            return max((distance(a, b) for a, b in zip(mine, control, strict=True)), default=0.0)
        case (float(), int() | float()) | (int(), float()):
            return _numbers(float(mine), float(control))
        case _ if _is_tensor(mine) and _is_tensor(control):
            return _tensors(mine, control)
    return 0.0 if type(mine) is type(control) and not _is_tensor(mine) and mine == control else math.inf


def _numbers(mine: float, control: float) -> float:
    if mine == control:
        return 0.0
    apart = abs(mine - control)
    return math.inf if math.isnan(apart) else apart


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _tensors(mine: torch.Tensor, control: torch.Tensor) -> float:
    """The same, in double precision; infinities of one sign are equal, as minus infinity in a mask."""
    import torch

    if mine.shape != control.shape or mine.dtype != control.dtype:
        return math.inf
    if not (mine.is_floating_point() or mine.is_complex()):
        return 0.0 if torch.equal(mine, control) else math.inf
    wide = torch.complex128 if mine.is_complex() else torch.float64
    first, second = mine.to(wide), control.to(wide)
    apart = torch.where(first == second, 0.0, (first - second).abs())
    largest = float(apart.max()) if apart.numel() else 0.0
    return math.inf if math.isnan(largest) else largest
