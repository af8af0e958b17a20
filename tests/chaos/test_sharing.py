"""Runs that tests share: which go together, and what each test gets of them."""

from __future__ import annotations

import io

import pytest

from chaos import driving
from chaos.exits import UsageError
from chaos.results import Result
from chaos.sharing import Asked, Batch, Progress, batches


def result(name, verdict="pass", code=0, members=()):
    return Result(scenario=name, verdict=verdict, exit_code=code, reason=f"because of {verdict}", members=members)


@pytest.fixture
def batch(monkeypatch):
    """A batch of a suite ``two`` of the scenarios ``b`` and ``c``, and of ``a``, run with these members."""
    monkeypatch.setattr(driving, "plan", lambda word, **options: [{"scenario": "b"}, {"scenario": "c"}])

    def make(*members, code=0):
        return Batch({}, ["a", "two"], result("selection", "unknown" if code else "pass", code, members))

    return make


def test_wishes_with_the_same_options_go_together_each_once_and_in_order():
    wishes = [Asked("a", {"seed": 1}), Asked("b"), Asked("c", {"seed": 1}), Asked("a", {"seed": 1}), Asked("a")]
    assert [(b.options, b.words) for b in batches(wishes).values()] == [({"seed": 1}, ["a", "c"]), ({}, ["b", "a"])]


def test_a_word_that_stands_for_several_scenarios_is_all_of_them_together(batch):
    found = batch(result("a", "fail", 1), result("b"), result("c")).of("two")
    assert (found.scenario, found.passed, found.reason) == ("two", True, "2 of 2 passed")
    assert [member.scenario for member in found.members] == ["b", "c"]


@pytest.mark.parametrize(
    ("verdict", "code", "whole"),
    [("fail", 1, ("fail", 1)), ("unknown", 2, ("unknown", 2)), ("skipped", 0, ("pass", 0))],
)
def test_the_worst_of_its_scenarios_decides_and_what_was_skipped_does_not(batch, verdict, code, whole):
    found = batch(result("a"), result("b", verdict, code), result("c")).of("two")
    assert (found.verdict, found.exit_code) == whole


def test_what_has_not_run_is_unknown(batch):
    found = batch(result("a"), result("b"), code=6).of("two")
    assert (found.verdict, found.exit_code, found.passed) == ("unknown", 6, False)
    assert batch(result("a"), code=6).of("a").passed


def test_what_kept_a_batch_from_running_is_raised_for_every_wish(monkeypatch):
    monkeypatch.setattr(driving, "run", lambda *words, **options: (_ for _ in ()).throw(UsageError("no such thing")))
    batch = Batch({}, ["a", "b"])
    assert not batch.over
    batch.run()
    assert batch.over
    for word in ("a", "b"):
        with pytest.raises(UsageError, match="no such thing"):
            batch.of(word)


def test_progress_is_kept_and_shown_where_somebody_looks():
    shown = io.StringIO()
    progress = Progress(shown)
    progress.write("  steady\n")
    assert progress.getvalue() == shown.getvalue() == "  steady\n"
