"""``aftershock run`` from outside: the whole way, interrupted, killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from chaos.exits import ExitCode
from tests.live.command import await_event, kill, left_of, run_directory, start

ROOT = Path(__file__).parents[2]


def heal() -> str:
    command = [sys.executable, "-m", "aftershock", "heal"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``aftershock`` command of the wheel, in a virtual environment that borrows our dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    venv.create(folder / "venv", with_pip=False)
    site = next((folder / "venv").glob("lib/python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    source = shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(".*", "runs", "build", "tests"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    wheel = str(next(folder.glob("*.whl")))
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([*pip, "--python", python, "install", "--no-deps", wheel], check=True, timeout=120)
    return folder / "venv" / "bin" / "aftershock"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has its own ``metrics`` package and ``trainer`` module, which nobody but it may import."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "metrics").mkdir()
    for file in ("metrics/__init__.py", "trainer.py"):
        (folder / file).write_text("raise RuntimeError('the module of the project was imported')\n")
    return folder


@pytest.fixture(scope="module")
def green(tmp_path_factory: pytest.TempPathFactory, installed: Path, project: Path) -> tuple[Path, dict[str, Any]]:
    """One whole run of three workers by the installed wheel inside that project: directory and printed verdict."""
    out = tmp_path_factory.mktemp("green")
    options = ("--workers", "3", "--rank", "2", "--json")
    process = start(out, *options, command=[str(installed)], cwd=project, PYTHONPATH=".")
    output, errors = process.communicate(timeout=400)
    assert process.returncode == 0, output + errors
    return run_directory(out), json.loads(output)


def test_own_chaos_module_is_one_clear_message(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "chaos.py").write_text("")
    process = start(tmp_path / "runs", command=[str(installed)], cwd=tmp_path, PYTHONPATH=".")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.USAGE, output + errors
    assert errors.count("\n") == 1
    assert str(tmp_path / "chaos.py") in errors
    assert not (tmp_path / "runs").exists()


def test_killed_worker_comes_back_and_the_verdict_is_green(green: tuple[Path, dict[str, Any]]) -> None:
    directory, verdict = green
    assert verdict["verdict"] == "pass"
    (recovery,) = verdict["recoveries"]
    assert (recovery["rank"], recovery["step"], recovery["step_before"]) == (2, 7, 7)
    assert recovery["resume_step"] == 4
    assert recovery["lost_steps"] == 3
    assert recovery["lost_samples"] == 3 * 48
    assert abs(sum(p["seconds"] for p in recovery["phases"]) - recovery["total_s"]) < 1e-3
    assert recovery["phases"][0]["name"] == "detect"
    assert all(check["verdict"] == "pass" for check in verdict["checks"])
    assert left_of(str(verdict["run"])) == []
    assert not (directory / "events").exists()


def test_the_harness_takes_less_than_a_tenth_of_the_time(green: tuple[Path, dict[str, Any]]) -> None:
    time = green[1]["time"]
    assert time["harness_s"] < 0.1 * time["wall_s"]
    parts = time["cluster_start_s"] + time["workload_s"] + time["control_s"] + time["harness_s"]
    assert abs(parts - time["wall_s"]) < 1e-3


def test_run_directory_is_complete(green: tuple[Path, dict[str, Any]]) -> None:
    directory, verdict = green
    suite = ElementTree.parse(directory / "junit.xml").getroot()[0]
    assert suite.get("failures") == suite.get("errors") == "0"
    assert 'aftershock_verdict{scenario="kill-worker",verdict="pass"} 1.0' in (directory / "metrics.prom").read_text()
    assert "kill-worker" in (directory / "report.html").read_text()
    assert json.loads((directory / "verdict.json").read_text()) == verdict
    assert (directory / "logs" / "driver.log").exists()


def test_analyze_gives_the_same_verdict_from_a_copy_without_ray(
    green: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    directory, verdict = green
    copy = tmp_path / "moved"
    shutil.copytree(directory, copy)
    (copy / "verdict.json").unlink()
    code = (
        "import sys; from scenarios.cli import cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "finally: assert 'ray' not in sys.modules"
    )
    command = [sys.executable, "-c", code, "analyze", str(copy), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == verdict


def test_analyze_of_a_cut_history_is_unknown(green: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    copy = tmp_path / "cut"
    shutil.copytree(green[0], copy)
    text = (copy / "history.jsonl").read_bytes()
    (copy / "history.jsonl").write_bytes(text[: len(text) - 20])
    command = [sys.executable, "-m", "aftershock", "analyze", str(copy), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == ExitCode.UNKNOWN, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def status() -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "aftershock", "status", "--json"]
    found: list[dict[str, Any]] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def test_harness_killed_during_the_start_of_the_cluster_leaves_nothing_after_heal(tmp_path: Path) -> None:
    process = start(tmp_path)
    directory = run_directory(tmp_path)
    await_event(directory, process, "cluster.node.up", name="head")
    run_id = directory.name.rsplit("-", 1)[1]
    assert left_of(run_id)
    kill(process)
    assert f"run {run_id}: healed" in heal()
    assert left_of(run_id) == []


def test_harness_killed_while_a_worker_is_frozen_leaves_nothing_after_heal(tmp_path: Path) -> None:
    process = start(tmp_path, scenario="hang-frozen")
    directory = run_directory(tmp_path)
    await_event(directory, process, "fault.confirmed", injection="freeze-0")
    run_id = directory.name.rsplit("-", 1)[1]
    assert "left alone" in heal()
    kill(process)
    (found,) = [run for run in status() if run["run_id"] == run_id]
    assert found["state"] == "left by a dead harness"
    assert len(found["stopped"]) == 1
    assert any(entry.startswith("stopped") for entry in found["entries"])
    assert f"run {run_id}: healed" in heal()
    assert left_of(run_id) == []
    assert run_id not in {run["run_id"] for run in status()}


def test_interrupted_run_is_aborted_and_healed(tmp_path: Path) -> None:
    process = start(tmp_path)
    directory = run_directory(tmp_path)
    await_event(directory, process, "workload.start")
    os.kill(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.ABORTED, output + errors
    assert "aborted by" in output
    assert "Traceback" not in output + errors
    assert left_of(directory.name.rsplit("-", 1)[1]) == []
