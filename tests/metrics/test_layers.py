"""Who notices the loss of a node, and when; and how the job finds a group of another size."""

from __future__ import annotations

import pytest

from metrics.layers import check, check_rescheduling, losses
from metrics.verdict import Finding, Verdict
from tests.capacity import failing, fired_ns, happened, node, on_nodes, resized, through, without_node, worlds
from tests.histories import Run, healthy
from tests.stories import MS


def found(run: Run, within: float = 60.0) -> Finding:
    return check(run.case(), within=within)


def seconds(run: Run) -> list[dict[str, float | None]]:
    """By loss, what each layer took."""
    return [told["seconds"] for told in found(run).evidence["losses"]]


def cut(run: Run, last_ns: float) -> Run:
    """As when the harness died there."""
    return Run(run.record, tuple(event for event in run.events if event.wall_ns <= last_ns), run.control)


def test_each_layer_is_told_from_the_moment_when_the_node_was_gone() -> None:
    finding = found(without_node())
    assert finding.verdict is Verdict.PASS
    assert finding.seen == "peers 0.2 s, Ray's node health 0.8 s, controller 0.2 s"
    assert finding.evidence["losses"] == [
        {
            "node": "w1",
            "seconds": {"peers": 0.198, "ray": 0.8, "controller": 0.2},
            "resolution_s": {"peers": 0.5, "ray": 0.05, "controller": 0.001},
        }
    ]


def test_a_frozen_node_is_lost_when_the_fault_fires_though_it_is_killed_later() -> None:
    run = without_node("freeze-node", lost_ms=None, dead_ms=6_000)
    assert seconds(run) == [{"peers": 0.298, "ray": 6.0, "controller": 0.3}]
    killed = run.add(node("lost", fired_ns(run) + 9_000 * MS))
    assert losses(killed.case()) == losses(run.case())


def test_a_dropped_node_of_which_no_kill_was_recorded_is_lost_when_the_fault_fires() -> None:
    assert seconds(without_node(lost_ms=None)) == [{"peers": 0.298, "ray": 0.9, "controller": 0.3}]


def test_a_drain_is_noticed_before_the_node_is_gone() -> None:
    finding = found(without_node("drain-node", lost_ms=12_000, dead_ms=12_300), within=1)
    assert finding.verdict is Verdict.PASS
    assert "Ray's node health 0.3 s, controller 11.7 s before" in finding.seen


@pytest.mark.parametrize("fault", ["drain-node", "add-node", "kill", "delay"])
def test_a_notice_alone_or_another_fault_is_no_loss(fault: str) -> None:
    run = without_node(fault, lost_ms=None)
    assert (found(run).verdict, found(run).seen) == (Verdict.UNKNOWN, "no node was lost")


def test_what_ray_knew_while_the_node_was_being_killed_counts() -> None:
    (told,) = seconds(without_node(lost_ms=250, dead_ms=50))
    assert told["ray"] == -0.2


def test_a_death_that_ray_knew_of_before_the_fault_is_another_one() -> None:
    run = without_node(dead_ms=None)
    run = run.add(node("dead", fired_ns(run) - 1_000 * MS))
    assert seconds(run)[0]["ray"] is None


def test_the_death_of_another_node_is_no_notice_of_this_one() -> None:
    run = without_node(dead_ms=None)
    run = run.add(node("dead", fired_ns(run) + 500 * MS, name="w0"))
    assert (found(run, within=5).verdict, seconds(run)[0]["ray"]) == (Verdict.FAIL, None)


def test_the_word_of_a_rank_that_was_lost_itself_is_not_its_peers() -> None:
    run = without_node().drop("worker.error", rank=0)
    assert found(run).verdict is Verdict.PASS
    assert found(run).seen.startswith("peers never, ")


def test_nobody_is_a_peer_of_a_node_that_held_no_rank() -> None:
    run = without_node().change("worker.start", {"attempt": 0}, node="127.9.9.19")
    assert seconds(run)[0]["peers"] is None


LATE = [
    (without_node(dead_ms=6_100), 5.9, "Ray's node health 6.0 s"),
    (without_node(dead_ms=None), 5.0, "Ray's node health never"),
    (without_node(), 0.15, "controller 0.2 s"),
]


@pytest.mark.parametrize(("run", "within", "words"), LATE)
def test_a_layer_that_is_late_or_silent_fails(run: Run, within: float, words: str) -> None:
    finding = found(run, within)
    assert finding.verdict is Verdict.FAIL
    assert words in finding.seen


def test_the_bound_itself_is_in_time() -> None:
    assert found(without_node(), within=0.8).verdict is Verdict.PASS


def unmoved(run: Run, *states: str) -> Run:
    """The controller goes through other states after the fault, or only to the end."""
    run = through(run, 0, *states) if states else run.drop("controller.state", attempt=0, to="RESTARTING")
    keep = {"RESTARTING", *states}
    for event in run.select("controller.state"):
        if event.wall_ns > fired_ns(run) and event.data["from"] == "RUNNING" and event.data["to"] not in keep:
            run = run.drop("controller.state", **{"attempt": event.attempt, "from": "RUNNING"})
    return run


def test_a_controller_that_never_leaves_running_fails() -> None:
    run = unmoved(without_node())
    assert (found(run).verdict, seconds(run)[0]["controller"]) == (Verdict.FAIL, None)


@pytest.mark.parametrize(("last", "verdict"), [("FINISHED", Verdict.FAIL), ("ERRORED", Verdict.PASS)])
def test_a_job_that_ends_well_did_not_notice_and_one_that_ends_in_an_error_did(last: str, verdict: Verdict) -> None:
    run = unmoved(without_node(), "RUNNING", "SHUTTING_DOWN", last)
    run = run.drop("controller.state", attempt=1)
    assert found(run).verdict is verdict


def test_a_job_that_was_already_restarting_cannot_be_asked_for_more() -> None:
    run = unmoved(without_node().drop("controller.state", attempt=0, to="RUNNING"))
    assert found(run).verdict is Verdict.UNKNOWN


def test_a_start_that_fails_for_the_lost_node_is_a_notice() -> None:
    run = unmoved(without_node(), "SCHEDULING", "RESCHEDULING", "SCHEDULING")
    assert found(run).verdict is Verdict.PASS


def test_a_run_that_was_cut_before_the_time_was_up_tells_nothing_of_silence() -> None:
    run = without_node(dead_ms=None)
    assert found(cut(run, fired_ns(run) + 3_000 * MS), within=60).verdict is Verdict.UNKNOWN
    assert found(cut(run, fired_ns(run) + 3_000 * MS), within=2).verdict is Verdict.FAIL
    assert found(cut(run, fired_ns(run) + 200 * MS), within=60).verdict is Verdict.UNKNOWN


def test_lateness_is_red_even_in_a_run_that_wascut() -> None:
    run = without_node(dead_ms=2_000)
    assert found(cut(run, fired_ns(run) + 3_000 * MS), within=1).verdict is Verdict.FAIL


BLIND = [
    (healthy(kills=()), "no node was lost"),
    (without_node().drop("fault.fired").drop("cluster.node.lost"), "no node was lost"),
    (without_node().drop("controller.state"), "the controller was not seen"),
    (without_node(dead_ms=None).drop("cluster.node.alive"), "nobody asked Ray's GCS for its nodes"),
]


@pytest.mark.parametrize(("run", "words"), BLIND)
def test_without_a_loss_or_a_witness_the_answer_is_unknown(run: Run, words: str) -> None:
    finding = found(run)
    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, words)


def test_a_node_that_the_harness_killed_without_a_fault_is_lost_too() -> None:
    assert seconds(without_node().drop("fault.fired"))[0] == {"peers": 0.198, "ray": 0.8, "controller": 0.2}


TWICE = healthy(kills=((1, 6), (1, 10)))


def twice() -> Run:
    """One fault takes node w1 away twice: it comes back before the second attempt's steps."""
    run = on_nodes(TWICE).change("fault.fired", {"injection": "kill-0"}, fault="drop-node")
    first, second = (e.wall_ns for e in run.select("fault.fired"))
    run = run.drop("fault.fired", injection="kill-1")
    run = run.add(node("lost", first + 100 * MS), node("dead", first + 700 * MS), node("up", first + 900 * MS))
    return run.add(node("lost", second + 100 * MS), node("dead", second + 1_100 * MS))


def test_a_node_that_is_lost_twice_by_one_fault_is_noticed_twice() -> None:
    assert [round(told["ray"] or 0, 3) for told in seconds(twice())] == [0.6, 1.0]
    assert [round(told["controller"] or 0, 3) for told in seconds(twice())] == [0.2, 0.2]
    assert found(twice()).seen.startswith("w1: peers 0.2 s, Ray's node health 0.6 s, controller 0.2 s; w1: ")


def test_one_loss_of_two_that_goes_unnoticed_is_red() -> None:
    run = twice()
    run = run.drop("cluster.node.dead", wall_ns=run.select("cluster.node.dead")[1].wall_ns)
    assert found(run, within=5).verdict is Verdict.FAIL


# Failed starts, and how stale capacity was


@pytest.mark.parametrize(
    ("failures", "times", "verdict"),
    [(0, 0, Verdict.PASS), (1, 2, Verdict.PASS), (2, 2, Verdict.PASS), (3, 2, Verdict.FAIL), (1, 0, Verdict.FAIL)],
)
def test_failed_starts_are_bounded(failures: int, times: int, verdict: Verdict) -> None:
    finding = check_rescheduling(failing(healthy(), times=failures).case(), times=times)
    assert finding.verdict is verdict
    assert finding.expected == f"at most {times} failed start{'s' if times != 1 else ''}"
    assert finding.seen == f"{failures} failed start{'s' if failures != 1 else ''}"
    assert finding.evidence == {"failed_starts": ["ControllerError"] * failures, "resizes": []}


def test_without_the_controllers_states_failed_starts_are_unknown() -> None:
    run = failing(healthy()).drop("controller.state")
    assert check_rescheduling(run.case(), times=5).verdict is Verdict.UNKNOWN


def stale(run: Run) -> tuple[list[float | None], str]:
    finding = check_rescheduling(run.case(), times=9)
    return [told["seconds"] for told in finding.evidence["resizes"]], finding.seen


ASKED_MS = 450
"""From the fault to the request for the next group, when none fails to start."""


def test_a_smaller_group_answers_the_loss_of_a_node() -> None:
    ages, seen = stale(worlds(without_node(), 3, 2))
    assert ages == [pytest.approx((ASKED_MS - 100) / 1000)]
    assert seen == "0 failed starts; 3 -> 2 workers 0.3 s after w1 was lost"


def test_the_age_is_that_at_the_request_that_was_met_not_at_one_that_failed() -> None:
    run = worlds(failing(without_node(), times=3), 3, 2)
    ages, seen = stale(run)
    assert ages == [pytest.approx((ASKED_MS - 100) / 1000)]
    assert seen.startswith("3 failed starts; ")


def test_a_node_that_ray_gave_up_counts_where_none_was_killed() -> None:
    ages, seen = stale(worlds(without_node("freeze-node", lost_ms=None, dead_ms=250), 3, 2))
    assert ages == [pytest.approx((ASKED_MS - 250) / 1000)]
    assert seen.endswith("3 -> 2 workers 0.2 s after w1 was dead")


def test_a_larger_group_answers_the_first_node_that_came_since_the_smaller_one_was_asked_for() -> None:
    run = worlds(resized(healthy()), 2, 3)
    asked = run.select("schedule.begin", attempt=1)[0].wall_ns
    run = run.add(node("up", asked - 700 * MS), node("up", asked - 20 * MS, name="w0"))
    ages, seen = stale(run)
    assert ages == [0.7]
    assert seen.endswith("2 -> 3 workers 0.7 s after w1 was up")


def test_what_came_after_the_request_or_was_there_at_the_start_is_not_what_it_answers() -> None:
    run = worlds(resized(on_nodes(healthy())), 2, 3)
    asked = run.select("schedule.begin", attempt=1)[0].wall_ns
    run = run.add(node("up", asked + 20 * MS), node("lost", asked - 20 * MS))
    assert stale(run) == ([None], "0 failed starts; 2 -> 3 workers without a change of capacity seen")


def test_each_resize_answers_its_own_change() -> None:
    run = worlds(resized(TWICE, 1), 3, 2, 3)
    first, second = (run.select("schedule.begin", attempt=attempt)[0].wall_ns for attempt in (1, 2))
    run = run.add(node("lost", first - 300 * MS), node("up", first + 100 * MS), node("up", second - 50 * MS))
    assert stale(run)[0] == [0.3, pytest.approx((second - first) / 1e9 - 0.1)]


def test_without_the_request_the_age_is_not_known() -> None:
    assert stale(worlds(without_node(), 3, 2).drop("schedule.begin", attempt=1))[0] == [None]


def test_events_of_other_kinds_are_no_change_of_capacity() -> None:
    run = worlds(without_node(lost_ms=None, dead_ms=None), 3, 2)
    run = run.add(happened("cluster.node.drain", fired_ns(run) + MS, name="w1", deadline_s=1.0, accepted=True))
    assert stale(run)[0] == [None]
