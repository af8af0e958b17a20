"""Whatever a live test has started ends with it, also when the test fails or times out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live import command


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """Interrupt commands that outlive the tests that started them; they heal by themselves."""
    yield
    command.end_all()
