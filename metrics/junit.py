"""``junit.xml``: one test case for each check, as CI systems read it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from metrics.summary import CheckRecord, Summary


def write(summary: Summary, path: Path) -> None:
    """Write the checks of a run as a JUnit suite; *unknown* is an error, since it is neither pass nor fail."""
    counts = {verdict: sum(c.verdict == verdict for c in summary.checks) for verdict in ("fail", "unknown")}
    suite = ET.Element(
        "testsuite",
        name=summary.scenario,
        tests=str(len(summary.checks) + 1),
        failures=str(counts["fail"]),
        errors=str(counts["unknown"] + (_run_error(summary) is not None)),
        skipped="0",
        time=f"{summary.time.wall_s:.3f}",
    )
    for check in summary.checks:
        _case(suite, summary, check)
    case = ET.SubElement(suite, "testcase", classname=f"aftershock.{summary.scenario}", name="run")
    if (error := _run_error(summary)) is not None:
        ET.SubElement(case, "error", message=error).text = f"repeat with: {summary.repeat}"
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _run_error(summary: Summary) -> str | None:
    """Why the run itself, beyond its checks, did not pass; None when it did."""
    return summary.reason if summary.exit_code not in (0, 1, 2) else None


def _case(suite: ET.Element, summary: Summary, check: CheckRecord) -> None:
    case = ET.SubElement(suite, "testcase", classname=f"aftershock.{summary.scenario}", name=check.name)
    if check.verdict != "pass":
        kind = "failure" if check.verdict == "fail" else "error"
        text = f"expected: {check.expected}\nseen: {check.seen}\nwhere: {check.where}\nrepeat with: {summary.repeat}"
        ET.SubElement(case, kind, message=check.seen).text = text
