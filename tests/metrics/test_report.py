"""``report.html``: one page that holds everything and executes nothing that it was told."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from metrics import report
from metrics.expectations import UNDISTURBED
from metrics.recovery import PHASES
from metrics.summary import Summary, summarize
from tests.histories import Run, faulty, healthy
from tests.stories import Hit


class Page(HTMLParser):
    """The texts of a page, and whether its tags close in order."""

    VOID = frozenset({"meta", "br", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data.strip())


def summary(run: Run) -> Summary:
    return summarize(run.case(), run.judged())


def written(found: Summary, directory: Path) -> tuple[str, Page]:
    report.write(found, directory / "report.html")
    text = (directory / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    return text, page


@pytest.mark.parametrize(
    ("word", "run"),
    [
        ("pass", healthy()),
        ("fail", healthy().change("workload.exit", code=1)),
        ("unknown", healthy().with_control(None)),
    ],
)
def test_the_page_says_verdict_reason_and_every_check(word: str, run: Run, tmp_path: Path) -> None:
    found = summary(run)
    text, page = written(found, tmp_path)
    assert f'<span class="word {word}">{word}</span>' in text
    for check in found.checks:
        assert check.name in page.texts
        assert check.expected in page.texts
        assert check.seen in page.texts
    assert found.repeat in page.texts
    assert f"{found.reason} · exit code {found.exit_code} · run {found.run}" in page.texts


def test_the_page_shows_every_phase_with_its_seconds_and_the_total(tmp_path: Path) -> None:
    found = summary(healthy())
    _, page = written(found, tmp_path)
    (recovery,) = found.recoveries
    for phase in recovery.phases:
        assert phase.name in page.texts
        assert PHASES[phase.name] in page.texts
        assert phase.resolution in page.texts
        assert f"{phase.seconds:.3f}" in page.texts
    assert f"{recovery.total_s:.3f}" in page.texts


def test_the_page_says_what_the_fault_certifies(tmp_path: Path) -> None:
    _, page = written(summary(healthy()), tmp_path)
    assert 'What surviving "kill" certifies' in page.texts


def test_the_page_says_of_a_disturbance_what_it_certifies(tmp_path: Path) -> None:
    _, page = written(summary(faulty((Hit(1, 6, fault="delay"),), expects=UNDISTURBED)), tmp_path)
    assert 'What surviving "delay" certifies' in page.texts


def test_the_page_lists_every_injection_with_the_evidence_of_its_effect(tmp_path: Path) -> None:
    run = faulty((Hit(1, 6),), (Hit(0, phase="restore"),)).drop("fault.confirmed", injection="kill-1")
    found = summary(run)
    _, page = written(found, tmp_path)
    for injection in found.injections:
        assert {injection.id, injection.fault, injection.target, injection.when} <= set(page.texts)
    assert found.injections[0].evidence in page.texts
    assert page.texts.count("not confirmed") == 1


def test_the_page_says_where_each_fault_hit(tmp_path: Path) -> None:
    _, page = written(summary(faulty((Hit(1, 6),), (Hit(0, phase="restore"),))), tmp_path)
    assert "Recovery from kill of rank 1 after step 6" in page.texts
    assert "Recovery from kill of rank 0 in restore, step 4" in page.texts


@pytest.mark.parametrize("issue", ["", "Ray 2.60 ends such a run: <b>both</b> ends are accepted"])
def test_a_known_issue_is_told_where_there_is_one(issue: str, tmp_path: Path) -> None:
    _, page = written(summary(healthy().asked(known_issue=issue)), tmp_path)
    assert ("Known issue." in page.texts) == bool(issue)
    assert issue in page.texts


def test_a_recovery_that_never_ended_says_which_border_is_missing(tmp_path: Path) -> None:
    _, page = written(summary(healthy().until("process.exit", attempt=0, rank=0)), tmp_path)
    assert "until 'schedule', whose end was never seen" in page.texts
    assert "?" in page.texts


@pytest.mark.parametrize("place", ["title", "reason", "repeat", "scenario", "run"])
def test_markup_in_what_was_told_is_text_in_the_page(place: str, tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    text, page = written(msgspec.structs.replace(summary(healthy()), **{place: hostile}), tmp_path)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "script" not in page.tags


@pytest.mark.parametrize("place", ["seen", "expected", "where", "name"])
def test_markup_in_a_check_is_text_in_the_page(place: str, tmp_path: Path) -> None:
    found = summary(healthy())
    check = msgspec.structs.replace(found.checks[0], **{place: '"><img src=x onerror=alert(1)>'})
    text, page = written(msgspec.structs.replace(found, checks=[check]), tmp_path)
    assert "<img" not in text
    assert "img" not in page.tags


def test_the_page_opens_offline(tmp_path: Path) -> None:
    text, page = written(summary(healthy()), tmp_path)
    assert re.findall(r"(?:src|href)=|url\(|@import|https?://", text) == []
    assert page.tags & {"script", "link", "iframe", "img"} == set()
