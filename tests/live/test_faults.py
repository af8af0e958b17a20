"""Faults of processes on a real job, many in one run: fired at their moments, confirmed, survived, judged.

Every scenario of the library by itself runs in the long tier.
"""

from __future__ import annotations

import shutil

import pytest

from chaos.exits import ExitCode
from chaos.faults.async_exception import AsyncException
from chaos.faults.crash_in_call import CrashControllerInCall, CrashInCall
from chaos.faults.delay import Delay
from chaos.faults.exit import Exit
from chaos.faults.freeze import Freeze
from chaos.faults.gil_call import GilCall
from chaos.faults.hang_gil import HangGil
from chaos.faults.kill import Kill
from chaos.faults.memory_limit import MemoryLimit
from chaos.faults.missing_report import MissingReport
from chaos.faults.segfault import Segfault
from chaos.faults.skip_collective import SkipCollective
from chaos.faults.straggler import Straggler
from chaos.history import History
from chaos.schedule import Arming
from chaos.targets import Rank
from chaos.triggers import at_step, before_step, in_phase, on_attempt
from metrics.attempts import attempts_of
from metrics.checkpoints.registry import FILE as SNAPSHOT
from metrics.expectations import HEALTHY, UNDISTURBED, beats_defaults, fails, names, restarts
from metrics.recovery import recoveries
from metrics.verdict import Case
from tests.live.bench import Bench
from tests.mutants.trial import told

ZERO, ONE = Rank(0), Rank(1)


def is_green(bench: Bench, name: str, *armings: Arming, **options: object) -> Case:
    """Train once with these faults; the verdict is green, every fault confirmed."""
    request = bench.scenario(*armings, **options)  # type: ignore[arg-type]
    case, judgement = bench.judge(bench.train(request, name))
    assert judgement.exit_code is ExitCode.PASS, told(judgement)
    assert len(case.history.select("fault.confirmed")) == len(request.injections)
    return case


def test_workers_that_end_in_any_way_use_the_budget_up_and_no_more(bench: Bench) -> None:
    """Four faults against a budget of three: three recoveries, then a clear end."""
    request = bench.scenario(
        Arming(Segfault(), at_step(3), ONE),
        Arming(Exit(code=0), at_step(5), ZERO),
        Arming(AsyncException(), at_step(7), ONE),
        Arming(MemoryLimit(), at_step(9), ZERO),
        expects=restarts(times=3) & fails(error="WorkerGroupError") & names(error="MemoryError"),
        max_failures="3",
    )
    case, judgement = bench.judge(bench.train(request, "crashes", recovers=False))
    assert judgement.exit_code is ExitCode.PASS, told(judgement)
    causes = {e.data["cause"] for e in case.history.select("process.exit")}
    assert {"SIGSEGV", "exit code 0"} <= causes or causes == {""}
    fired = [(e.rank, e.step) for e in case.history.select("fault.fired")]
    assert fired == [(1, 3), (0, 5), (1, 7), (0, 9)]
    assert [bool(recovery.missing) for recovery in recoveries(case)] == [False, False, False, True]


def test_a_job_survives_a_kill_in_the_phases_of_its_life(bench: Bench) -> None:
    case = is_green(
        bench,
        "phases",
        Arming(Kill(), in_phase("first-step"), ONE),
        Arming(Kill(), in_phase("save") & at_step(8), ZERO),
        Arming(Kill(), before_step(14), ONE),
        Arming(Kill(), in_phase("teardown") & on_attempt(2), ZERO),
        Arming(Kill(), in_phase("restore") & on_attempt(3), ONE),
        Arming(Kill(), in_phase("commit") & at_step(20), ZERO),
    )
    assert len(case.attempts) == 6
    found = recoveries(case)
    assert [len(recovery.fired) for recovery in found] == [1, 1, 2, 1, 1]
    assert all(sum(p.end_ns - p.begin_ns for p in r.phases) == round(r.total_s * 1e9) for r in found if not r.missing)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_crash_hits_the_very_call_that_it_names(bench: Bench) -> None:
    """A rank dies before its metadata are renamed, the job comes back; then its controller dies before its record."""
    request = bench.scenario(
        Arming(CrashInCall(call="rename", file=".metadata.tmp"), in_phase("save") & at_step(8), ZERO),
        Arming(CrashControllerInCall(file=SNAPSHOT), in_phase("report") & at_step(8) & on_attempt(1), ZERO),
    )
    directory = bench.train(request, "calls", recovers=False)
    history = History.load(directory)
    assert [event.data["evidence"] for event in history.select("fault.confirmed")] == [
        "killed on entering rename 1 on .metadata.tmp",
        f"killed on entering openat 1 on {SNAPSHOT}",
    ]
    assert [attempt.resumed for attempt in attempts_of(history)] == [0, 4]
    assert history.select("workload.exit")[0].data["code"] == 1
    (experiment,) = (directory / "storage").glob(f"*/{SNAPSHOT}")
    assert len(list(experiment.parent.glob("checkpoint_*/.metadata"))) == 2, "of step 4, and the one never recorded"


def test_a_hang_of_every_kind_is_confirmed_and_over_soon(bench: Bench) -> None:
    case = is_green(
        bench,
        "hangs",
        Arming(Freeze(), at_step(5), ONE),
        Arming(SkipCollective(), at_step(9), ZERO),
        Arming(HangGil(), at_step(13), ONE),
        Arming(MissingReport(), in_phase("report") & at_step(16), ZERO),
        expects=HEALTHY & beats_defaults(times=5),
    )
    evidence = {e.data["injection"]: e.data["evidence"] for e in case.history.select("fault.confirmed")}
    assert "stopped (state T)" in evidence["freeze-0"]
    assert "rank 1 stands in hold_lock (hang_gil.py" in evidence["hang-gil-0"]
    assert "rank 0 stands in fire (hang.py" in evidence["missing-report-0"]
    assert "rank 1 stands in accompany (skip_collective.py" in evidence["skip-collective-0"]


def test_a_healthy_job_that_is_disturbed_does_not_restart(bench: Bench) -> None:
    case = is_green(
        bench,
        "disturbed",
        Arming(Delay(seconds=3), in_phase("first-step"), ZERO),
        Arming(Delay(seconds=2), in_phase("save") & at_step(4), ONE),
        Arming(Straggler(seconds=1), at_step(5), ONE),
        Arming(GilCall(seconds=2), at_step(18), ZERO),
        Arming(Delay(seconds=0.2), (at_step(19) >> in_phase("step")).repeat(3), ONE),
        Arming(Delay(seconds=2), in_phase("evaluation") & at_step(24), ZERO),
        expects=UNDISTURBED,
        evaluate_every="24",
    )
    assert len(case.attempts) == 1
