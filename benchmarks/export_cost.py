"""What telling Prometheus of a stored run costs: processor time of all three ways out, beside the run's wall clock.

    .venv/bin/python benchmarks/export_cost.py [RUN ...]

For each run directory: every event of its history goes through the observer of ``--serve-metrics``; a scrape in
OpenMetrics is answered for each 15 s of its life; then, as when it has been judged, its facts are gathered,
``metrics.prom`` is written, the history is read again for the board, one last scrape is answered and the text of a push
is made. The network is not counted. Without arguments a synthetic run of 40 steps is told, whose life is taken to be
60 s. Exit code 1 when a run costs 1 % of its wall clock or more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from metrics import prometheus
from metrics.prometheus.board import Board
from metrics.prometheus.facts import facts
from metrics.prometheus.live import LiveRun
from metrics.publish import judge_run, publish
from metrics.summary import Summary
from metrics.verdict import Case

T = TypeVar("T")

PROMISED, PAUSE_S, SYNTHETIC_S = 0.01, 15.0, 60.0


@dataclass
class Clock:
    """Processor seconds by what they went into."""

    spent: dict[str, float] = field(default_factory=dict)

    def take(self, name: str, action: Callable[[], T]) -> T:
        begin = time.process_time()
        done = action()
        self.spent[name] = self.spent.get(name, 0.0) + time.process_time() - begin
        return done


def told(run: Path, scratch: Path) -> tuple[Clock, float, int]:
    """Tell a stored run as the command does; what it cost, the run's wall clock in seconds, and its events."""
    case = Case.load(run)
    summary = msgspec.json.decode((run / "verdict.json").read_bytes(), type=Summary)
    clock, board, live = Clock(), Board(), LiveRun(summary.scenario, summary.steps)
    board.begin(live)
    wall_s = SYNTHETIC_S if run.name == "synthetic" else summary.time.wall_s
    every = max(1, int(len(case.history.events) / max(1.0, wall_s / PAUSE_S)))
    for place, event in enumerate(case.history.events):
        clock.take("observing", lambda event=event: live(event))
        if place % every == 0:
            clock.take("scrapes", lambda: openmetrics(board.registry))
    clock.take("textfile", lambda: prometheus.write(facts(case, summary), scratch / "metrics.prom"))
    found = clock.take("reading again", lambda: facts(Case.load(run), summary))
    board.finish(found)
    board.end(summary.scenario)
    clock.take("scrapes", lambda: openmetrics(board.registry))
    clock.take("push", lambda: generate_latest(prometheus.registry(found)))
    return clock, wall_s, len(case.history.events)


def synthetic(folder: Path) -> Path:
    from tests.histories import healthy

    run = healthy(kills=((1, 25),), steps=40, every=10).write(folder / "synthetic")
    publish(*judge_run(run))
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="directories of judged runs")
    asked = parser.parse_args().runs
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="export-") as scratch:
        for run in asked or [synthetic(Path(scratch))]:
            clock, wall_s, events = told(run, Path(scratch))
            cost_s = sum(clock.spent.values())
            worst = max(worst, cost_s / wall_s)
            parts = ", ".join(f"{name} {seconds * 1e3:.1f}" for name, seconds in clock.spent.items())
            print(f"{run.name}: {events} events in {wall_s:.1f} s")
            print(f"  {cost_s * 1e3:.1f} ms, {cost_s / wall_s:.3%}: {parts}")
    print(f"at most {worst:.3%} of a run's wall clock (promised: below {PROMISED:.0%})")
    return 0 if worst < PROMISED else 1


if __name__ == "__main__":
    sys.exit(main())
