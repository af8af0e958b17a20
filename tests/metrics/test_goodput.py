"""Where the life of a job went: buckets that sum to it exactly, against what the story took."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.exits import UsageError
from metrics.expectations import parse
from metrics.goodput import BUCKETS, Goodput, goodput
from metrics.verdict import Verdict
from tests.histories import Run, faulty, healthy
from tests.stories import EARLY, MS, PHASE_MS, STEP_MS, Hit

SECOND = 1_000 * MS


def of(run: Run) -> Goodput:
    found = goodput(run.case())
    assert found is not None
    return found


def life_ns(run: Run) -> int:
    (start,), (end,) = run.select("workload.start"), run.select("workload.exit")
    return end.wall_ns - start.wall_ns


RUNS = {
    "without a fault": healthy(kills=()),
    "killed once": healthy(),
    "killed twice": healthy(kills=((1, 6), (0, 10))),
    "killed before a checkpoint": healthy(kills=((1, 2),)),
    "hit again while it came back": faulty((Hit(1, 6),), (Hit(0, phase="restore"),)),
    "disturbed": faulty((Hit(1, 6, fault="delay"),)),
    "given up": healthy(kills=((1, 6),), gives_up=True, max_failures=0),
    "resized": faulty((Hit(2, 6),), worlds=(3, 2, 3), resizes=((1, 10),)),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_parts_are_contiguous_and_sum_to_the_life_exactly(name: str) -> None:
    found = of(RUNS[name])
    assert found.wall_ns == life_ns(RUNS[name]) == sum(map(found.ns, BUCKETS))
    assert all(a.end_ns == b.begin_ns for a, b in zip(found.parts, found.parts[1:], strict=False))
    assert all(part.end_ns > part.begin_ns for part in found.parts)
    assert {part.bucket for part in found.parts} <= BUCKETS.keys()


def test_an_undisturbed_run_has_its_steps_and_its_startup() -> None:
    found = of(healthy(kills=()))
    assert found.ns("productive") == 12 * STEP_MS * MS
    assert found.ns("replayed") == found.ns("detection") == found.ns("restart") == found.ns("restore") == 0
    assert found.ns("startup") + found.ns("productive") + found.ns("idle") == found.wall_ns
    assert found.share == 12 * STEP_MS * MS / found.wall_ns


def test_a_kill_costs_what_each_phase_took() -> None:
    found = of(healthy())
    assert found.ns("productive") == 12 * STEP_MS * MS
    assert found.ns("replayed") == 2 * STEP_MS * MS + MS  # steps 5 and 6, and a millisecond after step 6
    assert found.ns("detection") == PHASE_MS["detect"] * MS
    assert found.ns("restore") == PHASE_MS["restore"] * MS
    phases = sum(PHASE_MS[name] for name in ("teardown", "start", "rendezvous", "setup"))
    assert found.ns("restart") == phases * MS
    lost = found.wall_ns - found.ns("productive")
    assert found.rank_seconds_lost == pytest.approx(2 * lost / SECOND)


def test_waiting_for_the_placement_group_is_idle() -> None:
    tail = of(healthy(kills=())).ns("idle")
    assert of(healthy()).ns("idle") == tail + PHASE_MS["schedule"] * MS
    later = healthy().change("attempt.start", {"attempt": 1}, placement_ms=1040.0)
    assert of(later).ns("idle") == tail + 1040 * MS


@pytest.mark.parametrize("phase", EARLY)
def test_an_attempt_without_a_step_is_no_productive_time(phase: str) -> None:
    found = of(faulty((Hit(1, 6),), (Hit(0, phase=phase),)))
    assert found.ns("productive") == 12 * STEP_MS * MS
    assert found.ns("restart") > of(healthy()).ns("restart")


def test_ranks_lost_are_those_of_the_attempt() -> None:
    found = of(RUNS["resized"])
    assert {part.ranks for part in found.parts} == {2, 3}


def saving(run: Run, step: int, ms: int) -> Run:
    """With a checkpoint after that step of the first attempt, handed over so much later."""
    ends = run.select("step.end", step=step, attempt=0)
    for kind, late in (("checkpoint.transfer.begin", 1), ("report.end", ms)):
        for end in ends:
            made = type(end)(kind=kind, wall_ns=max(e.wall_ns for e in ends) + late * MS, mono_ns=0, node="n", pid=1,
                             attempt=0, rank=end.rank, step=step)  # fmt: skip
            run = run.add(made)
    return run


def test_a_save_stalls_the_step_after_it() -> None:
    found = of(saving(healthy(kills=()), 4, 50))
    assert found.ns("save_stall") == 50 * MS
    assert found.ns("productive") == (12 * STEP_MS - 50) * MS
    assert of(saving(healthy(kills=()), 12, 40)).ns("save_stall") == 40 * MS


def test_a_report_without_a_checkpoint_is_no_save() -> None:
    run = saving(healthy(kills=()), 4, 50).drop("checkpoint.transfer.begin")
    assert of(run).ns("save_stall") == 0


def test_samples_that_come_late_are_a_wait_for_data() -> None:
    run = healthy(kills=())
    before = max(event.wall_ns for event in run.select("step.end", step=6))
    for rank, ms in ((0, 20), (1, 70)):
        run = run.change("step.end", {"step": 7, "rank": rank}, data_ns=before + ms * MS)
    found = of(run)
    assert found.ns("data_wait") == 70 * MS
    assert found.ns("productive") == (12 * STEP_MS - 70) * MS


def later(run: Run, after: int, ms: int) -> Run:
    """With everything after a step of the first attempt so much later."""
    limit = max(event.wall_ns for event in run.select("step.end", step=after, attempt=0))
    late = [event.wall_ns > limit + 2 * MS for event in run.events]
    moved = (
        msgspec.structs.replace(e, wall_ns=e.wall_ns + ms * MS * by) for e, by in zip(run.events, late, strict=True)
    )
    return dataclasses.replace(run, events=tuple(moved))


def test_a_job_that_a_fault_makes_stand_still_is_not_productive_meanwhile() -> None:
    run = faulty((Hit(1, 6, fault="delay"),), control=False)
    found = of(later(run, 6, 20_000))
    assert found.ns("stalled") == of(run).ns("stalled") + 20 * SECOND > 20 * SECOND
    assert found.ns("productive") == 12 * STEP_MS * MS
    assert of(later(healthy(kills=()), 6, 20_000)).ns("stalled") == 0  # slow, and no fault told
    seventh = max(event.wall_ns for event in later(run, 6, 20_000).select("step.end", step=7))
    asked_late = later(run, 6, 20_000).change("step.end", {"step": 7}, data_ns=seventh - 10 * MS)
    assert of(asked_late).seconds == found.seconds


def test_where_an_attempt_is_in_the_dark_nothing_is_known() -> None:
    assert goodput(healthy().drop("attempt.start", attempt=1).case()) is None
    assert goodput(healthy().drop("step.end", attempt=1, rank=1).case()) is None
    twice = healthy(kills=()).drop("step.end", rank=1)
    again = [msgspec.structs.replace(event, wall_ns=event.wall_ns + 1) for event in twice.select("step.end")]
    assert goodput(twice.add(*again).case()) is None


@pytest.mark.parametrize(
    ("phase", "bucket"), [("rendezvous", "restart"), ("restore", "restore"), ("first-step", "replayed")]
)
def test_a_fault_before_the_first_step_ends_what_the_group_was_at(phase: str, bucket: str) -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase=phase),))
    second = [part for part in of(run).parts if part.end_ns == run.select("fault.fired")[1].wall_ns]
    assert [part.bucket for part in second] == [bucket]


def test_a_job_that_gives_up_was_detected_first() -> None:
    found = of(faulty((Hit(1, 6, detect_ms=60_000),), gives_up=True, max_failures=0))
    assert found.ns("detection") == 60 * SECOND


def test_the_first_of_several_faults_starts_the_detection() -> None:
    both = of(faulty((Hit(1, 6), Hit(0, 6))))
    assert both.ns("detection") == PHASE_MS["detect"] * MS
    assert both.ns("replayed") == of(healthy()).ns("replayed")


def test_the_slowest_rank_waits_for_data_longest_whatever_its_number() -> None:
    run = healthy(kills=())
    before = max(event.wall_ns for event in run.select("step.end", step=6))
    for rank, ms in ((0, 70), (1, 20)):
        run = run.change("step.end", {"step": 7, "rank": rank}, data_ns=before + ms * MS)
    assert of(run).ns("data_wait") == 70 * MS


@pytest.mark.parametrize("share", ["0", "1.1", "30"])
def test_a_share_that_is_none_is_a_mistake(share: str) -> None:
    with pytest.raises(UsageError, match="share is a part of 1"):
        parse(f"stays_productive(share>={share})")


@pytest.mark.parametrize("kind", ["workload.start", "workload.exit", "step.end"])
def test_without_its_borders_or_steps_nothing_is_known(kind: str) -> None:
    run = healthy().drop(kind)
    assert goodput(run.case()) is None
    finding = run.judged(*parse("stays_productive(share=0.1)").checks).findings[0]
    assert finding.verdict is Verdict.UNKNOWN


def test_the_bound_is_included_and_below_it_fails() -> None:
    share = of(healthy()).share
    for bound, verdict in ((share, Verdict.PASS), (share + 1e-9, Verdict.FAIL), (0.001, Verdict.PASS)):
        finding = healthy().judged(*parse(f"stays_productive(share>={bound!r})").checks).findings[0]
        assert finding.verdict is verdict
    assert finding.seen.startswith(f"{share:.3f} of {life_ns(healthy()) / SECOND:.1f} s: ")


EVENTS = ("schedule.begin", "attempt.start", "pg.init.end", "restore.begin", "restore.end", "controller.state",
          "fault.fired", "data.begin", "process.exit")  # fmt: skip


@given(gone=st.sets(st.sampled_from(EVENTS)), name=st.sampled_from(sorted(RUNS)))
def test_whatever_is_not_told_the_buckets_sum_to_the_life(gone: set[str], name: str) -> None:
    run = RUNS[name]
    for kind in gone & {event.kind for event in run.events}:
        run = run.drop(kind)
    if (found := goodput(run.case())) is not None:
        assert sum(map(found.ns, BUCKETS)) == found.wall_ns == life_ns(run)
