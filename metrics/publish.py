"""Judge a stored run and write what was found beside it; the same for a fresh run and for ``analyze``."""

from __future__ import annotations

import dataclasses
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from chaos.exits import UsageError
from chaos.history import EVENTS, History, HistoryWriter
from metrics import evidence, junit, prometheus, report
from metrics.expectations import Expectation, parse
from metrics.prometheus.facts import facts
from metrics.summary import Summary, summarize
from metrics.verdict import Case, Judgement, judge

ALWAYS = (
    ("history", evidence.check_history),
    ("fault", evidence.check_fault),
    ("residue", evidence.check_residue),
)
"""The checks of every run, whatever is expected of it."""


def judge_run(directory: Path, expect: Expectation | None = None) -> tuple[Case, Judgement]:
    """Load a run directory and judge it by the expectation stored with it, changed by another one where given.

    Raises FileNotFoundError or ValueError when it is no run directory.
    """
    with _collecting_nothing():
        return _judge_run(directory, expect)


@contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Keep Python from looking through ever more events for garbage: that would cost more than the checks."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _judge_run(directory: Path, expect: Expectation | None) -> tuple[Case, Judgement]:
    case = Case.load(directory)
    try:
        expected = parse(case.record.expect)
    except UsageError as error:
        raise ValueError(f"{directory}: its expectation cannot be read: {error}") from error
    if expect is not None:
        expected = expected.but(expect)
        case = dataclasses.replace(case, record=msgspec.structs.replace(case.record, expect=str(expected)))
    return case, judge(case, (*ALWAYS, *expected.checks))


def record_judged(case: Case, judgement: Judgement) -> Case:
    """Note in a fresh run's history that it has been judged, so that its time accounts include the judging."""
    writer = HistoryWriter(case.directory)
    event = writer.emit("run.judged", data={"seconds": judgement.seconds})
    writer.close()
    (case.directory / EVENTS).rmdir()
    return dataclasses.replace(case, history=History.of([*case.history, event], case.history.unreadable))


def publish(case: Case, judgement: Judgement) -> Summary:
    """Write ``verdict.json``, ``junit.xml``, ``metrics.prom`` and ``report.html``.

    Only the first decides anything; a fault in writing the others changes no verdict.
    """
    summary = summarize(case, judgement)
    text = msgspec.json.format(msgspec.json.encode(summary), indent=1)
    (case.directory / "verdict.json").write_bytes(text + b"\n")
    decorations: dict[str, Callable[[Path], None]] = {
        "junit.xml": lambda path: junit.write(summary, path),
        "metrics.prom": lambda path: prometheus.write(facts(case, summary), path),
        "report.html": lambda path: report.write(summary, path),
    }
    for name, write in decorations.items():
        try:
            write(case.directory / name)
        except Exception as error:
            print(f"aftershock: {name} was not written: {error!r}", file=sys.stderr)
    return summary
