"""The check of starter.py on runs that are made up: right is green, wrong is red, no evidence is unknown."""

from pathlib import Path

import pytest

FILE = Path(__file__).with_name("starter.py")


@pytest.mark.parametrize(("losses", "verdict"), [([5.0, 3.0], "pass"), ([3.0, 5.0], "fail"), ([], "unknown")])
def test_the_last_loss_decides(aftershock, losses, verdict):
    assert aftershock.judge(FILE, "starter_check(limit<=4)", losses=losses).verdict == verdict


def test_the_file_is_sound(aftershock):
    aftershock.validate(FILE)
