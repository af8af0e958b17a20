"""How long ``aftershock trend`` takes over many stored runs, and how much memory.

    .venv/bin/python benchmarks/trend_scale.py [--runs 10000] [--keep FOLDER]

Writes nightly suites of 40 scenarios in a temporary folder, each run with a verdict of about 7 KiB, as many real ones
have, and lets ``aftershock trend`` read them in a process of its own: as a gate, a page and JSON. Printed are the
seconds, those of the processor, and the peak of the resident memory. Exit code 1 when the processor takes 5 s or more,
or the memory 500 MiB or more. It has one thread, so on an idle machine the seconds are those of the processor, once the
files are in the page cache.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.nights import noise, stamp, store, summary

ROOT = Path(__file__).resolve().parents[1]
SECONDS, MEMORY_MIB = 5.0, 500.0
SCENARIOS = 40


def write(out: Path, runs: int) -> int:
    """Nightly suites of so many runs in all; returns the bytes of a verdict."""
    random = np.random.default_rng(0)
    logs = noise(random, SCENARIOS, runs // SCENARIOS)
    failed = random.random(logs.shape) < 0.01
    for night in range(logs.shape[1]):
        suite = out / f"{stamp(night)}-full-{night:08x}"
        for place in range(SCENARIOS):
            seconds = 20.0 * float(np.exp(logs[place, night]))
            verdict = "fail" if failed[place, night] else "pass"
            folder = store(suite, night, summary(f"scenario-{place:02}", seconds, verdict))
        (suite / "suite.json").write_text("{}")
    return (folder / "verdict.json").stat().st_size


def measure(*arguments: str) -> tuple[float, float, float]:
    """Seconds, seconds of the processor, peak resident memory in MiB."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, str(ROOT / "aftershock.py"), *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 1), f"aftershock {' '.join(arguments)} ended with {code}"
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="Write there, and leave it.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trend-") as scratch:
        out = asked.keep or Path(scratch) / "runs"
        size = write(out, asked.runs)
        page = Path(scratch) / "trend.html"
        good = True
        for arguments in (("--fail-on-regression",), ("--html", str(page)), ("--json",)):
            seconds, cpu, mib = measure("trend", str(out), *arguments)
            told = f"trend {arguments[0]}: {seconds:.1f} s, {cpu:.2f} s of the processor, {mib:.0f} MiB"
            print(f"{asked.runs} runs of {size} bytes, {told}", flush=True)
            good &= cpu < SECONDS and mib < MEMORY_MIB
        print(f"the page: {page.stat().st_size / 1e6:.2f} MB; promised: {SECONDS:g} s, {MEMORY_MIB:g} MiB")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
