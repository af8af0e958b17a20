"""Samples gathered by metric, and handed to prometheus-client as families; a family without a sample does not exist."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.samples import Exemplar

from metrics.prometheus.catalogue import ALL, Kind, Spec


class Observation(NamedTuple):
    """One measured value of a histogram, the run that it is from, and when that ended (seconds since the epoch)."""

    value: float
    run: str
    at_s: float


class Families:
    """What one exposition holds. Values of labels are given by name; all that the metric has, and no others."""

    def __init__(self) -> None:
        self._values: dict[Spec, dict[tuple[str, ...], float]] = {}
        self._observed: dict[Spec, dict[tuple[str, ...], list[Observation]]] = {}

    def put(self, metric: Spec, value: float, **labels: str) -> None:
        """Set the value of a gauge or a counter."""
        self._values.setdefault(metric, {})[_ordered(metric, labels)] = float(value)

    def states(self, metric: Spec, states: Sequence[str], current: str, label: str, **labels: str) -> None:
        """Set a state set: 1 for the current state, 0 for every other one."""
        for state in states:
            self.put(metric, state == current, **{label: state}, **labels)

    def observe(self, metric: Spec, found: Observation, **labels: str) -> None:
        """Take one more value into a histogram."""
        self._observed.setdefault(metric, {}).setdefault(_ordered(metric, labels), []).append(found)

    def collect(self) -> Iterator[Metric]:
        """The families in the order of the catalogue."""
        for metric in ALL:
            if metric in self._observed:
                yield _histogram(metric, self._observed[metric])
            elif metric in self._values:
                yield _plain(metric, self._values[metric])


def _ordered(metric: Spec, labels: dict[str, str]) -> tuple[str, ...]:
    assert labels.keys() == set(metric.labels), f"{metric.name} has the labels {metric.labels}, not {tuple(labels)}"
    return tuple(labels[name] for name in metric.labels)


def _plain(metric: Spec, values: dict[tuple[str, ...], float]) -> Metric:
    name = metric.name.removesuffix("_total") if metric.kind is Kind.COUNTER else metric.name
    family = Metric(name, metric.help, str(metric.kind))
    for labels, value in values.items():
        family.add_sample(metric.name, dict(zip(metric.labels, labels, strict=True)), value)
    return family


def _histogram(metric: Spec, observed: dict[tuple[str, ...], list[Observation]]) -> Metric:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, found in observed.items():
        family.add_metric(labels, _buckets(metric.buckets, found), sum(one.value for one in found))
    return family


Bucket = tuple[str, float] | tuple[str, float, Exemplar]


def _buckets(bounds: Sequence[float], found: list[Observation]) -> list[Bucket]:
    """Each bound with how many values do not exceed it, and the last value that no smaller bound takes in."""
    made: list[Bucket] = []
    below = -math.inf
    for bound in (*bounds, math.inf):
        own = [one for one in found if below < one.value <= bound]
        name, count = "+Inf" if bound == math.inf else str(bound), float(sum(one.value <= bound for one in found))
        last = own[-1] if own else None
        made.append((name, count, Exemplar({"run": last.run}, last.value, last.at_s)) if last else (name, count))
        below = bound
    return made
