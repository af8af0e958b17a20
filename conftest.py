"""Fixtures of the project's own tests: tiers by folder, and one live cluster shared by the tests that may share it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TIERS = ("live", "long", "observability")


def pytest_configure() -> None:
    """A job in the background of a shell ignores Ctrl-C, and so would all its children; the tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests below tests/live, tests/long and tests/observability carry the marker of that name."""
    for item in items:
        for tier in TIERS:
            if tier in Path(item.path).parts:
                item.add_marker(tier)


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A live cluster of two workers and the means to run training on it; torn down completely at the end."""
    from tests.live.bench import Bench

    os.environ.pop("RAY_ADDRESS", None)
    with Bench(tmp_path_factory.mktemp("bench")) as made:
        yield made
