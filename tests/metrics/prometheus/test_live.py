"""A run as it goes on, told event by event; and what a board shows when."""

from __future__ import annotations

import threading

import pytest

from chaos.history import Event
from metrics.prometheus.board import Board
from metrics.prometheus.exposition import SuiteFacts
from metrics.prometheus.live import PHASES, LiveRun
from scenarios.view import DOING
from tests.histories import faulty, healthy
from tests.stories import Hit


def phase(name):
    return Event(kind="run.phase", wall_ns=1, mono_ns=1, node="harness", pid=1, data={"phase": name})


@pytest.fixture
def seen(read):
    """The samples of a board that shows a run after these events."""

    def after(events, steps=12):
        board, run = Board(), LiveRun("kill-worker", steps)
        board.begin(run)
        for event in events:
            run(event)
        return read(board.registry)

    return after


def until(run, kind, **where):
    return run.until(kind, **where).events


def test_nothing_is_told_before_a_run_begins(read):
    assert read(Board().registry) == {}


def test_a_run_that_has_just_begun_is_in_progress_at_step_0_in_no_phase(seen):
    samples = seen([])
    assert samples.at("run_in_progress") == 1
    assert (samples.at("run_step"), samples.at("run_target_step"), samples.at("run_restarts")) == (0, 12, 0)
    assert set(samples.named("run_phase")) == {0}


@pytest.mark.parametrize("name", PHASES[:-1])
def test_exactly_the_phase_that_the_run_is_in_is_set(name, seen):
    samples = seen([phase("launch"), phase(name)])
    assert [one for one in PHASES if samples.at("run_phase", phase=one)] == [name]


def test_after_the_end_of_a_run_it_is_judged(seen):
    assert seen([phase("heal"), *until(healthy(), "run.end")]).at("run_phase", phase="judge") == 1


def test_every_phase_that_the_terminal_knows_of_a_run_is_exported():
    assert set(PHASES) == set(DOING) - {"record", "ranks", "controller"}  # those are of sweeps


def test_the_step_is_that_of_the_slowest_rank(seen):
    assert seen(until(healthy(), "step.end", step=5, rank=0)).at("run_step") == 4
    assert seen(until(healthy(), "step.end", step=5, rank=1)).at("run_step") == 5


def test_the_step_after_a_restart_is_that_of_the_new_attempt(seen):
    samples = seen(until(healthy(), "step.end", step=5, attempt=1, rank=1))
    assert samples.at("run_step") == 5
    assert samples.at("run_restarts") == 1


def test_faults_are_counted_as_they_fire_and_are_confirmed(seen):
    run = healthy(kills=((1, 6), (0, 11)))
    counts = {}
    for kind in ("fault.armed", "fault.fired", "fault.confirmed"):
        samples = seen(until(run, kind))
        counts[kind] = [samples.at(f"faults_{state}_total", fault="kill") for state in ("armed", "fired", "confirmed")]
    assert counts == {"fault.armed": [1, 0, 0], "fault.fired": [2, 1, 0], "fault.confirmed": [2, 1, 1]}


def test_an_event_that_comes_twice_counts_once(seen):
    run = healthy()
    (fired,) = run.select("fault.fired")
    assert seen([*run.events, fired]).at("faults_fired_total", fault="kill") == 1


def test_a_resize_is_no_restart(seen):
    run = faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 10),))
    samples = seen(run.events)
    assert len(run.select("attempt.start")) == 3
    assert samples.at("run_restarts") == 1


def test_live_and_final_counts_of_a_finished_run_are_the_same(seen, read, told):
    run = healthy(kills=((1, 6), (0, 11)))
    board = Board()
    board.finish(told(run))
    live, final = seen(run.events), read(board.registry)
    counters = [key for key in live if key[0].startswith("aftershock_faults_")]
    assert len(counters) == 3
    assert [live[key] for key in counters] == [final[key] for key in counters]
    assert live.at("run_restarts") == sum(final.named("restarts_total"))


def test_a_board_shows_the_run_that_goes_on_then_its_verdict_and_forgets_it_when_it_begins_anew(read, told):
    board, found = Board(), told(healthy())
    board.begin(LiveRun("kill-worker", 12))
    assert read(board.registry).named("verdict") == []
    board.finish(found)
    board.end("kill-worker")
    samples = read(board.registry)
    assert (samples.at("run_in_progress"), samples.at("verdict", verdict="pass")) == (0, 1)
    assert samples.named("run_step") == []
    board.begin(LiveRun("kill-worker", 12))
    samples = read(board.registry)
    assert (samples.at("run_in_progress"), samples.named("verdict")) == (1, [])


def test_a_run_that_ended_without_a_verdict_is_not_in_progress(read):
    board = Board()
    board.begin(LiveRun("kill-worker", 12))
    board.end("kill-worker")
    samples = read(board.registry)
    assert (samples.at("run_in_progress"), len(samples)) == (0, 1)


def test_a_board_keeps_the_members_of_a_suite_beside_each_other(read, told):
    board = Board()
    board.finish(told(healthy()))
    board.finish(told(healthy().asked(scenario="segfault")))
    verdicts = {"pass": 2, "fail": 0, "unknown": 0, "skipped": 1}
    board.finish_suite(SuiteFacts(suite="s", exit_code=0, finished_s=7.0, verdicts=verdicts, skipped=("oom",)))
    samples = read(board.registry)
    assert len(samples.named("exit_code")) == 2
    told_of_suite = {dict(labels)["verdict"]: v for (n, labels), v in samples.items() if n.endswith("suite_scenarios")}
    assert told_of_suite == verdicts
    assert samples["aftershock_scenario_skipped", frozenset({("suite", "s"), ("scenario", "oom")})] == 1
    assert samples.named("suite_last_run_timestamp_seconds") == [7.0]


def test_a_scrape_in_the_middle_of_a_run_never_breaks_it(read):
    board, run = Board(), LiveRun("kill-worker", 12)
    board.begin(run)
    events, trouble = healthy(kills=((1, 6), (0, 11))).events, []

    def scrape():
        for _ in range(20):
            try:
                read(board.registry)
            except Exception as error:  # pragma: no cover
                trouble.append(error)

    thread = threading.Thread(target=scrape)
    thread.start()
    for event in events:
        run(event)
    thread.join()
    assert trouble == []
