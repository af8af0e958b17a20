"""Where a restarted run reads on: the arithmetic of positions, without a cluster."""

from __future__ import annotations

import pytest
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import _CheckpointManagerState, _TrainingResultState

from trainer import data
from trainer.config import TrainerConfig
from trainer.corpus import epoch_rows, rows, write_corpus
from trainer.data import EPOCH, REST, Epoch, committed_samples, datasets

pytestmark = pytest.mark.filterwarnings("ignore:The `parse_obj` method is deprecated")

CONFIG = TrainerConfig(corpus_bytes=20_000, sequence_length=16, batch_size=4, micro_batches=6)


def snapshot(run, samples):
    """What the controller of Ray Train stores at each commit."""
    result = _TrainingResultState(checkpoint_dir_name="checkpoint_1", metrics={"step": 3, "samples": samples})
    state = _CheckpointManagerState(
        checkpoint_results=[result],
        checkpoint_report_indices=[1],
        latest_checkpoint_result=result,
        pending_training_results=[],
        pending_validation_specs=[],
        current_report_index=1,
        validated_checkpoint_dir_names=[],
        timed_out_validation_checkpoint_dir_names=[],
        failed_validation_checkpoint_dir_names=[],
    )
    (run / "checkpoint_1").mkdir(parents=True)
    (run / "checkpoint_manager_snapshot.json").write_text(state.model_dump_json())
    return str(run)


@pytest.fixture
def begin(monkeypatch, tmp_path):
    """The folder, block size and ids that an epoch reads, after a commit of that many samples."""
    monkeypatch.setattr(data, "in_micro_batches", lambda folder, batch_size, ids=None: (folder, batch_size, ids))

    def reads(samples, total, batch):
        run = snapshot(tmp_path / "run", samples) if samples else ""
        return Epoch("folder", rows=total, batch_size=8, global_batch=batch, run_path=run)()

    return reads


@pytest.mark.parametrize(
    ("samples", "total", "batch", "first"),
    [
        (0, 480, 48, 0),
        (48, 480, 48, 48),
        (432, 480, 48, 432),
        (480, 480, 48, 0),
        (1200, 480, 48, 240),
        (336, 48, 48, 0),
        (56, 480, 48, 48),
        (472, 480, 48, 432),
    ],
    ids=["fresh", "one step", "last step of an epoch", "whole epoch", "third epoch", "one step an epoch",
         "a smaller step", "the last micro-batch of an epoch"],
)  # fmt: skip
def test_a_run_reads_on_from_the_whole_micro_batches_of_a_step(begin, samples, total, batch, first):
    assert begin(samples, total, batch) == ("folder", 8, range(first, total))


def test_the_committed_position_is_the_controllers(tmp_path):
    assert committed_samples(snapshot(tmp_path / "run", 20)) == 20


@pytest.mark.parametrize("path", ["", "absent", "."])
def test_without_a_commit_the_position_is_zero(tmp_path, path):
    assert committed_samples(str(tmp_path / path) if path else "") == 0


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("storage") / "corpus"
    write_corpus(CONFIG, root)
    return root


def test_an_epoch_is_as_many_whole_global_batches_as_there_are(corpus):
    count = rows(corpus)
    assert epoch_rows(CONFIG, corpus) == count
    larger = TrainerConfig(**{**vars(CONFIG), "batch_size": 5})
    assert epoch_rows(larger, corpus) == count - count % 30 > 0
    (reads,) = datasets(TrainerConfig(**{**vars(larger), "steps": 1}), corpus, "").values()
    assert reads.rows == count - count % 30


def config(steps):
    return TrainerConfig(**{**vars(CONFIG), "steps": steps})


def test_a_run_within_one_epoch_reads_its_rest_only(corpus):
    steps = rows(corpus) // CONFIG.global_batch
    assert list(datasets(config(steps), corpus, "")) == [REST]
    assert list(datasets(config(steps + 1), corpus, "")) == [REST, EPOCH]


def test_only_the_epoch_under_way_begins_at_the_committed_position(corpus):
    made = datasets(config(1000), corpus, "/storage/run")
    expected = (str(corpus / "train"), rows(corpus), CONFIG.batch_size, CONFIG.global_batch)
    assert made == {REST: Epoch(*expected, "/storage/run"), EPOCH: Epoch(*expected)}
