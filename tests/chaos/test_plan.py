"""The plan: stored and read back, and its claims, which are taken once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from chaos.agent.plan import VARIABLE, Injection, Plan
from chaos.agent.session import claim


@pytest.fixture
def full(tmp_path):
    injections = (Injection(id="a", fault="kill", rank=1, step=25), Injection(id="b", fault="kill", rank=0, step=3))
    return Plan(run_id="run1", directory=str(tmp_path), injections=injections)


def test_a_plan_is_read_as_it_was_written(full):
    assert Plan.read(full.write()) == full


def test_writing_makes_the_folders(full):
    full.write()
    assert full.events.is_dir()
    assert full.board.is_dir()
    full.write()


def test_the_environment_names_the_plan(full, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(full.write()))
    assert Plan.from_environment() == full


@pytest.mark.parametrize("value", [None, ""])
def test_outside_a_run_there_is_no_plan(monkeypatch, value):
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert Plan.from_environment() is None


def test_a_claim_is_taken_once(plan):
    assert claim(plan, "fired-a") is True
    assert claim(plan, "fired-a") is False
    assert claim(plan, "fired-b") is True
    assert sorted(path.name for path in plan.board.iterdir()) == ["fired-a", "fired-b"]


def test_of_many_at_once_one_takes_the_claim(plan):
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(lambda _: claim(plan, "fired-a"), range(32))) == [False] * 31 + [True]
