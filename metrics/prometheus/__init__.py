"""The numbers of runs for Prometheus: ``metrics.prom`` for the textfile collector, a server, a Pushgateway."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, write_to_textfile

from metrics.prometheus.board import Board as Board
from metrics.prometheus.exposition import VERDICTS as VERDICTS
from metrics.prometheus.exposition import SuiteFacts as SuiteFacts
from metrics.prometheus.facts import Facts as Facts
from metrics.prometheus.merging import merge as merge


def write(told: Facts, path: Path) -> None:
    """Write the metrics of a finished run, at once."""
    write_to_textfile(str(path), registry(told))


def registry(*told: Facts, suite: SuiteFacts | None = None) -> CollectorRegistry:
    """The metrics of finished runs of different scenarios, and of their suite."""
    board = Board()
    for facts in told:
        board.finish(facts)
    if suite is not None:
        board.finish_suite(suite)
    return board.registry
