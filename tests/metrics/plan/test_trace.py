"""Records of failures, read from CSV."""

from __future__ import annotations

import pytest

from metrics.plan.quantities import PlanError
from metrics.plan.trace import read


@pytest.fixture
def written(tmp_path):
    def write(text: str):
        (tmp_path / "failures.csv").write_text(text)
        return tmp_path / "failures.csv"

    return write


def test_failures_are_read_with_the_machines_that_they_took(written):
    found = read(written("time_h,machines,cause\n0.5,1,gpu\n2,16,switch\n2,0,nan in loss\n"))
    assert (found.times_s, found.machines, found.gaps) == ((1800, 7200, 7200), (1, 16, 0), ())
    assert (found.end_s, found.mtbf_s) == (7200, 2400)


def test_without_a_column_of_machines_each_failure_takes_one(written):
    assert read(written("time_h\n1\n2\n")).machines == (1, 1)


def test_a_gap_is_told_with_its_line(written):
    times = [*range(60), 200]
    (gap,) = read(written("time_h\n" + "\n".join(map(str, times)))).gaps
    assert gap.endswith("line 62: 141.0 hours without a failure, 42 times the mean: is a part of the record missing?")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hours\n1\n2\n", r"line 1: no column time_h among hours"),
        ("", r"line 1: no column time_h among none"),
        ("time_h\n1\nsoon\n3\n", r"line 3: time_h 'soon' is no number: mend the line or leave it out"),
        ("time_h,machines\n1,1\n,1\n", r"line 3: time_h is missing"),
        ("time_h,machines\n1,1\n2\n", r"line 3: machines is missing"),
        ("time_h,machines\n1,1\n2,1.5\n", r"line 3: machines=1.5 is no number of machines"),
        ("time_h\n1\n5\n4\n", r"line 4: time_h=4 lies before the line above: sort by time"),
        ("time_h\n1\n-5\n", r"line 3: time_h=-5: hours since the record began"),
        ("time_h\n1\nnan\n", r"line 3: time_h=nan"),
        ("time_h\n1\n", r"holds 1 failures: at least 2"),
    ],
)
def test_a_bad_line_is_named(written, text, message):
    with pytest.raises(PlanError, match=rf"failures.csv,? ?{message}"):
        read(written(text))


def test_no_record_is_told(tmp_path):
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        read(tmp_path / "nosuch.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="cannot be read"):
        read(tmp_path / "bytes.csv")
