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


# The runs of a suite in one file


def merged(directory: Path, *names: str, **others: dict[str, str]) -> ET.Element:
    junit.merge((directory / name / "junit.xml" for name in names), directory / "junit.xml", **others)
    root = ET.parse(directory / "junit.xml").getroot()
    assert root.tag == "testsuites"
    for suite in root:
        assert_counts(suite)
    return root


def put(directory: Path, name: str, run: Run) -> ET.Element:
    (directory / name).mkdir()
    return written(summary(run), directory / name)


def test_runs_in_one_file_are_what_they_were_in_their_own(tmp_path: Path) -> None:
    whole = put(tmp_path, "a", healthy())
    failed = put(tmp_path, "b", healthy().change("step.end", {"rank": 1, "step": 9}, loss=0.0))
    found = merged(tmp_path, "a", "b")
    assert [ET.canonicalize(ET.tostring(suite), strip_text=True) for suite in found] == [
        ET.canonicalize(ET.tostring(suite), strip_text=True) for suite in (whole, failed)
    ]


def test_without_a_run_the_file_is_empty_and_readable(tmp_path: Path) -> None:
    assert len(merged(tmp_path)) == 0


@pytest.mark.parametrize("text", [None, "", "<testsuites>", "<testsuites><testsuite></testsuites>", "\x00", "no XML"])
def test_a_run_whose_file_is_absent_or_broken_is_an_error_of_its_own(tmp_path: Path, text: str | None) -> None:
    put(tmp_path, "a", healthy())
    (tmp_path / "b").mkdir()
    if text is not None:
        (tmp_path / "b" / "junit.xml").write_text(text)
    put(tmp_path, "c", healthy())
    first, broken, last = merged(tmp_path, "a", "b", "c")
    assert first.attrib["name"] == last.attrib["name"] == "kill-worker"
    assert (broken.attrib["name"], broken.attrib["tests"], broken.attrib["errors"]) == ("b", "1", "1")
    (case,) = broken
    assert case.find("error") is not None


def test_a_run_without_a_file_is_an_error_or_skipped_with_its_reason(tmp_path: Path) -> None:
    put(tmp_path, "a", healthy())
    found = merged(tmp_path, "a", errors={"b": "not run"}, skipped={"c": "no \x1b[1mptrace & <more>"})
    assert [suite.attrib["name"] for suite in found] == ["kill-worker", "b", "c"]
    assert [[e.tag for case in suite for e in case] for suite in found][1:] == [["error"], ["skipped"]]
    error, skipped = found[1].find("testcase/error"), found[2].find("testcase/skipped")
    assert error is not None
    assert skipped is not None
    assert (error.attrib["message"], skipped.attrib["message"]) == ("not run", "no ?[1mptrace & <more>")


def test_a_merged_file_replaces_the_one_before(tmp_path: Path) -> None:
    merged(tmp_path, errors={"b": "not run"})
    put(tmp_path, "b", healthy())
    assert [suite.attrib["name"] for suite in merged(tmp_path, "b")] == ["kill-worker"]


# Any text


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
