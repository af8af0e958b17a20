"""How fast ``aftershock verify`` reads, beside ``b3sum`` on the same files in one run, and how much memory it takes.

    .venv/bin/python benchmarks/verify_throughput.py [--gib 4] [--rounds 5]

Makes a checkpoint of that size below the temporary directory, reads it once so that the page cache is warm for both,
then lets both read it in turn. Printed are the medians, their ratio, and the largest growth of RssAnon, sampled every
10 ms, above what importing takes. Exit code 1 when the ratio is below 0.8, or the growth above 512 MiB.
Needs Debian's ``b3sum``.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from metrics.checkpoints.verify import Recorded, verify
from metrics.verdict import Verdict

RATIO, MEMORY_MIB = 0.8, 512
TENSORS = 192
"""As many as a decoder of 16 layers has weights and moments, of sizes as unequal as there."""


def make(folder: Path, gib: float) -> None:
    """A checkpoint of random numbers in tensors of very different sizes."""
    torch.manual_seed(1)
    shares = [1.0 if i % 4 else 0.05 for i in range(TENSORS)]
    unit = gib * 2**30 / sum(shares) / 4
    tree = {f"layer{i}.weight": torch.empty(max(1, int(unit * share))) for i, share in enumerate(shares)}
    for tensor in tree.values():
        tensor.view(torch.uint8)[:].random_(0, 256) if tensor.numel() < 2**20 else tensor.uniform_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(tree, storage_writer=FileSystemWriter(folder, thread_count=4), no_dist=True)


def rss_anon_mib() -> float:
    text = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("RssAnon"))) / 1024


class Memory:
    """The largest RssAnon while it is entered."""

    def __enter__(self) -> Memory:
        self.largest, self._over = rss_anon_mib(), threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._over.wait(0.01):
            self.largest = max(self.largest, rss_anon_mib())

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()


def hashed(files: list[Path]) -> float:
    begin = time.perf_counter()
    subprocess.run(["b3sum", *map(str, files)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    if shutil.which("b3sum") is None:
        print("b3sum is not installed: apt-get install b3sum")
        return 2
    with tempfile.TemporaryDirectory(prefix="verify-") as scratch:
        folder = Path(scratch) / "checkpoint"
        make(folder, asked.gib)
        files = sorted(folder.glob("*.distcp"))
        record = Recorded(verify(folder, digests=True).digests, "the first reading")
        return compare(folder, files, record, asked.rounds)


def compare(folder: Path, files: list[Path], record: Recorded, rounds: int) -> int:
    """Let both read in turn; print and judge."""
    size, ours, theirs = sum(file.stat().st_size for file in files), [], []
    before = rss_anon_mib()
    with Memory() as memory:
        for _ in range(rounds):
            theirs.append(hashed(files))
            begin = time.perf_counter()
            verdict = verify(folder, record).verdict
            ours.append(time.perf_counter() - begin)
            assert verdict is Verdict.PASS, "a sound checkpoint did not pass"
    plain, whole = statistics.median(theirs), statistics.median(ours)
    ratio, grown = plain / whole, memory.largest - before
    print(f"checkpoint        {size / 1e9:.2f} GB in {len(files)} files, {TENSORS} tensors, page cache warm")
    print(f"b3sum             {plain:.2f} s, {size / plain / 1e9:.2f} GB/s (median of {rounds})")
    print(f"aftershock verify {whole:.2f} s, {size / whole / 1e9:.2f} GB/s (median of {rounds}), all five checks")
    print(f"ratio             {ratio:.2f} of the speed of b3sum (promised: {RATIO})")
    print(f"memory            RssAnon grew by {grown:.0f} MiB at most (promised: {MEMORY_MIB})")
    return 0 if ratio >= RATIO and grown < MEMORY_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
