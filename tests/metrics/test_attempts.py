"""Folding a history into attempts, and which of their steps survive."""

from __future__ import annotations

from chaos.history import Event
from metrics.attempts import attempts_of, by_step, commits_before, effective_steps
from tests.histories import faulty, healthy
from tests.stories import Hit, checkpoint_name


def told(events: list[Event]) -> list[tuple[int | None, int | None]]:
    return [(event.attempt, event.step) for event in events]


def test_a_kill_makes_two_attempts_with_their_own_steps() -> None:
    first, second = healthy().case().attempts
    assert (first.number, second.number) == (0, 1)
    assert (first.world_size, second.world_size) == (2, 2)
    assert {rank: [e.step for e in events] for rank, events in first.steps.items()} == {
        0: [1, 2, 3, 4, 5, 6],
        1: [1, 2, 3, 4, 5, 6],
    }
    assert [e.step for e in second.steps[1]] == [5, 6, 7, 8, 9, 10, 11, 12]


def test_each_attempt_knows_what_it_was_given_and_where_it_resumed() -> None:
    first, second = healthy().case().attempts
    assert first.checkpoints_given == {0: None, 1: None}
    assert first.resume_steps == {0: 0, 1: 0}
    assert second.checkpoints_given == {0: checkpoint_name(4), 1: checkpoint_name(4)}
    assert second.resume_steps == {0: 4, 1: 4}


def test_the_step_of_all_is_the_slowest_ranks() -> None:
    first = healthy().drop("step.end", rank=1, step=6, attempt=0).case().attempts[0]
    assert first.step_of_all == 5


def test_no_step_is_of_all_while_one_rank_completed_none() -> None:
    first = healthy().drop("step.end", rank=1, attempt=0).case().attempts[0]
    assert first.step_of_all == 0


def test_a_group_that_was_hit_before_its_first_step_stands_where_it_resumed() -> None:
    attempts = faulty((Hit(1, 6),), (Hit(0, phase="restore"),)).case().attempts
    assert [attempt.step_of_all for attempt in attempts] == [6, 4, 12]


def test_a_group_that_was_not_seen_on_every_rank_stands_nowhere() -> None:
    attempts = faulty((Hit(1, 6),), (Hit(0, phase="restore"),)).drop("worker.start", attempt=1, rank=0).case().attempts
    assert [attempt.step_of_all for attempt in attempts] == [6, 0, 12]


def test_reexecuted_steps_replace_the_lost_ones() -> None:
    kept = effective_steps(healthy().case().attempts)
    wanted = [(0, 1), (0, 2), (0, 3), (0, 4), *((1, step) for step in range(5, 13))]
    assert told(kept[0]) == wanted
    assert told(kept[1]) == wanted


def test_a_kill_before_the_first_checkpoint_takes_every_step_back() -> None:
    kept = effective_steps(healthy(kills=((1, 2),)).case().attempts)
    assert told(kept[0]) == [(1, step) for step in range(1, 13)]


def test_each_of_two_rollbacks_takes_back_its_own_part() -> None:
    kept = effective_steps(healthy(kills=((1, 6), (0, 10))).case().attempts)
    assert [attempt for attempt, _ in told(kept[1])] == [0] * 4 + [1] * 4 + [2] * 4


def test_a_group_that_made_no_step_takes_nothing_away() -> None:
    kept = effective_steps(faulty((Hit(1, 6),), (Hit(0, phase="rendezvous"),)).case().attempts)
    assert told(kept[1]) == [(0, step) for step in range(1, 5)] + [(2, step) for step in range(5, 13)]


ELASTIC = faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 10),))
"""Three ranks until step 6, two from step 4 on, three again from step 8 on, after two had come to step 10."""


def test_a_rank_that_the_smaller_group_lacks_loses_its_steps_as_well() -> None:
    kept = effective_steps(ELASTIC.case().attempts)
    both = [(0, step) for step in range(1, 5)], [(2, step) for step in range(9, 13)]
    assert told(kept[2]) == [*both[0], *both[1]]
    assert told(kept[0]) == told(kept[1]) == [*both[0], *((1, step) for step in range(5, 9)), *both[1]]


def test_the_effective_history_by_step_has_every_rank_of_the_group_that_made_it() -> None:
    steps = by_step(effective_steps(ELASTIC.case().attempts))
    assert list(steps) == list(range(1, 13))
    ranks = [sorted(event.rank or 0 for event in events) for events in steps.values()]
    assert ranks == [[0, 1, 2]] * 4 + [[0, 1]] * 4 + [[0, 1, 2]] * 4


def test_a_group_resumes_where_the_earliest_of_its_ranks_does() -> None:
    run = healthy(kills=((1, 10),)).change("worker.start", {"attempt": 1, "rank": 1}, steps=4)
    assert [attempt.resumed for attempt in run.case().attempts] == [0, 4]
    assert told(effective_steps(run.case().attempts)[0])[:5] == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 9)]
    unknown = run.change("worker.start", {"attempt": 1}, steps=None)
    assert unknown.case().attempts[1].resumed == 0


def test_the_step_of_all_is_that_of_the_ranks_that_the_attempt_has() -> None:
    assert [attempt.step_of_all for attempt in ELASTIC.case().attempts] == [6, 10, 12]
    assert [attempt.step_of_all for attempt in ELASTIC.until("step.end", attempt=1, step=7).case().attempts] == [6, 6]


def test_a_larger_group_that_failed_to_start_leaves_no_rank_to_the_smaller_one() -> None:
    run = ELASTIC.again("worker.start", {"attempt": 1, "rank": 1}, ms=-500, rank=2)
    run = run.again("worker.start", {"attempt": 1, "rank": 1}, ms=-499, kind="process.exit", rank=2)
    second = run.case().attempts[1]
    assert (sorted(second.starts), sorted(second.exits), second.step_of_all) == ([0, 1], [0, 1], 10)


def test_commits_before_an_attempt_leave_out_its_own() -> None:
    attempts = healthy(kills=((1, 6), (0, 10))).case().attempts
    assert [[e.step for e in commits_before(attempts, number)] for number in (0, 1, 2)] == [[], [4], [4, 8]]


def test_a_group_of_which_no_worker_started_is_no_attempt() -> None:
    run = healthy().drop("worker.start", attempt=1)
    assert [attempt.number for attempt in run.case().attempts] == [0]


def test_the_controllers_word_alone_makes_no_attempt() -> None:
    run = healthy().again("controller.state", attempt=7)
    assert [attempt.number for attempt in run.case().attempts] == [0, 1]


def test_the_first_of_several_file_openings_begins_the_restore() -> None:
    run = healthy()
    first = run.select("restore.begin", rank=0)[0]
    again = run.again("restore.begin", {"rank": 0}, ms=3)
    assert attempts_of(again.case().history)[1].restore_begins[0].wall_ns == first.wall_ns
