"""What is refused of a user's script at the moment that it tells, and what becomes of its storage."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos.exits import UsageError
from chaos.history import Event, HistoryWriter
from chaos.ledger import Account, Ledger
from metrics.checkpoints.registry import FILE
from scenarios.scripts import Intake, check, why_not_learnt

TOLD = {
    "experiment": "/results/job",
    "filesystem": "local",
    "found": [],
    "workers": 2,
    "claim": {"CPU": 1.0},
    "timeout_s": 1800.0,
}


def started(node="127.1.1.11", **changes):
    return Event(kind="controller.start", wall_ns=1, mono_ns=1, node=node, pid=1, data={**TOLD, **changes})


@pytest.fixture
def cluster():
    head, *others = (SimpleNamespace(address=f"127.1.1.{10 + i}", cpus=2 * (i > 0)) for i in range(3))
    return SimpleNamespace(nodes=[head, *others], head=head)


def test_a_job_that_fits_is_let_in(cluster):
    check(started(), cluster)
    check(started(workers=[2, 8]), cluster)
    check(started(claim={}), cluster)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"node": "10.0.0.1"}, "a cluster of its own, at 10.0.0.1"),
        ({"filesystem": "s3"}, "/results/job on s3: give RunConfig a storage_path"),
        ({"found": [FILE]}, "holds the checkpoints of an earlier job"),
        ({"found": ["checkpoint_2026-11-30_08-00-00.000000"]}, "holds the checkpoints of an earlier job"),
        ({"found": None}, "cannot be looked into"),
        ({"claim": {"CPU": 1.0, "GPU": 1.0}}, "each worker claims 1 GPU"),
        ({"claim": {"TPU": 4.0}}, "each worker claims 4 TPU"),
        ({"workers": 5}, "5 workers of 1 CPUs do not fit on 2 nodes of 2 CPUs"),
        ({"workers": [5, 9]}, "5 workers"),
        ({"claim": {"CPU": 3.0}}, "2 workers of 3 CPUs do not fit"),
    ],
)
def test_a_job_that_could_not_be_followed_or_never_start_is_refused_with_the_way_out(cluster, changes, why):
    with pytest.raises(UsageError, match=why):
        check(started(**changes), cluster)


@pytest.fixture
def intake(cluster, tmp_path):
    ledger = Ledger.open(tmp_path, "deadbeef")
    return Intake(SimpleNamespace(cluster=cluster, bed=SimpleNamespace(ledger=ledger)), tmp_path)


def test_a_second_trainer_is_refused(intake):
    intake(started())
    with pytest.raises(UsageError, match="two trainers"):
        intake(started())


def test_what_the_job_stores_is_taken_to_the_run_once(intake, tmp_path):
    experiment = tmp_path / "results" / "job"
    (experiment / "checkpoint_1").mkdir(parents=True)
    intake(started(experiment=str(experiment)))
    intake.take_in()
    intake.take_in()
    assert (tmp_path / "storage" / "job" / "checkpoint_1").is_dir()
    assert not experiment.exists()


def test_a_job_that_is_refused_has_its_storage_in_the_ledger_and_another_ones_is_left_alone(intake, tmp_path):
    for changes in ({"claim": {"GPU": 1.0}}, {"found": ["checkpoint_1"]}, {"found": None}):
        with pytest.raises(UsageError):
            intake(started(**changes))
    assert len(Account.read(tmp_path / "ledger.jsonl").open) == 1


def test_once_its_run_is_over_nothing_is_refused(intake):
    intake.take_in()
    intake(started(node="10.0.0.1"))


@pytest.mark.parametrize(
    ("kinds", "code", "why"),
    [
        ((), 1, "ended with exit code 1, and no controller of Ray Train V2 was seen"),
        (("controller.start",), 1, "ended with exit code 1 before a rank had completed an optimizer step"),
        (("controller.start", "step.end"), 1, "the script ended with exit code 1;"),
        ((), None, "was ended at its deadline"),
    ],
)
def test_why_nothing_was_learnt_is_told_with_the_scripts_last_words(tmp_path: Path, kinds, code, why):
    writer = HistoryWriter(tmp_path)
    told = {"controller.start": TOLD, "step.end": {"loss": None, "lr": None, "samples": []}}
    for kind in kinds:
        writer.emit(kind, data=told[kind])
    writer.emit("workload.exit", data={"code": code})
    writer.close()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "driver.log").write_bytes(b"\xff\xfe\n\nModuleNotFoundError: no module\n")
    text = why_not_learnt(tmp_path)
    assert why in text
    assert text.endswith("ModuleNotFoundError: no module")
