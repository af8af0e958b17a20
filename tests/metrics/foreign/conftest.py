"""Two checkpoint folders of the same step, filled by a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from metrics.checkpoints.foreign import differences


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


@pytest.fixture
def control(tmp_path: Path) -> Path:
    (tmp_path / "control").mkdir()
    return tmp_path / "control"


@pytest.fixture
def told(mine: Path, control: Path) -> Callable[..., list[str]]:
    """The differences between the two, as text."""
    return lambda within=0.0: [str(gap) for gap in differences(mine, control, within)]
