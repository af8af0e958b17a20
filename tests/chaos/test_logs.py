"""What is kept of a cluster's logs: the end of each, without the secret."""

from __future__ import annotations

import os

import pytest

from chaos.logs import LARGEST, collect_logs

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def logs(tmp_path):
    """The folder of one node's logs; the target when they were collected."""
    folder = tmp_path / "workspace" / "w0" / "session_2026" / "logs"
    folder.mkdir(parents=True)
    target = tmp_path / "kept"

    def collect(**options):
        collect_logs(tmp_path / "workspace", target, SECRET, **options)
        return target

    return folder, collect


def test_the_secret_is_struck_out(logs) -> None:
    folder, collect = logs
    (folder / "raylet.out").write_text(f"token {SECRET}, again {SECRET}\nend")
    assert (collect() / "w0" / "raylet.out").read_text() == "token <secret>, again <secret>\nend"


def test_of_a_long_log_the_end_is_kept(logs) -> None:
    folder, collect = logs
    (folder / "worker-1.err").write_bytes(b"a" * 100 + b"b" * (LARGEST - 1) + b"c")
    kept = (collect() / "w0" / "worker-1.err").read_bytes()
    assert len(kept) <= LARGEST
    assert kept[-2:] == b"bc"
    assert b"a" not in kept


def test_a_secret_at_the_cut_leaves_no_rest_behind(logs) -> None:
    folder, collect = logs
    (folder / "raylet.out").write_bytes(SECRET.encode() + b"." * (LARGEST - len(SECRET) + 1))
    assert SECRET[1:] not in (collect() / "w0" / "raylet.out").read_text()


def test_what_is_kept_and_what_is_not(logs, tmp_path) -> None:
    folder, collect = logs
    for name in ("raylet.err", "gcs_server.out", "worker-a.out", "python-core-driver-1.log", "dashboard.log"):
        (folder / name).write_text(name)
    (folder / "raylet.out").touch()
    (folder / "worker-folder").mkdir()
    (folder / "worker-folder").rmdir()
    (tmp_path / "workspace" / "w0.log").write_text("ray start")
    target = collect()
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*.*")) == [
        "w0.log",
        "w0/gcs_server.out",
        "w0/python-core-driver-1.log",
        "w0/raylet.err",
        "w0/worker-a.out",
    ]


def test_of_a_shared_cluster_only_what_has_grown_since_then_is_kept(logs) -> None:
    folder, collect = logs
    for name, grown in (("worker-old.out", 1000), ("worker-new.out", 2000), ("raylet.out", 3000)):
        (folder / name).write_text(name)
        os.utime(folder / name, (grown, grown))
    kept = {path.name for path in (collect(since_s=2000.0) / "w0").iterdir()}
    assert kept == {"worker-new.out", "raylet.out"}
    assert {path.name for path in (collect() / "w0").iterdir()} == {*kept, "worker-old.out"}


def test_each_life_of_a_node_has_its_own_logs(logs, tmp_path) -> None:
    _, collect = logs
    again = tmp_path / "workspace" / "w0.2" / "session_2026" / "logs"
    again.mkdir(parents=True)
    (again / "raylet.out").write_text("again")
    (tmp_path / "workspace" / "w0.2.log").write_text("ray start")
    target = collect()
    assert (target / "w0.2" / "raylet.out").read_text() == "again"
    assert (target / "w0.2.log").read_text() == "ray start"


def test_bytes_that_are_no_text_are_kept(logs) -> None:
    folder, collect = logs
    (folder / "raylet.out").write_bytes(b"\xff\x00" + SECRET.encode())
    assert (collect() / "w0" / "raylet.out").read_bytes() == b"\xff\x00<secret>"


def test_without_a_cluster_there_are_no_logs(tmp_path) -> None:
    collect_logs(tmp_path / "nowhere", tmp_path / "kept", SECRET)
    assert not (tmp_path / "kept").exists()
