"""The corpus: the same on every machine, whole global batches, and a reason for every refusal."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainer.config import TrainerConfig
from trainer.corpus import HELD_OUT, ROWS_PER_FILE, check_corpus, corpus_directory, rows, training_files, write_corpus

CONFIG = TrainerConfig(corpus_bytes=60_000, sequence_length=16, batch_size=4, micro_batches=6)


def table(folder):
    return pa.concat_tables(pq.read_table(file) for file in sorted(folder.glob("*.parquet")))


def tokens(root, split="train"):
    return np.stack(table(root / split)["tokens"].to_numpy(zero_copy_only=False))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("storage") / "corpus"
    write_corpus(CONFIG, root)
    return root


@pytest.fixture
def write(tmp_path):
    """Write one file of the user's own; the configuration that names its directory."""

    def make(columns, **options):
        pq.write_table(pa.table(columns), tmp_path / "mine.parquet")
        return TrainerConfig(data=str(tmp_path), sequence_length=3, batch_size=1, micro_batches=2, **options)

    return make


def sequences(count, length=4, first=0):
    return {"id": range(first, first + count), "tokens": [[1] * length] * count}


def test_it_is_the_same_each_time(corpus, tmp_path):
    write_corpus(CONFIG, tmp_path / "again")
    for split in ("train", HELD_OUT):
        assert table(tmp_path / "again" / split).equals(table(corpus / split))


def test_it_holds_whole_global_batches_numbered_from_zero(corpus):
    count = rows(corpus)
    assert count > 0
    assert count % CONFIG.global_batch == 0
    assert table(corpus / "train")["id"].to_pylist() == list(range(count))
    assert json.loads((corpus / "corpus.json").read_text()) == {"rows": count, "length": 17, "seed": 0}


def test_its_sequences_are_bytes_of_real_text(corpus):
    found = tokens(corpus)
    assert found.shape == (rows(corpus), CONFIG.sequence_length + 1)
    assert found.min() >= 0
    assert found.max() <= 255
    assert b"import" in found.astype(np.uint8).tobytes()
    assert len(tokens(corpus, HELD_OUT)) >= 1


def test_another_seed_gives_another_order_of_the_same_text(corpus, tmp_path):
    write_corpus(TrainerConfig(**{**vars(CONFIG), "seed": 1}), tmp_path / "other")
    mine, other = tokens(corpus), tokens(tmp_path / "other")
    assert mine.shape == other.shape
    assert not np.array_equal(mine, other)


def test_a_large_one_is_several_files_in_order(tmp_path):
    write_corpus(TrainerConfig(corpus_bytes=20_000, sequence_length=3, batch_size=1, micro_batches=2), tmp_path / "c")
    files = training_files(tmp_path / "c")
    assert [file.name for file in files] == ["00000.parquet", "00001.parquet"]
    assert pq.read_metadata(files[0]).num_rows == ROWS_PER_FILE
    assert pq.read_table(files[1])["id"][0].as_py() == ROWS_PER_FILE


def test_a_second_writer_leaves_the_first_copy_and_nothing_else(corpus):
    before = {file: file.stat().st_ino for file in corpus.rglob("*")}
    write_corpus(CONFIG, corpus)
    assert {file: file.stat().st_ino for file in corpus.rglob("*")} == before
    assert list(corpus.parent.iterdir()) == [corpus]


def test_it_is_made_once_below_the_storage(tmp_path):
    root = corpus_directory(CONFIG, str(tmp_path))
    made = (root / "corpus.json").stat().st_ino
    assert corpus_directory(CONFIG, str(tmp_path)) == root
    assert (root / "corpus.json").stat().st_ino == made
    assert root.parent == tmp_path


def test_too_few_bytes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="corpus_bytes=500 do not fill one global batch"):
        write_corpus(TrainerConfig(corpus_bytes=500), tmp_path / "corpus")
    assert list(tmp_path.iterdir()) == []


def test_data_of_the_users_own_need_no_sub_directory(write, tmp_path):
    config = write(sequences(5))
    assert corpus_directory(config, "/nowhere") == tmp_path
    assert rows(tmp_path) == 5


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": [0]}, r"mine\.parquet has no column tokens"),
        ({"text": ["a"]}, r"mine\.parquet has no column id, tokens"),
        (sequences(5, length=3), r"mine\.parquet holds sequences of 3 tokens, and sequence_length=3 needs 4"),
        (sequences(1), r"1 sequences do not fill one global batch of 2"),
    ],
    ids=["no tokens", "no column", "short sequences", "too few"],
)
def test_data_that_cannot_be_trained_on_are_refused_with_the_reason(write, tmp_path, columns, message):
    with pytest.raises(ValueError, match=f"data={tmp_path}: {message}"):
        check_corpus(write(columns), tmp_path)


def test_a_directory_without_data_is_refused(tmp_path):
    with pytest.raises(ValueError, match=f"data={tmp_path}: no \\*.parquet file there"):
        corpus_directory(TrainerConfig(data=str(tmp_path)), "/nowhere")


ODD = {
    "no row": {"id": pa.array([], pa.int64()), "tokens": pa.array([], pa.list_(pa.int64()))},
    "text for tokens": {"id": [0, 1], "tokens": ["abcd", "efgh"]},
    "no tokens in a row": {"id": [0, 1], "tokens": pa.array([None, None], pa.list_(pa.int64()))},
    "ids that do not count from 0, by which a resume finds its place": sequences(5, first=1000),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_data_are_refused_with_the_reason(write, tmp_path, odd):
    with pytest.raises(ValueError, match=f"data={tmp_path}: "):
        check_corpus(write(ODD[odd]), tmp_path)


def test_a_file_that_is_no_parquet_is_refused_by_name(tmp_path):
    (tmp_path / "mine.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(ValueError, match=f"data={tmp_path}: "):
        check_corpus(TrainerConfig(data=str(tmp_path)), tmp_path)
