"""How long judging a stored run takes, and how much memory, by the number of its events.

    .venv/bin/python benchmarks/analyze_scale.py [--events 250000 1000000]

Writes a healthy run of that many events with its control run (half of them each), of two ranks with a kill in the
middle, and lets ``aftershock analyze`` judge it in a process of its own. Printed are the seconds and the peak of the
resident memory (of which importing torch, to read checkpoints, takes about a third of a GiB), and the cost per event at
each size. Exit code 1 when the largest takes 20 s or more, or its memory grows by 500 MiB or more above the smallest
run's, scaled, or the cost per event more than doubles from the smallest to the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SECONDS, MEMORY_MIB, WORSE = 20.0, 500.0, 2.0

WRITE = """
import sys
from pathlib import Path
from tests.histories import healthy
steps = int(sys.argv[2])
healthy(kills=((1, steps // 2),), steps=steps, every=max(4, steps // 8), epoch=1 << 40).write(Path(sys.argv[1]))
"""


def write(folder: Path, events: int) -> int:
    """A run of about that many events, its control run's included; how many there are."""
    root = str(Path(__file__).resolve().parents[1])
    made = [sys.executable, "-c", WRITE, str(folder), str(max(24, events // 4))]
    subprocess.run(made, check=True, env={**os.environ, "PYTHONPATH": root})
    return sum(1 for file in (folder, folder / "control") for _ in (file / "history.jsonl").open("rb"))


def analyze(folder: Path) -> tuple[float, float, str]:
    """Judge it: seconds, peak resident memory in MiB, verdict."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "aftershock", "analyze", str(folder), "--json"]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output)
        _, _, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        output.seek(0)
        return seconds, usage.ru_maxrss / 1024, str(json.load(output)["verdict"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[250_000, 1_000_000])
    wanted = sorted(parser.parse_args().events)
    with tempfile.TemporaryDirectory(prefix="scale-") as scratch:
        base_s, base_mib, _ = analyze_of(Path(scratch) / "smallest", 100)
        costs, worst = [], (0.0, 0.0)
        for number in wanted:
            seconds, mib, verdict = analyze_of(Path(scratch) / str(number), number)
            assert verdict == "pass", f"a healthy run of {number} events was judged {verdict}"
            costs.append((seconds - base_s) / number)
            worst = seconds, mib - base_mib
            print(f"{number:>9} events: {seconds:6.1f} s, {costs[-1] * 1e6:5.1f} us each; {mib:6.0f} MiB at most")
    print(f"          0 events: {base_s:6.1f} s; {base_mib:17.0f} MiB: the command itself")
    print(f"largest: {worst[0]:.1f} s (promised: {SECONDS:g})")
    print(f"         {worst[1]:.0f} MiB for its events (promised: {MEMORY_MIB:g})")
    return 0 if worst[0] < SECONDS and worst[1] < MEMORY_MIB and costs[-1] < WORSE * costs[0] else 1


def analyze_of(folder: Path, events: int) -> tuple[float, float, str]:
    write(folder, events)
    return analyze(folder)


if __name__ == "__main__":
    sys.exit(main())
