"""The fault itself, what the job left behind, and whether the history is whole."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from chaos.agent.plan import Injection
from chaos.triggers import Trigger, after_seconds, at_step, before_step, in_phase, on_attempt
from metrics.evidence import check_fault, check_history, check_residue
from metrics.expectations import UNDISTURBED
from metrics.verdict import Verdict
from tests.histories import Run, faulty, healthy
from tests.stories import Hit

TWO = ((1, 6), (0, 10))


def ordered(run: Run, trigger: Trigger, **changes: Any) -> Run:
    """With another trigger for its first injection, or other victims."""
    first = dataclasses.replace(Injection.of(run.record["injections"][0]), trigger=trigger, **changes)
    return run.asked(injections=[dataclasses.asdict(first), *run.record["injections"][1:]])


def test_a_fault_that_fired_at_its_moment_and_was_seen_passes() -> None:
    finding = check_fault(healthy().case())
    assert finding.verdict is Verdict.PASS
    assert finding.expected == "kill rank 1 at step 6"
    assert finding.seen == "process left the process table, ended by SIGKILL, 50.0 ms after the fault fired"
    assert finding.evidence["kill-0"]["after_ms"] == 50.0


@pytest.mark.parametrize(
    "run",
    [
        healthy(kills=TWO),
        faulty((Hit(1, 6), Hit(0, 6))),
        faulty((Hit(1, 6), Hit(0, phase="teardown"))),
        faulty((Hit(1, 6),), (Hit(0, phase="restore"),)),
        faulty((Hit(1, 6),), (Hit(1, phase="rendezvous"),)),
        faulty((Hit(1, 6, fault="hang"),), (Hit(1, phase="first-step"),)),
    ],
)
def test_two_faults_at_their_moments_pass(run: Run) -> None:
    finding = check_fault(run.case())
    assert finding.verdict is Verdict.PASS
    assert finding.seen.startswith("2 of 2 at their moments")
    assert "; " in finding.expected


def test_a_disturbance_that_ended_is_a_fault_that_was_seen() -> None:
    finding = check_fault(faulty((Hit(1, 6, fault="delay"),), expects=UNDISTURBED).case())
    assert (finding.verdict, finding.evidence["delay-0"]["after_ms"]) == (Verdict.PASS, 5000.0)


FIRED = [
    (at_step(6), {}, {}),
    (at_step(6) & on_attempt(0), {}, {}),
    (before_step(7), {"phase": "optimizer"}, {}),
    (in_phase("save") & at_step(6), {"phase": "save"}, {}),
    (in_phase("forward"), {"phase": "forward"}, {}),
    (at_step(3) >> at_step(6), {}, {}),
    (after_seconds(2.5), {"phase": "time"}, {}),
    (after_seconds(2.5), {"phase": "report"}, {}),  # one that fires in the training thread waits for its next point
    (after_seconds(2.5) & in_phase("save"), {"phase": "save"}, {}),
    (at_step(6), {}, {"rank": None, "node": "w1"}),
]
ASTRAY = [
    (at_step(6), {"step": 7}, {}),
    (at_step(6), {"step": None}, {}),
    (at_step(6), {"rank": 0}, {}),
    (at_step(6), {"rank": None}, {}),
    (at_step(6), {"phase": "optimizer"}, {}),
    (at_step(6) & on_attempt(1), {}, {}),
    (before_step(6), {"phase": "optimizer"}, {}),
    (in_phase("save") & at_step(6), {"phase": "commit"}, {}),
    (in_phase("save"), {}, {}),
    (after_seconds(2.5) & in_phase("save"), {"phase": "time"}, {}),
    (at_step(6), {}, {"rank": None, "node": "w0"}),
    (at_step(6), {"data": {"injection": "kill-0", "phase": "step"}}, {"rank": None, "node": "w1"}),
]


@pytest.mark.parametrize(("trigger", "fired", "victim"), FIRED)
def test_the_trigger_says_which_moment_is_the_right_one(
    trigger: Trigger, fired: dict[str, Any], victim: dict[str, Any]
) -> None:
    finding = check_fault(ordered(healthy(), trigger, **victim).change("fault.fired", **{"step": 6, **fired}).case())
    assert finding.verdict is Verdict.PASS


@pytest.mark.parametrize(("trigger", "fired", "victim"), ASTRAY)
def test_a_fault_at_another_moment_or_in_another_process_fails(
    trigger: Trigger, fired: dict[str, Any], victim: dict[str, Any]
) -> None:
    finding = check_fault(ordered(healthy(), trigger, **victim).change("fault.fired", **{"step": 6, **fired}).case())
    assert finding.verdict is Verdict.FAIL
    assert finding.seen.startswith("kill-0 fired in rank ")


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (healthy().change("fault.fired", step=7), "kill-0 fired in rank 1 in step at step 7"),
        (
            faulty((Hit(1, 6),), (Hit(0, phase="restore"),)).change("fault.fired", {"rank": 0}, phase="setup"),
            "in setup",
        ),
        (healthy().again("fault.fired"), "kill-0 fired 2 times"),
        (healthy(kills=TWO).again("fault.fired", {"injection": "kill-1"}), "kill-1 fired 2 times"),
        (healthy().again("fault.fired", step=11), "kill-0 fired 2 times"),
    ],
)
def test_what_went_astray_is_named(run: Run, words: str) -> None:
    finding = check_fault(run.case())
    assert finding.verdict is Verdict.FAIL
    assert words in finding.seen


def test_a_firing_of_an_injection_nobody_asked_for_fails() -> None:
    finding = check_fault(healthy().change("fault.fired", injection="stray").case())
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, "stray fired 1 times, nobody asked for it")


BLIND = [
    (healthy().drop("fault.fired"), "0 of 1 fired"),
    (healthy(kills=TWO).drop("fault.fired", injection="kill-1"), "1 of 2 fired"),
    (healthy(kills=()), "the scenario injects nothing"),
    (healthy().drop("fault.confirmed"), "no effect was seen of kill-0"),
    (healthy(kills=TWO).drop("fault.confirmed", injection="kill-1"), "no effect was seen of kill-1"),
]


@pytest.mark.parametrize(("run", "words"), BLIND)
def test_a_fault_without_evidence_is_unknown(run: Run, words: str) -> None:
    finding = check_fault(run.case())
    assert finding.verdict is Verdict.UNKNOWN
    assert words in finding.seen


def test_a_rank_that_died_before_its_fault_was_due_is_named() -> None:
    run = healthy().drop("fault.fired").drop("fault.confirmed")
    finding = check_fault(run.case())
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.seen == "0 of 1 fired; rank 1 died by itself (SIGKILL) in attempt 0"


def test_nothing_left_behind_passes_and_says_when_it_was_seen() -> None:
    finding = check_residue(healthy().case())
    assert (finding.verdict, finding.seen) == (Verdict.PASS, "nothing left, seen 0.5 s after the end")


LEFT: list[tuple[dict[str, list[Any]], str]] = [
    ({"workers": [{"rank": 1, "pid": 7}]}, "left: 1 workers, first {'rank': 1, 'pid': 7}"),
    ({"actors": ["RayTrainWorker", "Controller"]}, "left: 2 actors, first RayTrainWorker"),
    ({"placement_groups": ["ab12"]}, "left: 1 placement groups, first ab12"),
    ({"actors": ["A"], "placement_groups": ["ab12"]}, "left: 1 actors, first A; 1 placement groups, first ab12"),
]


@pytest.mark.parametrize(("left", "words"), LEFT)
def test_anything_left_behind_fails_and_is_listed(left: dict[str, list[Any]], words: str) -> None:
    finding = check_residue(healthy().change("residue.checked", **left).case())
    assert (finding.verdict, finding.seen) == (Verdict.FAIL, words)
    assert finding.evidence == left


def unanswered(workers: list[Any]) -> Run:
    """The cluster did not answer the probe; the processes of the workers were watched all the same."""
    data = {"workers": workers, "error": "the GCS did not answer"}
    return healthy().drop("residue.checked").again("workload.exit", kind="residue.checked", data=data)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (healthy().drop("residue.checked"), "what is left is not known: nobody looked"),
        (unanswered(workers=[]), "what is left is not known: the GCS did not answer"),
    ],
)
def test_what_is_left_is_unknown_when_nobody_could_tell(run: Run, words: str) -> None:
    finding = check_residue(run.case())
    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, words)


def test_a_worker_that_lives_on_fails_whatever_the_cluster_answers() -> None:
    finding = check_residue(unanswered(workers=[{"rank": 1, "pid": 7}]).case())
    assert (finding.verdict, "'pid': 7" in finding.seen) == (Verdict.FAIL, True)


def test_a_whole_history_passes_with_its_number_of_events() -> None:
    run = healthy()
    finding = check_history(run.case())
    assert (finding.verdict, finding.seen) == (Verdict.PASS, f"{len(run.events)} events")


@pytest.mark.parametrize("kind", ["run.start", "run.healed", "run.end"])
def test_a_history_without_its_beginning_or_end_is_unknown(kind: str) -> None:
    finding = check_history(healthy().drop(kind).case())
    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, f"no {kind}: the history was cut")


def test_a_mistake_of_the_agent_makes_the_history_unknown() -> None:
    run = healthy().again("run.start", kind="agent.error", error="Session.end: KeyError()")
    finding = check_history(run.case())
    assert finding.verdict is Verdict.UNKNOWN
    assert "the agent failed 1 times, first: Session.end: KeyError()" in finding.seen


def stepped(run: Run, seconds: float, after: int) -> Run:
    """With the wall clock of the machine set by so many seconds after that many events."""
    late = sorted(run.events, key=lambda event: event.wall_ns)
    moved = [msgspec.structs.replace(e, wall_ns=e.wall_ns + int(seconds * 1e9)) for e in late[after:]]
    return dataclasses.replace(run, events=(*late[:after], *moved))


@pytest.mark.parametrize("seconds", [-3600.0, -5.0, -0.15, 0.15, 5.0, 3600.0])
@pytest.mark.parametrize("after", [3, 40, 80])
def test_a_clock_that_was_set_makes_the_history_unknown(seconds: float, after: int) -> None:
    finding = check_history(stepped(healthy(), seconds, after).case())
    assert finding.verdict is Verdict.UNKNOWN
    assert "the clock of 127.0.0.1 stepped: it is off by" in finding.seen


def test_a_clock_that_is_read_a_little_late_did_not_step() -> None:
    assert check_history(stepped(healthy(), 0.09, 40).case()).verdict is Verdict.PASS
    lone = healthy().change("run.healed", wall_ns=healthy().select("run.healed")[0].wall_ns - 10**9)
    assert check_history(lone.case()).verdict is Verdict.PASS
    early = healthy().change("run.healed", wall_ns=healthy().select("run.healed")[0].wall_ns + 10**9)
    assert check_history(early.case()).verdict is Verdict.UNKNOWN


def test_machines_need_not_have_the_same_clock() -> None:
    run = healthy()
    other = [msgspec.structs.replace(e, node="other", mono_ns=e.mono_ns + 7 * 10**9) for e in run.events if e.rank == 1]
    mixed = dataclasses.replace(run, events=(*(e for e in run.events if e.rank != 1), *other))
    assert check_history(mixed.case()).verdict is Verdict.PASS


def test_a_history_of_a_newer_version_is_unknown() -> None:
    finding = check_history(healthy().change("run.start", schema=2).case())
    assert finding.verdict is Verdict.UNKNOWN
    assert "written in schema 2, by a newer version; this one knows 1" in finding.seen


def test_unreadable_lines_are_counted_and_make_the_history_unknown() -> None:
    finding = check_history(healthy().case(unreadable=3))
    assert finding.verdict is Verdict.UNKNOWN
    assert "3 unreadable lines" in finding.seen
