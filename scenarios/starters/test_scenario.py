"""What starter.py breaks, and that the job survives it; leave the long test out with -m 'not aftershock'."""

from pathlib import Path

import pytest

FILE = Path(__file__).with_name("starter.py")


def test_the_plan_hits_rank_0_once(aftershock):
    (plan,) = aftershock.plan(FILE)
    assert [(each["fault"], each["target"]) for each in plan["injections"]] == [("exit", "rank 0")]


@pytest.mark.aftershock(FILE)
def test_the_job_comes_back(aftershock_result):
    assert aftershock_result.restarts == 1
