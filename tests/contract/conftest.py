"""No contract test may start or join a cluster, not even by accident."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import ray.data
import ray.train
import ray.train.torch
import ray.util
from ray._private import auto_init_hook
from ray.train.v2._internal import constants

from chaos.agent.callback import Agent
from chaos.agent.plan import VARIABLE, Plan

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ray must not connect, and must not write a log about a controller."""
    monkeypatch.setattr(auto_init_hook, "enable_auto_connect", False)
    monkeypatch.setenv(constants.ENABLE_CONTROLLER_STRUCTURED_LOGGING_ENV_VAR, "0")
    monkeypatch.delenv(VARIABLE, raising=False)
    before = ray.is_initialized()
    yield
    assert ray.is_initialized() == before


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent with a plan, as the controller holds it."""
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    made = Agent()
    made.plan = Plan(run_id="r", directory=str(tmp_path))
    made.plan.write()
    return made
