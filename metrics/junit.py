"""``junit.xml``: one test case for each check, as CI systems read it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

from metrics.summary import CheckRecord, Summary

ILLEGAL = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def write(summary: Summary, path: Path) -> None:
    """Write the checks of a run as a JUnit suite; *unknown* is an error, since it is neither pass nor fail."""
    counts = Counter(check.verdict for check in summary.checks)
    suite = ET.Element(
        "testsuite",
        name=summary.scenario,
        tests=str(len(summary.checks) + 1),
        failures=str(counts["fail"]),
        errors=str(counts["unknown"] + (_run_error(summary) is not None)),
        skipped=str(counts["not-applicable"]),
        time=f"{summary.time.wall_s:.3f}",
    )
    for check in summary.checks:
        _case(suite, summary, check)
    case = ET.SubElement(suite, "testcase", classname=f"aftershock.{summary.scenario}", name="run")
    if (error := _run_error(summary)) is not None:
        ET.SubElement(case, "error", message=error).text = f"repeat with: {summary.repeat}"
    for element in suite.iter():
        element.attrib.update({key: _legal(value) for key, value in element.attrib.items()})
        element.text = _legal(element.text) if element.text else None
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def merge(files: Iterable[Path], path: Path, errors: Mapping[str, str] = {}, skipped: Mapping[str, str] = {}) -> None:
    """Write one file with the suites of many; one that is absent, or cannot be read, is an error of its own.

    ``errors`` and ``skipped``: the runs that have no file, by name, with the reason.
    """
    root = ET.Element("testsuites")
    for file in files:
        try:
            root.extend(ET.parse(file).getroot())
        except (OSError, ET.ParseError) as error:
            _without_file(root, "error", file.parent.name, str(error))
    for tag, reasons in (("error", errors), ("skipped", skipped)):
        for name, reason in reasons.items():
            _without_file(root, tag, name, reason)
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _without_file(root: ET.Element, tag: str, name: str, reason: str) -> None:
    counts = {"tests": "1", "failures": "0", "errors": str(int(tag == "error")), "skipped": str(int(tag == "skipped"))}
    suite = ET.SubElement(root, "testsuite", {"name": name, **counts})
    case = ET.SubElement(suite, "testcase", classname=f"aftershock.{name}", name="run")
    ET.SubElement(case, tag, message=_legal(reason))


def _run_error(summary: Summary) -> str | None:
    """Why the run itself, beyond its checks, did not pass; None when it did."""
    return summary.reason if summary.exit_code not in (0, 1, 2) else None


def _case(suite: ET.Element, summary: Summary, check: CheckRecord) -> None:
    case = ET.SubElement(suite, "testcase", classname=f"aftershock.{summary.scenario}", name=check.name)
    if check.verdict == "not-applicable":
        ET.SubElement(case, "skipped", message=check.seen)
    elif check.verdict != "pass":
        kind = "failure" if check.verdict == "fail" else "error"
        text = f"expected: {check.expected}\nseen: {check.seen}\nwhere: {check.where}\nrepeat with: {summary.repeat}"
        ET.SubElement(case, kind, message=check.seen).text = text


def _legal(text: str) -> str:
    """The text without the control characters that XML 1.0 cannot hold."""
    return ILLEGAL.sub("?", text)
