"""Keeping the logs of a cluster beyond its end, without its secret."""

from __future__ import annotations

import contextlib
from pathlib import Path

KEPT = ("raylet.*", "gcs_server.*", "worker-*", "python-core-driver-*")
LARGEST = 4 * 1024 * 1024


def collect_logs(workspace: Path, target: Path, secret: str, since_s: float = 0.0) -> None:
    """Copy what nodes and workers logged, a folder for each node, each file's last 4 MiB, the secret struck out.

    ``since_s``: only files that have grown since then, in seconds since the epoch.
    """
    if not workspace.is_dir():
        return
    for node in sorted(path for path in workspace.iterdir() if path.is_dir()):
        for session in node.glob("session_2*"):
            for pattern in KEPT:
                for file in (session / "logs").glob(pattern):
                    with contextlib.suppress(FileNotFoundError):
                        if file.stat().st_mtime >= since_s:
                            _copy(file, target / node.name / file.name, secret)
    for file in workspace.glob("*.log"):
        _copy(file, target / file.name, secret)


def _copy(source: Path, target: Path, secret: str) -> None:
    with source.open("rb") as stream:
        # So much more that a secret across the cut is seen whole, and struck out before the cut.
        stream.seek(max(0, source.stat().st_size - LARGEST - len(secret)))
        text = stream.read().replace(secret.encode(), b"<secret>")[-LARGEST:]
    if text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)
