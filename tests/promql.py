"""What the shipped rules and the dashboard ask Prometheus for, and which metrics that names."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from metrics.observability import HERE
from metrics.prometheus.catalogue import ALL, Kind

RULES = HERE / "prometheus" / "aftershock.rules.yml"
DASHBOARD = HERE / "grafana" / "dashboards" / "aftershock.json"

NAME = re.compile(r"\b(?:\w+:)?aftershock_\w+(?::\w+)?")


def rules() -> list[dict[str, Any]]:
    """Every rule, in order."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text())


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard but the headings of its rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def filled(query: str) -> str:
    """A query of the dashboard as Grafana sends it when all scenarios are chosen."""
    return query.replace("$scenario", ".*")


def queries() -> dict[str, str]:
    """Every query of the dashboard, by its panel and letter."""
    return {f"{p['title']} {t['refId']}": filled(t["expr"]) for p in panels() for t in p["targets"]}


def exported() -> set[str]:
    """Every name that a series of ours can have."""
    plain = {metric.name for metric in ALL if metric.kind is not Kind.HISTOGRAM}
    parts = ("_bucket", "_sum", "_count")
    return plain | {metric.name + part for metric in ALL if metric.kind is Kind.HISTOGRAM for part in parts}


def recorded() -> list[str]:
    """The names that the rules record, in order."""
    return [rule["record"] for rule in rules() if "record" in rule]


def named(query: str) -> set[str]:
    return set(NAME.findall(query))
