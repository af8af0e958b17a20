"""Whom a hang is blamed on, from where every rank stands."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.history import Event
from metrics.hangs import Hang, check, hangs
from metrics.verdict import Verdict
from tests.histories import Run, faulty, healthy
from tests.stories import MS, Hit

REDUCE = "all_reduce (distributed_c10d.py:3252)"
SITE = "log (loop.py:153)"
HANGS = faulty((Hit(1, 6, fault="hang", detect_ms=9_000),))


def stand(standing: str) -> dict[str, Any]:
    frame = {"collective": REDUCE, "report": "report (train_fn_utils.py:60)"}.get(standing, "")
    return {"standing": standing, "frame": frame, "site": SITE if frame else ""}


def hung(run: Run, *stands: str, after_ms: int = 4_500) -> Run:
    """With a look at all ranks some time after the first fault."""
    (fired, *_) = run.select("fault.fired")
    ranks = {str(rank): stand(standing) for rank, standing in enumerate(stands)}
    data = {"still_s": 4.2, "ranks": ranks}
    at = fired.wall_ns + after_ms * MS
    return run.add(Event(kind="probe.hang", wall_ns=at, mono_ns=0, node="harness", pid=1, data=data))


STANDS = ("collective", "report", "elsewhere", "stopped", "silent")


@pytest.mark.parametrize(
    ("stands", "culprits"),
    [
        (("collective", "stopped"), {1}),
        (("collective", "elsewhere"), {1}),
        (("collective", "silent"), {1}),
        (("report", "collective"), {1}),
        (("report", "elsewhere"), {1}),
        (("report", "stopped", "collective"), {1}),
        (("collective", "stopped", "elsewhere"), {1, 2}),
        (("collective", "collective"), set()),
        (("report", "report"), set()),
        (("elsewhere", "elsewhere"), set()),
        (("stopped", "stopped"), set()),
    ],
)
def test_the_culprits_are_those_that_others_wait_for(stands: tuple[str, ...], culprits: set[int]) -> None:
    assert Hang(0, 0, {rank: stand(standing) for rank, standing in enumerate(stands)}).culprits == culprits


STEP = ["gather a", "gather b", "scatter b", "reduce"]


def waiting(now: list[str], before: list[str] = STEP) -> dict[str, Any]:
    return stand("collective") | {"collectives": {"now": now, "step before": before}}


@pytest.mark.parametrize(
    ("now", "culprits"),
    [
        ((STEP[:1], STEP[1:2]), {1}),
        ((STEP[1:3], STEP[:2]), {0}),
        ((STEP[:2], STEP[:2], ["reduce"]), {2}),
        ((STEP[:1], STEP[:1]), set()),
        ((STEP[1:], STEP[2:]), set()),
        ((STEP[:1], []), set()),
    ],
)
def test_where_all_wait_in_collectives_the_one_that_left_one_out_is_blamed(now: Any, culprits: set[int]) -> None:
    assert Hang(0, 0, {rank: waiting(found) for rank, found in enumerate(now)}).culprits == culprits


@pytest.mark.parametrize(
    "other", [stand("collective"), waiting(STEP[1:2], before=[])], ids=["untold", "no step before"]
)
def test_a_rank_whose_collectives_are_not_known_leaves_it_open(other: dict[str, Any]) -> None:
    assert Hang(0, 0, {0: waiting(STEP[:1]), 1: other}).culprits == set()


@given(stands=st.lists(st.sampled_from(STANDS), min_size=1, max_size=6))
def test_whoever_is_blamed_some_other_rank_waits(stands: list[str]) -> None:
    hang = Hang(0, 0, {rank: stand(standing) for rank, standing in enumerate(stands)})
    innocent = hang.ranks.keys() - hang.culprits
    assert not hang.culprits or any(hang.ranks[rank]["standing"] in ("collective", "report") for rank in innocent)
    assert bool(hang.blocked) == any(stands[rank] in ("collective", "report") for rank in innocent)


def test_the_rank_that_was_hit_is_told_with_the_call_that_the_others_wait_in() -> None:
    finding = check(hung(HANGS, "collective", "elsewhere").case())
    assert finding.verdict is Verdict.PASS
    assert finding.seen == f"rank 1 of attempt 0; the others wait in {REDUCE}, called by {SITE}"


def test_another_rank_than_the_one_that_was_hit_fails() -> None:
    finding = check(hung(HANGS, "stopped", "collective").case())
    assert finding.verdict is Verdict.FAIL
    assert finding.seen.startswith("rank 0 of attempt 0; the others wait in")
    assert finding.seen.endswith("but rank 1 was hit")
    assert finding.evidence["ranks"]["0"]["standing"] == "stopped"


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (HANGS, "nobody asked the ranks of attempt 0 where they stood"),
        (
            hung(HANGS, "collective", "collective"),
            "nothing sets a rank of attempt 0 apart from the others: rank 0 coll",
        ),
        (healthy(kills=()), "no fault fired that breaks the job"),
        (hung(HANGS, "collective", "elsewhere", after_ms=30_000), "nobody asked the ranks of attempt 0"),
    ],
)
def test_where_nothing_is_told_the_culprit_is_unknown(run: Run, words: str) -> None:
    finding = check(run.case())
    assert finding.verdict is Verdict.UNKNOWN
    assert words in finding.seen


def test_a_standstill_from_before_the_fault_proves_nothing_of_it() -> None:
    assert check(hung(HANGS, "collective", "elsewhere", after_ms=-100).case()).verdict is Verdict.UNKNOWN
    assert check(hung(HANGS, "elsewhere", "collective", after_ms=-100).case()).verdict is Verdict.UNKNOWN


def test_the_last_look_at_an_attempt_counts() -> None:
    run = hung(hung(HANGS, "collective", "collective", after_ms=4_100), "collective", "elsewhere", after_ms=8_000)
    assert [hang.attempt for hang in hangs(run.case())] == [0, 0]
    assert check(run.case()).verdict is Verdict.PASS


def test_every_incident_must_have_its_culprit_told() -> None:
    run = faulty((Hit(1, 6, fault="hang", detect_ms=9_000),), (Hit(0, 10, fault="hang", detect_ms=9_000),))
    assert check(hung(run, "collective", "elsewhere").case()).verdict is Verdict.UNKNOWN
    second = run.select("fault.fired")[1].wall_ns - run.select("fault.fired")[0].wall_ns
    both = hung(hung(run, "collective", "elsewhere"), "elsewhere", "collective", after_ms=second // MS + 4_500)
    assert check(both.case()).verdict is Verdict.PASS


def test_any_pair_of_stands_has_one_answer_whatever_the_order_of_ranks() -> None:
    for one, other in itertools.product(STANDS, repeat=2):
        first = Hang(0, 0, {0: stand(one), 1: stand(other)}).culprits
        second = Hang(0, 0, {0: stand(other), 1: stand(one)}).culprits
        assert second == {1 - rank for rank in first}
