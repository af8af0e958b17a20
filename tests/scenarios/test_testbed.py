"""Shared clusters: one goes on to the next run only while clean and whole, and is ended before another starts."""

from __future__ import annotations

import pytest

from chaos.cluster.local import ClusterFailed
from chaos.ledger import Account, Ledger
from scenarios.testbed import Pool, StillStanding, Testbed
from tests.scenarios.members import TTL_S, cluster


@pytest.fixture
def bed(place):
    """A cluster of two nodes that can be shared, under a ledger with what a cluster has in place."""
    folder = place / "cluster-1"
    folder.mkdir()
    made = Testbed(Ledger.open(folder, "cafe0001", TTL_S), "some-key")
    made.ledger.intend("processes")
    made.cluster = cluster(made.ledger)
    return made


def in_place(bed):
    """The kinds of the open entries."""
    return [entry["kind"] for entry in Account.read(bed.ledger.path).open.values()]


def is_ended(bed):
    return (bed.cluster, bed.key, in_place(bed)) == (None, "", [])


def harm(bed):
    """Leave something on it that cannot be undone; returns what is said of it then."""
    number = bed.ledger.intend("directory", path="/")
    return f"directory {number}: / is not in "


# The end of a run


def test_a_clean_and_whole_cluster_stays_and_its_injections_are_done(bed):
    bed.intend_injection(injection="kill-0", fault="kill", target="rank 1")
    bed.intend_injection(injection="kill-1", fault="kill", target="rank 0")
    standing = bed.cluster
    assert in_place(bed) == ["processes", "injection", "injection"]
    assert bed.release(clean=True) == []
    assert (bed.cluster, bed.key, bed.runs, in_place(bed)) == (standing, "some-key", 1, ["processes"])
    assert standing.looks == 1


def test_it_may_serve_run_after_run_and_each_brings_its_own_injections(bed):
    for run in range(1, 4):
        bed.intend_injection(injection="kill-0", fault="kill", target="rank 1")
        assert in_place(bed) == ["processes", "injection"]
        assert (bed.release(clean=True), bed.runs, in_place(bed)) == ([], run, ["processes"])
        assert bed.ledger.path.read_text().count('"done"') == run  # each once
    bed.intend_injection(injection="kill-0", fault="kill", target="rank 1")
    assert bed.release(clean=False) == []
    assert is_ended(bed)


def test_one_that_is_not_clean_is_ended_and_not_even_looked_at(bed):
    bed.intend_injection(injection="kill-0", fault="kill", target="rank 1")
    standing = bed.cluster
    assert bed.release(clean=False) == []
    assert is_ended(bed)
    assert standing.looks == 0


def test_a_runs_own_cluster_is_ended(bed):
    bed.key = ""
    assert bed.release(clean=True) == []
    assert is_ended(bed)


def test_one_that_was_never_up_is_ended(bed):
    bed.cluster = None
    assert bed.release(clean=True) == []
    assert is_ended(bed)


def test_a_node_that_a_fault_has_taken_is_brought_back(bed):
    bed.cluster.node("w1").lost = True
    assert bed.release(clean=True) == []
    assert not bed.cluster.node("w1").lost


@pytest.mark.parametrize(
    "trouble",
    [
        ClusterFailed("Ray node w1 did not start"),
        TimeoutError("still alive"),
        OSError(28, "full"),
        ValueError("no JSON"),
    ],
    ids=repr,
)
def test_one_that_cannot_be_made_whole_is_ended(bed, trouble):
    bed.cluster.trouble = trouble
    assert bed.release(clean=True) == []
    assert is_ended(bed)


def test_one_with_a_node_more_than_it_is_known_for_is_ended(bed):
    bed.cluster.join()
    assert bed.release(clean=True) == []
    assert is_ended(bed)


@pytest.mark.parametrize("clean", [True, False])
def test_what_could_not_be_undone_is_returned(bed, clean):
    bed.cluster.trouble = ClusterFailed("no")
    said = harm(bed)
    (error,) = bed.release(clean=clean)
    assert error.startswith(said)
    assert in_place(bed) == ["directory"]


# A pool of them


@pytest.fixture
def pool(place):
    (place / "suite").mkdir()
    return Pool(place / "suite")


def used(bed, clean=True):
    """A run takes place on it."""
    bed.cluster = bed.cluster or cluster(bed.ledger)
    bed.release(clean=clean)
    return bed


def left_s(bed):
    return Account.read(bed.ledger.path).left_s


def test_the_first_asked_for_is_new_with_a_ledger_of_its_own(pool, place):
    bed = pool.bed("a", TTL_S)
    assert (bed.key, bed.cluster, bed.runs, pool.starts) == ("a", None, 0, 1)
    assert bed.ledger.path == place / "suite" / "cluster-1" / "ledger.jsonl"
    assert TTL_S - 5 < left_s(bed) <= TTL_S


def test_for_the_same_key_the_standing_one_is_given_and_its_time_extended(pool):
    bed = used(pool.bed("a", 10.0))
    assert pool.bed("a", TTL_S) is bed
    assert (pool.starts, bed.runs) == (1, 1)
    assert TTL_S - 5 < left_s(bed) <= TTL_S


def test_for_another_key_the_standing_one_is_ended_before_the_other_has_a_ledger(pool, place, monkeypatch):
    there = []
    ended = Testbed.close
    monkeypatch.setattr(
        Testbed, "close", lambda bed: there.append(len(list(place.rglob("ledger.jsonl")))) or ended(bed)
    )
    first = used(pool.bed("a", TTL_S))
    second = pool.bed("b", TTL_S)
    assert there == [1]
    assert is_ended(first)
    assert (second.key, second.ledger.path.parent.name, pool.starts) == ("b", "cluster-2", 2)
    assert second.ledger.run_id != first.ledger.run_id


def test_one_that_was_ended_after_its_run_is_not_given_again(pool):
    first = used(pool.bed("a", TTL_S), clean=False)
    second = pool.bed("a", TTL_S)
    assert second is not first
    assert (second.cluster, second.runs, pool.starts) == (None, 0, 2)


def test_where_the_standing_one_cannot_be_ended_no_other_is_started(pool, place):
    said = harm(used(pool.bed("a", TTL_S)))
    with pytest.raises(StillStanding, match=said):
        pool.bed("b", TTL_S)
    assert (pool.starts, [path.name for path in (place / "suite").iterdir()]) == (1, ["cluster-1"])


def test_its_errors_are_told_once_and_the_next_asked_for_is_new(pool):
    harm(used(pool.bed("a", TTL_S)))
    with pytest.raises(StillStanding):
        pool.bed("b", TTL_S)
    assert pool.bed("b", TTL_S).ledger.path.parent.name == "cluster-2"
    assert pool.close() == []


def test_what_its_own_run_has_told_of_is_not_told_by_the_pool_too(pool):
    bed = pool.bed("a", TTL_S)
    bed.cluster = cluster(bed.ledger)
    harm(bed)
    assert len(bed.release(clean=False)) == 1
    assert pool.close() == []


def test_closing_a_pool_ends_the_standing_one_once(pool):
    assert pool.close() == []
    bed = used(pool.bed("a", TTL_S))
    assert (pool.close(), is_ended(bed)) == ([], True)
    bed.ledger.intend("directory", path="/")
    assert pool.close() == []


def test_closing_a_pool_returns_what_could_not_be_undone(pool):
    said = harm(used(pool.bed("a", TTL_S)))
    (error,) = pool.close()
    assert error.startswith(said)


def test_one_given_but_never_started_is_closed_too(pool):
    bed = pool.bed("a", TTL_S)
    bed.ledger.intend("processes")
    assert (pool.close(), is_ended(bed)) == ([], True)


# A pool of a suite that is resumed


def test_numbers_go_on_where_the_suite_was_interrupted(place):
    assert Pool(place, starts=4).bed("a", TTL_S).ledger.path.parent == place / "cluster-5"


def test_the_folder_of_a_cluster_that_the_record_does_not_tell_of_is_left_alone(place):
    """A harness that was killed has no time to record it, and what is open in its ledger is still to be healed."""
    for number in (5, 6):
        folder = place / f"cluster-{number}"
        folder.mkdir()
        Ledger.open(folder, f"dead000{number}").intend("processes")
    before = {path: path.read_bytes() for path in place.rglob("ledger.jsonl")}
    pool = Pool(place, starts=4)
    bed = pool.bed("a", TTL_S)
    assert (bed.ledger.path.parent.name, pool.starts) == ("cluster-7", 7)
    assert {path: path.read_bytes() for path in before} == before
    assert Account.read(bed.ledger.path).run_id == bed.ledger.run_id
