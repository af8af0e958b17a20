"""Metrics served during a real run: its progress is seen from outside, and its verdict before the server is gone."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.live.command import PATIENCE_S, run_directory, start
from tests.metrics.prometheus.conftest import Samples


def scrape(url: str) -> Samples | None:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return Samples(text_string_to_metric_families(answer.read().decode()))
    except OSError:
        return None


def test_a_run_is_seen_from_its_first_phase_to_its_verdict(tmp_path: Path) -> None:
    process = start(tmp_path, "--serve-metrics", "0", "--no-control", "--quiet")
    assert process.stderr is not None
    told = next(line for line in process.stderr if line.startswith("metrics: "))
    seen: list[Samples] = []
    deadline = time.monotonic() + 2 * PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        if (found := scrape(told.removeprefix("metrics: ").strip())) is not None:
            seen.append(found)
        time.sleep(0.5)
    assert process.wait(60) == 0, process.stderr.read()
    running = [found for found in seen if found.named("run_phase")]
    phases = [dict(labels)["phase"] for found in running for (name, labels), value in found.items()
              if name == "aftershock_run_phase" and value]  # fmt: skip
    assert {"cluster", "steady", "inject", "recover"} <= set(phases)
    assert max(found.at("run_step") for found in running) > 0
    assert max(found.at("run_restarts") for found in running) == 1
    fired = [found.at("faults_fired_total", fault="kill") for found in running if found.named("faults_fired_total")]
    assert fired == sorted(fired)
    assert fired[-1] == 1
    last = seen[-1]
    assert (last.at("run_in_progress"), last.at("verdict", verdict="pass")) == (0, 1)
    # What was told last is what is stored: but for the life of the server itself.
    text = (run_directory(tmp_path) / "metrics.prom").read_text()
    stored = Samples(text_string_to_metric_families(text))
    assert {key: value for key, value in last.items() if key[0] != "aftershock_run_in_progress"} == stored
    assert stored.at("checkpoint_save_seconds_count", strategy="fsdp") >= 2
    assert stored.at("checkpoint_bytes", strategy="fsdp") > 0
