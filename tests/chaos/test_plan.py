"""The plan: stored and read back, who is hit, and the board, whose names are taken once."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chaos.agent.plan import VARIABLE, Board, Injection, Plan
from chaos.triggers import after_seconds, at_step, in_phase


@pytest.fixture
def full(tmp_path: Path) -> Plan:
    injections = (
        Injection(id="exit-0", fault="exit", rank=1, trigger=at_step(25), values={"code": 3}),
        Injection(id="exit-1", fault="exit", rank=1, trigger=at_step(5) >> in_phase("save"), follows="exit-0"),
        Injection(id="kill-0", fault="kill", rank=None, node="w1", trigger=after_seconds(2.5)),
    )
    return Plan(run_id="run1", directory=str(tmp_path), injections=injections)


@pytest.fixture
def board(plan: Plan) -> Board:
    return Board(plan.board)


# The plan


def test_a_plan_is_read_as_it_was_written(full: Plan) -> None:
    assert Plan.read(full.write()) == full


def test_the_same_plan_is_written_byte_for_byte(full: Plan) -> None:
    first = full.write().read_bytes()
    assert Plan.read(full.write()).write().read_bytes() == first


@pytest.mark.parametrize("seconds", [0.0, 12.5])
def test_the_patience_of_the_watchdog_is_stored(full: Plan, seconds: float) -> None:
    assert Plan.read(dataclasses.replace(full, watchdog_s=seconds).write()).watchdog_s == seconds


def test_a_plan_from_before_there_was_a_watchdog_has_none(full: Plan) -> None:
    stored = json.loads(full.write().read_text())
    del stored["watchdog_s"]
    Path(full.directory, "plan.json").write_text(json.dumps(stored))
    assert Plan.read(Path(full.directory, "plan.json")) == full
    assert full.watchdog_s == 0


def test_writing_makes_the_folders(full: Plan) -> None:
    full.write()
    assert all(folder.is_dir() for folder in (full.events, full.board, full.stacks))
    full.write()


def test_the_environment_names_the_plan(full: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(full.write()))
    assert Plan.from_environment() == full


@pytest.mark.parametrize("value", [None, ""])
def test_outside_a_run_there_is_no_plan(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert Plan.from_environment() is None


# Who is hit


@pytest.mark.parametrize("node", ["w0", "w1", ""])
def test_a_rank_is_hit_on_whatever_node_it_is(full: Plan, node: str) -> None:
    assert [full.injections[0].hits(rank, node) for rank in range(3)] == [False, True, False]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_node_is_hit_whatever_the_rank(full: Plan, rank: int) -> None:
    assert [full.injections[2].hits(rank, node) for node in ("w0", "w1", "")] == [False, True, False]


def test_a_victim_is_told_in_words(full: Plan) -> None:
    assert [injection.where for injection in full.injections] == ["rank 1", "rank 1", "node w1"]
    assert dataclasses.replace(full.injections[0], rank=0).where == "rank 0"


# The board


def test_a_name_is_taken_once(board: Board, plan: Plan) -> None:
    assert board.claim("fired-a") is True
    assert board.claim("fired-a") is False
    assert board.claim("fired-b") is True
    assert sorted(path.name for path in plan.board.iterdir()) == ["fired-a", "fired-b"]


def test_of_many_at_once_one_takes_the_name(board: Board) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(lambda _: board.claim("fired-a"), range(32))) == [False] * 31 + [True]


def test_a_successor_finds_what_was_taken(board: Board, plan: Plan) -> None:
    board.claim("steady-0", "17.5")
    later = Board(plan.board)
    assert later.has("steady-0")
    assert later.read("steady-0") == "17.5"
    assert not later.claim("steady-0", "99")
    assert later.read("steady-0") == "17.5"


def test_what_is_not_taken_is_not_there(board: Board) -> None:
    assert not board.has("steady-0")
    assert board.read("steady-0") is None


def test_a_name_without_text_is_there_and_says_nothing(board: Board) -> None:
    """As one whose owner was killed between taking it and writing."""
    board.claim("steady-0")
    assert board.has("steady-0")
    assert board.read("steady-0") is None
