"""``junit.xml``, read back as a CI system reads it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from metrics import junit
from metrics.summary import Summary, summarize
from tests.histories import Run, healthy


def summary(run: Run) -> Summary:
    return summarize(run.case(), run.judged())


def written(found: Summary, directory: Path) -> ET.Element:
    junit.write(found, directory / "junit.xml")
    suite = ET.parse(directory / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    return suite


def cases(suite: ET.Element) -> dict[str, ET.Element]:
    return {case.attrib["name"]: case for case in suite.iter("testcase")}


def assert_counts(suite: ET.Element) -> None:
    for attribute, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[attribute]) == len(list(suite.iter(tag))), attribute


def test_a_pass_is_one_good_case_for_each_check_and_the_run(tmp_path: Path) -> None:
    found = summary(healthy())
    suite = written(found, tmp_path)
    assert list(cases(suite)) == [*healthy().names, "run"]
    assert_counts(suite)
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("0", "0")
    assert float(suite.attrib["time"]) == pytest.approx(found.time.wall_s, abs=1e-3)


def test_a_failed_check_is_a_failure_that_says_how_to_repeat_it(tmp_path: Path) -> None:
    suite = written(summary(healthy().change("step.end", {"rank": 1, "step": 9}, loss=0.0)), tmp_path)
    assert_counts(suite)
    failure = cases(suite)["trajectory"].find("failure")
    assert failure is not None
    assert "first difference at step 9, rank 1" in failure.attrib["message"]
    text = failure.text or ""
    assert [line.split(":")[0] for line in text.splitlines()] == ["expected", "seen", "where", "repeat with"]
    assert "repeat with: aftershock run kill-worker" in text


def test_an_unknown_check_is_an_error_not_a_failure(tmp_path: Path) -> None:
    suite = written(summary(healthy().with_control(None)), tmp_path)
    assert_counts(suite)
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("0", "2")
    assert cases(suite)["trajectory"].find("error") is not None


def test_a_check_that_does_not_apply_is_skipped(tmp_path: Path) -> None:
    suite = written(summary(healthy(kills=((1, 2),))), tmp_path)
    assert_counts(suite)
    assert suite.attrib["skipped"] == "1"
    assert cases(suite)["restored-state"].find("skipped") is not None


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (healthy().change("run.healed", errors=["pid 7 lives"]), "could not be undone: pid 7 lives"),
        (healthy(kills=()), "no fault was armed"),
    ],
)
def test_an_outcome_beyond_the_checks_is_an_error_of_the_run(run: Run, words: str, tmp_path: Path) -> None:
    suite = written(summary(run), tmp_path)
    assert_counts(suite)
    error = cases(suite)["run"].find("error")
    assert error is not None
    assert error.attrib["message"] == words


def seen_in(found: Summary, text: str) -> Summary:
    """With the first check failed and seeing a text."""
    first = msgspec.structs.replace(found.checks[0], verdict="fail", seen=text)
    return msgspec.structs.replace(found, checks=[first, *found.checks[1:]])


def test_markup_and_foreign_letters_come_back_as_they_were(tmp_path: Path) -> None:
    text = '<b>&"quoted" ]]> größer 数'
    suite = written(seen_in(summary(healthy()), text), tmp_path)
    failure = cases(suite)["history"].find("failure")
    assert failure is not None
    assert failure.attrib["message"] == text


@pytest.mark.parametrize("text", ["\x1b[31mred\x1b[0m", "nul \x00"])
def test_control_characters_leave_the_file_readable(text: str, tmp_path: Path) -> None:
    suite = written(seen_in(summary(healthy()), text), tmp_path)
    assert "history" in cases(suite)
