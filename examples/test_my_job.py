"""A job that loses workers must come back whole; run with `pytest examples/test_my_job.py`, about three minutes."""

import pytest


@pytest.mark.aftershock("kill-worker", "kill-rank-zero", expect="recovers(within=60)")
def test_the_job_survives_the_loss_of_a_worker(aftershock_result):
    (recovery,) = aftershock_result.recoveries
    assert recovery.lost_steps <= 10
