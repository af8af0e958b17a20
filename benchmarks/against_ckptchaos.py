"""The crash points that ckpt-chaos finds and those that Aftershock finds, of one save, on one target, in one run.

    .venv/bin/python benchmarks/against_ckptchaos.py [--ranks 2]

The target is ckpt-chaos's own: a DDP loop that saves with torch.distributed.checkpoint and resumes from its highest
directory. Both tools let it save once undisturbed to find their points, then kill a rank at each of them, resume, and
compare the weights with those of a run that nobody disturbed. ckpt-chaos counts Python's audit events; Aftershock takes
the system calls, by strace, with the code of ``aftershock sweep``. Printed are both tables, which points of ckpt-chaos
Aftershock lacks, and the seconds. Exit code 1 when it lacks one of them, or has no more.
Needs root or the right to trace, Debian's ``strace``, and ckpt-chaos 0.1.8 (the extra ``bench``).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from ckpt_chaos import runner

from chaos import strace
from scenarios.crashpoints import choose

TARGET, SAVED = "ckpt_chaos.targets.dcp_ddp", "checkpoint-10"
CALLS = {"open": "openat", "os.mkdir": "mkdir", "os.rename": "rename", "os.remove": "unlink"}
"""The system call of each of ckpt-chaos's events."""


@dataclass(frozen=True)
class Point:
    """A rank dies on entering the n-th call of that name on that file of the checkpoint; ``left``: see the fault."""

    rank: int
    call: str
    file: str
    nth: int
    words: str
    left: float


def launch(phase: str, out: Path, ranks: int, under: dict[int, list[str]]) -> None:
    """Run the target's ranks to their end, some under strace; when one dies the others get as long as in ckpt-chaos."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {
        **os.environ,
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": "2",
    }
    command = [sys.executable, "-m", TARGET, phase, "--out", str(out)]
    started = []
    for rank in range(ranks):
        environment = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        log = (out.parent / f"{phase}-{rank}.log").open("w")
        started.append(subprocess.Popen([*under.get(rank, []), *command], env=environment, stdout=log, stderr=log))
    failed_s = 0.0
    while any(process.poll() is None for process in started):
        if not failed_s and any(process.poll() for process in started):
            failed_s = time.monotonic()
        if failed_s and time.monotonic() - failed_s > runner.PEER_GRACE_S:
            for process in started:
                process.kill()
        time.sleep(0.05)


def found(work: Path, ranks: int) -> list[Point]:
    """The points of one undisturbed save."""
    out = work / "recorded" / "out"
    out.mkdir(parents=True)
    logs = {rank: out.parent / f"rank{rank}.strace" for rank in range(ranks)}
    launch("train", out, ranks, {rank: strace.record(log) for rank, log in logs.items()})
    folder = os.path.realpath(out / SAVED)
    points = []
    for rank, log in logs.items():
        calls = [call for call in strace.below(strace.calls(log), folder) if call.writes]
        inside = [replace(call, path=os.path.relpath(call.path, folder)) for call in calls]
        points += [Point(rank, call.name, call.path, nth, words, left) for call, nth, words, left in choose(inside)]
    return points


def crash(work: Path, number: int, point: Point, ranks: int, reference: Path) -> str:
    """Crash there, resume; what came back, in ckpt-chaos's words."""
    out = work / f"point-{number}" / "out"
    out.mkdir(parents=True)
    path = os.path.normpath(out / SAVED / point.file)
    log = out.parent / "strace.log"
    launch("train", out, ranks, {point.rank: strace.kill(log, point.call, path, point.nth)})
    if not any(call.killed for call in strace.calls(log)):
        return "NOT CRASHED"
    if point.left < 1:
        os.truncate(path, int(Path(path).stat().st_size * point.left))
    launch("resume", out, ranks, {})
    return verdict(out, ranks, reference)


def verdict(out: Path, ranks: int, reference: Path) -> str:
    files = [out / f"outcome_rank{rank}.json" for rank in range(ranks)]
    outcomes = [json.loads(file.read_text()) if file.exists() else {"raised": "died"} for file in files]
    if any(outcome["raised"] for outcome in outcomes):
        return "HARD_FAIL"
    right = torch.load(reference)
    weights = [torch.load(out / f"final_rank{rank}.pt") for rank in range(ranks)]
    same = all(torch.equal(one[key], right[key]) for one in weights for key in right)
    if not same or len({outcome["resumed_from_step"] for outcome in outcomes}) > 1:
        return "SILENT_DIVERGENCE"
    return f"PASS from step {outcomes[0]['resumed_from_step']}"


def theirs(work: Path, ranks: int) -> tuple[set[tuple[int, str, str]], float]:
    """What ckpt-chaos finds: rank, call and file of each of its points; and the seconds it took."""
    begin = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "ckpt_chaos",
        "bench",
        "dcp_ddp",
        "--jobs",
        "1",
        "--ranks",
        str(ranks),
        "--work",
        str(work),
    ]
    subprocess.run(command, check=False)
    seconds = time.monotonic() - begin
    points = set()
    for rank in range(ranks):
        for line in (work / "dry" / f"events.log.rank{rank}").read_text().splitlines():
            _, kind, name, _ = line.split("\t")
            points.add((rank, CALLS.get(kind, kind), "." if name == SAVED else name))
    return points, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    ranks = parser.parse_args().ranks
    with tempfile.TemporaryDirectory(prefix="ckptchaos-") as scratch:
        work = Path(scratch).resolve()
        their_points, their_seconds = theirs(work / "theirs", ranks)
        begin = time.monotonic()
        reference = work / "reference" / "out"
        reference.mkdir(parents=True)
        launch("reference", reference, ranks, {})
        points = found(work, ranks)
        fates = {}
        for number, point in enumerate(points):
            fates[point] = crash(work, number, point, ranks, reference / "final_rank0.pt")
            print(f"rank {point.rank}: {point.words:<60} {fates[point]}", flush=True)
        seconds = time.monotonic() - begin
    lacking = sorted(their_points - {(point.rank, point.call, point.file) for point in points})
    print(f"\nckpt-chaos  {len(their_points)} points, {their_seconds:.0f} s")
    print(f"Aftershock  {len(points)} points, {seconds:.0f} s: {dict(Counter(fates.values()))}")
    print(f"of ckpt-chaos's points Aftershock lacks: {lacking or 'none'}")
    return 1 if lacking or len(points) <= len(their_points) or "NOT CRASHED" in fates.values() else 0


if __name__ == "__main__":
    sys.exit(main())
