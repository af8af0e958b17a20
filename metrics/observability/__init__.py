"""Ready-made files around the metrics: rules with tests, a dashboard, and examples of what a nightly run needs."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent

FILES = {
    "prometheus/prometheus.yml": "scrape configuration: textfile collector, Pushgateway, live runs",
    "prometheus/aftershock.rules.yml": "recording and alerting rules",
    "prometheus/aftershock.rules.test.yml": "their tests, for promtool test rules",
    "alertmanager/alertmanager.yml": "routes and inhibitions for the alerts",
    "grafana/dashboards/aftershock.json": "the dashboard",
    "grafana/provisioning/dashboards/aftershock.yml": "provisioning of the dashboard",
    "grafana/provisioning/datasources/aftershock.yml": "provisioning of its data source",
    "github/aftershock-nightly.yml": "GitHub Actions workflow of a nightly suite",
    "cron/aftershock": "the same for cron, with the textfile collector",
    "systemd/aftershock.service": "the same as a systemd service",
    "systemd/aftershock.timer": "its timer",
}
"""The files by their path below this folder, with what each is."""


def read(name: str) -> bytes:
    """The content of one of the files."""
    return (HERE / name).read_bytes()
