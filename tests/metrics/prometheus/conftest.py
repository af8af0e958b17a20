"""What the tests of the exporters share: stored runs, told and read back as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from metrics.prometheus import Facts
from metrics.prometheus.facts import facts
from metrics.summary import summarize
from tests.histories import Run


class Samples(dict[tuple[str, frozenset[tuple[str, str]]], float]):
    """Values by name and labels, of metrics parsed from Prometheus' text."""

    def __init__(self, families: Iterable[Metric]) -> None:
        found = [sample for family in families for sample in family.samples]
        super().__init__({(sample.name, frozenset(sample.labels.items())): sample.value for sample in found})

    def at(self, name: str, **labels: str) -> float:
        """The value of one series of kill-worker; ``class_`` stands for the label ``class``."""
        named = {key.removesuffix("_"): value for key, value in labels.items()}
        return self[f"aftershock_{name}", frozenset({"scenario": "kill-worker", **named}.items())]

    def named(self, name: str) -> list[float]:
        """The values of every series of that name."""
        return [value for (found, _), value in self.items() if found == f"aftershock_{name}"]


@pytest.fixture
def told():
    """The facts of a synthetic run, judged by the checks that need no storage, or by all where it is stored."""

    def tell(run: Run, directory: Path = Path("nowhere")) -> Facts:
        case = run.case(directory)
        return facts(case, summarize(case, run.judged()))

    return tell


@pytest.fixture
def read():
    """The samples of a registry, by way of the text that Prometheus reads."""

    def parse(registry: CollectorRegistry) -> Samples:
        return Samples(text_string_to_metric_families(generate_latest(registry).decode()))

    return parse
