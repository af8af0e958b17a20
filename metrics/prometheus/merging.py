"""``metrics.prom`` of a suite: the files of its members in one, with what only the suite knows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from metrics.prometheus.exposition import SuiteFacts, put_suite
from metrics.prometheus.families import Families


class _Merged(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def merge(files: Iterable[Path], suite: SuiteFacts, path: Path) -> None:
    """Write one file, at once, with the series of many and of their suite; one that cannot be read is left out."""
    found: dict[str, Metric] = {}
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            for family in list(text_string_to_metric_families(file.read_text(encoding="utf-8"))):
                _take(family, found)
    own = Families()
    put_suite(suite, own)
    for family in own.collect():
        _take(family, found)
    made = CollectorRegistry()
    made.register(_Merged(found.values()))
    write_to_textfile(str(path), made)


def _take(family: Metric, into: dict[str, Metric]) -> None:
    known = into.setdefault(family.name, Metric(family.name, family.documentation, family.type))
    known.samples.extend(family.samples)
