"""Driving the command as a user does: a subprocess, its run directory followed from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from chaos.ledger import registry
from chaos.process import Identity, carries_marker, holds_file_below, pids

PATIENCE_S = 180


OURS = (sys.executable, "-m", "aftershock")


def start(
    out: Path,
    *options: str,
    scenario: str = "kill-worker",
    command: Sequence[str] = OURS,
    cwd: Path | None = None,
    **environment: str,
) -> subprocess.Popen[str]:
    """Start ``aftershock run`` with short settings and the options given."""
    short = ("steps=9", "checkpoint_every=4", "poll_s=0.1", "corpus_bytes=60000")
    sets = [word for text in short for word in ("--set", text)]
    process = subprocess.Popen(
        [*command, "run", scenario, "--out", str(out), "--step", "7", *sets, *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        cwd=cwd, env={**os.environ, **environment},
    )  # fmt: skip
    _started.append(process)
    return process


_started: list[subprocess.Popen[str]] = []


def end_all() -> None:
    """Interrupt every command that still runs, and wait until it has healed."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def run_directory(out: Path) -> Path:
    """The only run directory below ``out``, awaited."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := sorted(out.glob("2*")):
            return found[0]
        time.sleep(0.05)
    raise TimeoutError(f"no run directory appeared below {out}")


def events(directory: Path) -> Iterator[dict[str, object]]:
    """Whole lines of the history so far."""
    file = directory / "history.jsonl"
    text = file.read_text() if file.exists() else ""
    return (json.loads(line) for line in text.split("\n")[:-1])


def await_event(directory: Path, process: subprocess.Popen[str], kind: str, **data: object) -> None:
    """Wait until the history has an event of that kind with these data."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for event in events(directory):
            told = event.get("data", {})
            assert isinstance(told, dict)
            if event["kind"] == kind and all(told.get(k) == v for k, v in data.items()):
                return
        if process.poll() is not None:
            raise AssertionError(f"the command ended before {kind} {data}: {process.communicate()}")
        time.sleep(0.02)
    raise TimeoutError(f"no {kind} {data} in {directory}")


def left_of(run_id: str) -> list[str]:
    """Whatever is left of a run on this machine: processes and its working directory."""
    folder = registry() / run_id
    left = [str(folder)] if folder.exists() else []
    for pid in pids():
        if pid != os.getpid() and Identity.of(pid) and (carries_marker(pid, run_id) or holds_file_below(pid, folder)):
            left.append(f"process {pid}")
    return left


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL the harness itself, and nothing else."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
