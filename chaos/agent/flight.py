"""The flight recorder of torch.distributed: a process writes down its last collectives when it is asked to.

Recording costs some microseconds a collective, so it is on only in runs whose faults may make the job hang.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from chaos.agent.events import harmless
from chaos.agent.plan import Plan
from chaos.faults.base import all_faults

SIZE = "TORCH_FR_BUFFER_SIZE"
"""Environment variable by which torch records the last so many collectives of a process."""

KEPT = "2000"


def is_wanted(plan: Plan) -> bool:
    """Whether a fault of the plan may leave ranks waiting for each other until a time-out."""
    known = all_faults()
    return any(known[i.fault].noticed_by or known[i.fault].with_peers for i in plan.injections if i.fault in known)


def question(folder: Path, rank: int, pid: int) -> Path:
    """The pipe through which a process is asked."""
    return folder / f"rank{rank}-{pid}.ask"


def answer(folder: Path, rank: int, pid: int) -> Path:
    """What it writes: JSON as torch gives it, ``entries`` from the oldest on."""
    return folder / f"rank{rank}-{pid}.collectives.json"


def record(folder: Path, rank: int) -> None:
    """Record from now on, which must be before the process group is set up, and answer whenever asked."""
    os.environ.setdefault(SIZE, KEPT)
    pid = os.getpid()
    pipe = question(folder, rank, pid)
    os.mkfifo(pipe, 0o600)
    threading.Thread(target=_answer, args=(pipe, answer(folder, rank, pid)), daemon=True, name="flight").start()


@harmless
def _answer(pipe: Path, file: Path) -> None:
    """Wait for a question, write, and wait again; the lock of the interpreter is free meanwhile."""
    try:
        from torch._C._distributed_c10d import _dump_fr_trace_json
    except ImportError:
        return  # a torch without it: nobody reads the pipe, and the harness sees that
    while pipe.read_bytes():
        scratch = file.with_suffix(".new")
        scratch.write_bytes(_dump_fr_trace_json())
        scratch.replace(file)
