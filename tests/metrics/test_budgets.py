"""Restarts: one for each fault, from nothing else, within the budget."""

from __future__ import annotations

import pytest

from metrics.budgets import check
from metrics.verdict import Verdict
from tests.histories import Run, healthy


@pytest.mark.parametrize("kills", [((1, 6),), ((1, 2),), ((1, 6), (0, 10)), ((1, 6), (0, 6), (1, 9))])
def test_one_restart_for_each_fault_passes(kills: tuple[tuple[int, int], ...]):
    finding = check(healthy(kills=kills).case())
    assert finding.verdict is Verdict.PASS
    assert finding.evidence == {"restarts": len(kills), "budget": 3, "decisions": ["RETRY"] * len(kills)}


def test_an_endless_budget_is_said_in_words():
    assert "of any number allowed" in check(healthy(max_failures=-1).case()).expected


RED = [
    (healthy(kills=((1, 6), (0, 10))).drop("fault.fired", injection="kill-1"), "2 restarts"),  # an extra restart
    (healthy().change("controller.decision", decision="RAISE"), "the controller decided RAISE"),
    (healthy().again("controller.decision"), "the controller decided RETRY, RETRY"),
    (healthy().drop("controller.decision"), "the controller decided nothing"),
    (healthy().until("process.exit", attempt=0, rank=0), "0 restarts"),
    (healthy().again("fault.fired"), "1 restart;"),
]


@pytest.mark.parametrize(("run", "words"), RED)
def test_restarts_that_do_not_match_the_faults_fail(run: Run, words: str):
    finding = check(run.case())
    assert finding.verdict is Verdict.FAIL
    assert words in finding.seen


def test_more_restarts_than_the_budget_allows_fail():
    assert check(healthy(kills=((1, 6), (0, 10)), max_failures=1).case()).verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", ["controller.start", "worker.start"])
def test_without_the_controllers_word_or_any_worker_the_answer_is_unknown(kind: str):
    assert check(healthy().drop(kind).case()).verdict is Verdict.UNKNOWN


def test_an_unseen_controller_leaves_the_budget_unknown():
    assert "of an unknown number allowed" in check(healthy().drop("controller.start").case()).expected
