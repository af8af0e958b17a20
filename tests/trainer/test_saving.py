"""The two ways to save: what is reported is durable, and what is written is the state of the moment of the call."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray.train
import torch
import torch.distributed as dist
from ray.train import Checkpoint, CheckpointUploadMode
from torch.distributed.checkpoint.state_dict_loader import load

from trainer import saving
from trainer.config import TrainerConfig

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def world_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Train:
    """Stands in for Ray Train: asynchronous uploads are done when told to; checkpoints are kept by their step."""

    def __init__(self, storage):
        self.storage = storage
        self.waiting = []
        self.stored = {}

    def report(self, metrics, checkpoint, checkpoint_upload_mode=None, checkpoint_upload_fn=None, **more):
        if checkpoint_upload_mode is CheckpointUploadMode.ASYNC:
            assert more == {"delete_local_checkpoint_after_upload": False}
            self.waiting.append((metrics["step"], checkpoint, checkpoint_upload_fn))
        else:
            self.stored[metrics["step"]] = self.persist_current_checkpoint(checkpoint, f"checkpoint_{metrics['step']}")

    def upload(self):
        """Do what Ray Train's own thread would: upload the oldest."""
        step, checkpoint, upload = self.waiting.pop(0)
        self.stored[step] = upload(checkpoint, f"checkpoint_{step}")

    def persist_current_checkpoint(self, local, name):
        target = self.storage / name
        target.mkdir()
        for file in Path(local.path).iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        return Checkpoint.from_directory(target)

    def value(self, step):
        """What the stored checkpoint of a step holds."""
        tree = {"weight": torch.zeros(3)}
        load(tree, checkpoint_id=self.stored[step].path)
        return tree["weight"].tolist()


@pytest.fixture
def train(monkeypatch, tmp_path):
    made = Train(tmp_path)
    monkeypatch.setattr(ray.train, "report", made.report)
    context = SimpleNamespace(get_storage=lambda: made)
    monkeypatch.setattr(ray.train, "get_context", lambda: context)
    return made


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    """Where local checkpoints are made; empty when all is cleared away."""
    folder = tmp_path / "local"
    folder.mkdir()
    monkeypatch.setattr(saving.tempfile, "tempdir", str(folder))
    return folder


def tree(value):
    return {"weight": torch.full((3,), float(value))}


def saver(how):
    return saving.saver(TrainerConfig(save=how))


def test_blocking_stores_before_it_returns_and_leaves_nothing(train, temporary):
    saver("blocking")(tree(1), {"step": 4})
    assert train.value(4) == [1, 1, 1]
    assert list(temporary.iterdir()) == []


def test_asynchronous_stores_what_was_there_at_the_call(train, temporary):
    """Pytorch issue 144657: values that the training writes meanwhile must not get into the checkpoint."""
    write, state = saver("asynchronous"), tree(1)
    write(state, {"step": 4})
    state["weight"].fill_(9)
    train.upload()
    assert train.value(4) == [1, 1, 1]
    assert list(temporary.iterdir()) == []


def test_nothing_is_stored_before_the_shard_is_written(train, temporary, monkeypatch):
    held, original = threading.Event(), saving.async_save

    def slow(tree, **options):
        future = original(tree, **options)
        outer = saving.Future()
        threading.Thread(target=lambda: (held.wait(20), outer.set_result(future.result()))).start()
        return outer

    monkeypatch.setattr(saving, "async_save", slow)
    saver("asynchronous")(tree(1), {"step": 4})
    uploading = threading.Thread(target=train.upload)
    uploading.start()
    uploading.join(0.2)
    assert uploading.is_alive()
    assert train.stored == {}
    held.set()
    uploading.join(20)
    assert train.value(4) == [1, 1, 1]


def test_one_save_at_a_time_in_order(train, temporary):
    write = saver("asynchronous")
    for step in (4, 8, 12):
        write(tree(step), {"step": step})
    for _ in range(3):
        train.upload()
    assert [train.value(step)[0] for step in (4, 8, 12)] == [4, 8, 12]


def test_an_error_of_the_writing_ends_the_upload_and_the_next_save(train, temporary, monkeypatch):
    def fails(tree, **options):
        future = saving.Future()
        future.set_exception(OSError("disk full"))
        return future

    write = saver("asynchronous")
    monkeypatch.setattr(saving, "async_save", fails)
    write(tree(1), {"step": 4})
    with pytest.raises(OSError, match="disk full"):
        train.upload()
    with pytest.raises(OSError, match="disk full"):
        write(tree(2), {"step": 8})
    assert train.stored == {}
    assert list(temporary.iterdir()) == []


def test_another_way_to_save_is_refused():
    with pytest.raises(ValueError, match="save=later must be one of blocking, asynchronous"):
        TrainerConfig(save="later")
