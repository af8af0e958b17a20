"""All that one process tells: the run that goes on, the last finished one of each scenario, the end of a suite."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from metrics.prometheus import catalogue as c
from metrics.prometheus.exposition import SuiteFacts, put_run, put_suite
from metrics.prometheus.facts import Facts
from metrics.prometheus.families import Families
from metrics.prometheus.live import LiveRun


class Board(Collector):
    """What a registry asks at every scrape, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: LiveRun | None = None
        self._finished: dict[str, Facts] = {}
        self._without: set[str] = set()
        self._suites: dict[str, SuiteFacts] = {}

    @property
    def registry(self) -> CollectorRegistry:
        """A registry that holds this board and nothing else, so nothing of this Python process."""
        made = CollectorRegistry()
        made.register(self)
        return made

    def begin(self, run: LiveRun) -> None:
        """A run begins; what was told of the last one of its scenario is no longer told."""
        with self._lock:
            self._live = run
            self._finished.pop(run.scenario, None)

    def finish(self, facts: Facts) -> None:
        """A run has been judged."""
        with self._lock:
            self._finished[facts.summary.scenario] = facts

    def end(self, scenario: str) -> None:
        """Nothing goes on any more, whether there is a verdict or not."""
        with self._lock:
            self._live = None
            self._without.add(scenario)

    def finish_suite(self, facts: SuiteFacts) -> None:
        """A suite is over."""
        with self._lock:
            self._suites[facts.suite] = facts

    def collect(self) -> Iterator[Metric]:
        """The families of all that is told now."""
        into = Families()
        with self._lock:
            for scenario in sorted(self._without):
                into.put(c.RUN_IN_PROGRESS, 0, scenario=scenario)
            if self._live is not None:
                self._live.put(into)
            for facts in self._finished.values():
                put_run(facts, into)
            for suite in self._suites.values():
                put_suite(suite, into)
        return into.collect()
