"""Mistakes in saving beside the training."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
from ray.train.v2._internal.execution.storage import StorageContext
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from tests.mutants.patches import both
from tests.mutants.program import DIFFERS, Mutant
from tests.mutants.trials import ASYNCHRONOUS
from trainer import saving, state


def _write_in_thread(pause_s: float, early: bool) -> None:
    """Save in a thread, without a copy, some seconds later; ``early``: take it for written at once."""
    pool = ThreadPoolExecutor(1)
    save_sharded = saving.save_sharded

    def write(tree: dict[str, Any], **where: Any) -> None:
        time.sleep(pause_s)
        save_sharded(tree, **where)

    def async_save(tree: dict[str, Any], **where: Any) -> Future[Any]:
        written = pool.submit(write, tree, **where)
        return _done() if early else written

    saving.async_save = async_save  # type: ignore[assignment]


def _done() -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(None)
    return done


def report_before_written() -> None:
    """What is reported is not durable yet."""
    _write_in_thread(0.5, early=True)


def look_together() -> None:
    """Ranks look into the checkpoint at one time, so that all have when the first of them fails."""
    original = state._stamps

    def stamps(folder: str | Path) -> list[str]:
        dist.barrier()
        return original(folder)

    state._stamps = stamps


def write_later_values() -> None:
    """Nothing is copied, so what is written are the values of a later step."""
    _write_in_thread(1.5, early=False)


class FullDisk(FileSystemWriter):
    """Writes nothing."""

    def write_data(self, *arguments: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


def lose_error() -> None:
    """The second save of a process fails, and what is over is taken for done."""
    original = saving.async_save
    saves = 0

    def async_save(tree: dict[str, Any], **where: Any) -> Future[Any]:
        nonlocal saves
        saves += 1
        if dist.get_rank() > 0 and saves > 1:
            where["storage_writer"] = FullDisk(where["checkpoint_id"])
        over: Future[Any] = Future()
        written: Any = original(tree, **where)
        written.add_done_callback(lambda _: over.set_result(None))
        return over

    saving.async_save = async_save  # type: ignore[assignment]


def reuse_folder() -> None:
    """Two saves share a folder, and the second is written while the first is still copied to the storage."""
    folder = tempfile.mkdtemp(prefix="checkpoint-")
    copy = StorageContext.persist_current_checkpoint

    def slowly(self: StorageContext, *arguments: Any) -> Any:
        time.sleep(5.0)
        return copy(self, *arguments)

    saving.tempfile = SimpleNamespace(mkdtemp=lambda prefix: folder)  # type: ignore[assignment]
    saving.shutil = SimpleNamespace(rmtree=lambda *_, **__: None)  # type: ignore[assignment]
    StorageContext.persist_current_checkpoint = slowly  # type: ignore[method-assign]


MUTANTS = (
    Mutant(
        name="reports-before-it-is-written",
        caught_by="checkpoints",
        also=frozenset({"completed", "recovered", "trajectory"}),
        trial=ASYNCHRONOUS,
        worker=both(report_before_written, look_together),
    ),
    Mutant(
        name="writes-later-values",
        caught_by="checkpoints",
        also=DIFFERS | {"restored-state"},
        trial=ASYNCHRONOUS,
        worker=write_later_values,
    ),
    Mutant(name="loses-the-error-of-a-save", caught_by="checkpoints", trial=ASYNCHRONOUS, worker=lose_error),
    Mutant(
        name="saves-share-a-folder",
        caught_by="checkpoints",
        also=DIFFERS | {"completed", "restored-state", "lost-steps"},
        trial=ASYNCHRONOUS.but(step=11),
        worker=reuse_folder,
    ),
)
