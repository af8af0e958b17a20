"""Fixtures of the tests of pruning."""

from __future__ import annotations

import pytest

from tests.scenarios.prune.runs import Out


@pytest.fixture
def out(place):
    return Out(place / "runs")
