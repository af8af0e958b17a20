"""What sharing clusters and control runs saves: five scenarios as one suite, with sharing and without, in one run.

    .venv/bin/python benchmarks/suite_sharing.py

Prints a line for each way and the share saved. Exit code 1 when it is below the 25 % that the project promises, or when
the two ways do not come to the same verdicts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

FIVE = ("kill-worker", "kill-rank-zero", "segfault", "worker-exception", "drop-node")
SHORT = ("--step=7", "--set=steps=14", "--set=checkpoint_every=4")
"""Short runs make the comparison short; both ways have the same ones."""

PROMISED = 0.25


def run(out: str, *options: str) -> dict:
    """One suite of the five; its record."""
    command = [sys.executable, "-m", "aftershock", "run", *FIVE, *SHORT, "--json", "--quiet", "--out", out, *options]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout)


def told(name: str, record: dict) -> str:
    spent = record["spent"]
    parts = {"cluster starts": "cluster_start_s", "training": "workload_s", "control runs": "control_s"}
    text = ", ".join(f"{word} {spent[key]:.0f} s" for word, key in (*parts.items(), ("harness", "harness_s")))
    return f"{name:<15} {record['wall_s']:.0f} s: {text}; exit code {record['exit_code']}"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sharing-") as out:
        shared, alone = run(out), run(out, "--no-share")
    print(told("shared", shared))
    print(told("each by itself", alone))
    for member in (*shared["members"], *alone["members"]):
        if member["verdict"] != "pass":
            print(f"{member['scenario']} {member['verdict']}: {member['reason']}")
    saved = 1 - shared["wall_s"] / alone["wall_s"]
    same = [m["verdict"] for m in shared["members"]] == [m["verdict"] for m in alone["members"]]
    print(f"saved {saved:.0%} of the time; {'the same verdicts' if same else 'NOT the same verdicts'}")
    return 0 if saved >= PROMISED and same else 1


if __name__ == "__main__":
    sys.exit(main())
