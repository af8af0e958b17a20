"""One file of a suite's members."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from metrics import prometheus
from metrics.prometheus import SuiteFacts
from tests.histories import healthy
from tests.metrics.prometheus.conftest import Samples

SUITE = SuiteFacts(suite="preprod", exit_code=2, finished_s=5.0, verdicts={"pass": 2, "skipped": 1}, skipped=("oom",))


def merged(files, path):
    prometheus.merge(files, SUITE, path)
    text = path.read_text()
    return text, Samples(text_string_to_metric_families(text))


def test_a_suites_file_holds_every_series_of_its_members_and_its_own(told, read, tmp_path):
    runs = [told(healthy()), told(healthy(kills=((1, 6), (0, 11))).asked(scenario="segfault"))]
    files = [tmp_path / f"{run.summary.scenario}.prom" for run in runs]
    for run, file in zip(runs, files, strict=True):
        prometheus.write(run, file)
    _, samples = merged(files, tmp_path / "metrics.prom")
    assert samples == read(prometheus.registry(*runs, suite=SUITE))
    assert len(samples.named("recovery_seconds_count")) == 2


def test_each_family_is_told_once(told, tmp_path):
    prometheus.write(told(healthy()), tmp_path / "a.prom")
    prometheus.write(told(healthy().asked(scenario="b")), tmp_path / "b.prom")
    text, _ = merged([tmp_path / "a.prom", tmp_path / "b.prom"], tmp_path / "metrics.prom")
    types = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_a_members_file_that_is_absent_or_spoilt_is_left_out(told, tmp_path):
    prometheus.write(told(healthy()), tmp_path / "a.prom")
    (tmp_path / "spoilt.prom").write_text('aftershock_exit_code{scenario="x"} 0\naftershock_exit_code{scenario="x')
    (tmp_path / "bytes.prom").write_bytes(b"\xff\xfe")
    names = ("absent.prom", "spoilt.prom", "bytes.prom", "a.prom")
    _, samples = merged([tmp_path / name for name in names], tmp_path / "metrics.prom")
    assert samples.named("exit_code") == [0]
    assert samples.named("suite_exit_code") == [2]
