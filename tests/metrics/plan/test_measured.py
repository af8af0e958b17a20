"""What a plan takes from a stored run."""

from __future__ import annotations

import msgspec
import pytest

from chaos.history import NAME
from metrics.plan.measured import measure
from metrics.plan.quantities import PlanError
from tests.metrics.plan.runs import DOWN_S, PHASES_S, recovery, summary, write


def test_downtime_ends_where_the_load_begins_and_replayed_steps_are_left_out(tmp_path):
    found = measure(write(tmp_path))
    assert found.downtime_s == pytest.approx([DOWN_S])
    assert found.restore_s == [0.595]
    assert found.phases_s == pytest.approx(PHASES_S)
    assert (found.scenario, found.workers, found.partial) == ("kill-worker", 2, 0)
    assert found.told(found.restore_s) == "measured: mean of 1 recovery of 2 workers"


def test_the_stall_of_a_checkpoint_is_the_mean_over_all_saves(tmp_path):
    found = measure(write(tmp_path))
    assert (found.saves, found.checkpoint_s) == (4, pytest.approx(0.3))


def test_each_recovery_counts_and_what_is_not_whole_is_left_out(tmp_path):
    told = summary(recovery(), recovery(start=18.776, restore=1.595), recovery(missing="replay"))
    found = measure(write(tmp_path, told))
    assert found.downtime_s == pytest.approx([DOWN_S, DOWN_S + 10])
    assert found.restore_s == [0.595, 1.595]
    assert found.phases_s["start"] == pytest.approx(13.776)
    assert (found.partial, found.told(found.downtime_s)) == (1, "measured: mean of 2 recoveries of 2 workers")


def test_a_recovery_that_loaded_nothing_tells_nothing_of_loading(tmp_path):
    found = measure(write(tmp_path, summary(recovery(), recovery(restore=0.0))))
    assert (len(found.downtime_s), found.restore_s) == (2, [0.595])


def test_without_saves_or_without_a_history_no_stall_is_told(tmp_path):
    directory = write(tmp_path, saves=0)
    assert measure(directory).checkpoint_s is None
    (directory / NAME).unlink()
    assert measure(directory).checkpoint_s is None


def test_without_goodput_no_stall_is_told(tmp_path):
    assert measure(write(tmp_path, summary(goodput=None))).checkpoint_s is None


def test_a_run_without_a_whole_recovery_is_refused(tmp_path):
    directory = write(tmp_path, summary(recovery(missing="schedule")))
    with pytest.raises(PlanError, match="1 recovery, none whole: name a run in which a job came back"):
        measure(directory)
    (directory / "verdict.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(summary(), recoveries=[])))
    with pytest.raises(PlanError, match="holds no recovery"):
        measure(directory)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(PlanError, match="No such file or directory; name the directory of a run"):
        measure(tmp_path / "nosuch")
    (tmp_path / "verdict.json").write_text("{}")
    with pytest.raises(PlanError, match=r"cannot be read, or is of another version: .*; try aftershock analyze"):
        measure(tmp_path)
