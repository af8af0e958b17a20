"""What the tests of verifying share: a sound checkpoint of two ranks, and copies that may be spoilt."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.metrics.verify.findings import WORLD
from tests.shards import save_values, whole


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state at step 8, saved by two ranks."""
    return save_values(tmp_path_factory.mktemp("original") / "checkpoint", whole(8), WORLD)


@pytest.fixture
def checkpoint(original: Path, tmp_path: Path) -> Path:
    """A copy that the test may spoil."""
    return Path(shutil.copytree(original, tmp_path / "checkpoint"))
