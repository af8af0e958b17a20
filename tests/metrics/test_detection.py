"""How much sooner than Ray's defaults a hang was over, by the chain of time-outs that can notice it."""

from __future__ import annotations

import pytest

from chaos.faults.base import all_faults
from chaos.timeouts import TIMEOUTS, floor_s
from metrics.detection import chain, check
from metrics.expectations import HEALTHY, beats_defaults
from metrics.verdict import Finding, Verdict
from tests.histories import Run, faulty, healthy
from tests.stories import Hit

SHORT = {"process_group": 10.0, "worker_health": 10.0, "report": 8.0, "shutdown": 3.0, "poll": 0.5}
TOTAL_S = 12.0 + 5.04 - 0.3
"""From the fault to the step count passed, when it takes 12 s to be noticed."""


def hang(fault: str, detect_ms: int = 12_000, phase: str = "step") -> Run:
    """A hang that short time-outs have noticed."""
    expects = HEALTHY & beats_defaults(times=10)
    return faulty((Hit(1, 6, phase=phase, fault=fault, detect_ms=detect_ms),), expects=expects).asked(timeouts=SHORT)


def found(run: Run, times: float = 10.0) -> Finding:
    return check(run.case(), times)


FLOORS = [("hang", 1800.0), ("skip-collective", 1800.0), ("freeze", 600.0), ("hang-gil", 600.0)]


@pytest.mark.parametrize(("fault", "floor"), FLOORS)
def test_a_hang_that_was_over_much_sooner_passes_with_its_numbers(fault: str, floor: float) -> None:
    finding = found(hang(fault))
    assert finding.verdict is Verdict.PASS
    assert finding.expected == f"recovered at least 10 times sooner than Ray's defaults would notice ({floor:g} s)"
    assert finding.seen.startswith(f"noticed after 12.0 s, over after 16.7 s, {floor / TOTAL_S:.1f} times sooner: ")
    assert finding.evidence == {"floor_s": floor, "total_s": pytest.approx(TOTAL_S), "detect_s": 12.0}


def test_the_whole_run_passes_every_check() -> None:
    assert hang("hang").judged().reason == "every check that applies passed"


def test_what_the_defaults_never_notice_is_always_sooner() -> None:
    finding = found(hang("missing-report"), times=1e9)
    assert finding.verdict is Verdict.PASS
    assert finding.expected.endswith("(never)")
    assert "they never would" in finding.seen
    assert finding.evidence["floor_s"] is None


RATIO = 600 / TOTAL_S


@pytest.mark.parametrize(
    ("times", "verdict"), [(RATIO - 0.01, Verdict.PASS), (RATIO + 0.01, Verdict.FAIL), (100.0, Verdict.FAIL)]
)
def test_the_ratio_is_of_the_whole_recovery_not_of_the_detection_alone(times: float, verdict: Verdict) -> None:
    assert found(hang("freeze"), times).verdict is verdict


def test_a_hang_that_the_defaults_would_have_noticed_as_soon_fails() -> None:
    finding = found(hang("freeze", detect_ms=595_300))
    assert (finding.verdict, finding.seen.split(": ")[0]) == (
        Verdict.FAIL,
        "noticed after 595.3 s, over after 600.0 s, 1.0 times sooner",
    )


def test_the_slowest_of_several_hangs_counts() -> None:
    run = faulty((Hit(1, 6, fault="freeze", detect_ms=5_000),), (Hit(0, 10, fault="freeze", detect_ms=50_000),))
    assert found(run, times=50).verdict is Verdict.FAIL
    assert found(run, times=10).evidence["detect_s"] == 50.0


def test_faults_that_need_no_time_out_are_left_out() -> None:
    run = faulty((Hit(1, 6, fault="freeze", detect_ms=5_000),), (Hit(0, 10, detect_ms=500_000),))
    assert found(run, times=50).verdict is Verdict.PASS


BLIND = [
    healthy(),  # a kill is noticed at once
    healthy(kills=()),
    hang("hang").drop("fault.fired"),
    hang("hang").drop("controller.state", attempt=0, to="RESTARTING"),
    hang("hang").drop("restore.end"),
    hang("hang").until("fault.confirmed"),
    hang("hang").change("fault.fired", fault="quake"),
    faulty((Hit(1, 6, fault="hang"),), (Hit(0, 10, fault="hang"),)).drop("schedule.begin", attempt=2),
]


@pytest.mark.parametrize("run", BLIND)
def test_without_a_whole_recovery_from_a_hang_the_answer_is_unknown(run: Run) -> None:
    (finding,) = run.judged(("detection", lambda case: check(case, 10.0))).findings
    assert finding.verdict is Verdict.UNKNOWN


def test_the_chain_names_each_time_out_with_its_setting_and_default() -> None:
    told = chain(hang("hang").case().record, all_faults()["hang"])
    assert told.split("; ") == [
        "process_group 10 s (TorchConfig(timeout_s), default 1800 s)",
        "poll 0.5 s (RAY_TRAIN_HEALTH_CHECK_INTERVAL_S, default 2 s)",
        "shutdown 3 s (TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S, default 30 s)",
    ]


def test_a_time_out_left_alone_is_told_by_its_default() -> None:
    record = hang("hang").asked(timeouts={"report": None}).case().record
    assert chain(record, all_faults()["missing-report"]).split("; ") == [
        "report never (RAY_TRAIN_COLLECTIVE_TIMEOUT_S, default never)",
        "poll 2 s (RAY_TRAIN_HEALTH_CHECK_INTERVAL_S, default 2 s)",
        "shutdown 30 s (TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S, default 30 s)",
    ]


def test_every_time_out_that_a_fault_is_noticed_by_is_known() -> None:
    for name, fault in all_faults().items():
        assert set(fault.noticed_by) <= TIMEOUTS.keys(), name


@pytest.mark.parametrize(
    ("noticed_by", "floor"),
    [
        (("process_group", "worker_health"), 600.0),
        (("report", "process_group"), 1800.0),
        (("report",), None),
        ((), None),
    ],
)
def test_the_floor_is_the_first_default_to_expire(noticed_by: tuple[str, ...], floor: float | None) -> None:
    assert floor_s(noticed_by) == floor
