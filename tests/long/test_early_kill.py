"""A worker killed before the first checkpoint: the job starts over from step 0, and that is no fault of the job's."""

from __future__ import annotations

from chaos.exits import ExitCode
from metrics.publish import publish
from metrics.verdict import Verdict
from tests.live.bench import Bench
from tests.mutants.trial import told


def test_a_kill_before_the_first_checkpoint_restarts_from_nothing(bench: Bench) -> None:
    case, judgement = bench.judge(bench.train(bench.request(step=2), "early"))
    assert judgement.exit_code is ExitCode.PASS, told(judgement)
    verdicts = {finding.check: finding.verdict for finding in judgement.findings}
    assert verdicts.pop("restored-state") is Verdict.NOT_APPLICABLE
    assert set(verdicts.values()) == {Verdict.PASS}
    (recovery,) = publish(case, judgement).recoveries
    assert (recovery.step_before, recovery.resume_step, recovery.lost_steps) == (2, 0, 2)
    assert {phase.name: phase.seconds for phase in recovery.phases}["restore"] == 0
    assert "no checkpoint yet" in (case.directory / "report.html").read_text()
