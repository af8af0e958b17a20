"""Real text that every machine has: the running Python's own standard library, as byte-level tokens in Parquet."""

from __future__ import annotations

import json
import os
import shutil
import sysconfig
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trainer.config import TrainerConfig

TRAIN, HELD_OUT = "train", "held-out"
HELD_OUT_SHARE = 0.02
ROWS_PER_FILE = 4096


def corpus_directory(config: TrainerConfig, storage: str) -> Path:
    """The directory of the training data: the user's own, or one made once below the storage path.

    Raises ValueError when the user's data lack what the trainer needs, or do not fill one global batch.
    """
    if config.data:
        root = Path(config.data).expanduser().resolve()
    else:
        key = f"{config.corpus_bytes}-{config.sequence_length}-{config.global_batch}-{config.seed}"
        root = Path(storage) / f"corpus-{key}"
        if not root.exists():
            write_corpus(config, root)
    check_corpus(config, root)
    return root


def rows(root: Path) -> int:
    """Number of training sequences in the corpus."""
    return sum(pq.read_metadata(file).num_rows for file in training_files(root))


def epoch_rows(config: TrainerConfig, root: Path) -> int:
    """Sequences in one epoch: as many whole global batches as the corpus holds."""
    return rows(root) // config.global_batch * config.global_batch


def training_folder(root: Path) -> Path:
    """Where the training split lies; a directory of the user's own needs no sub-directory."""
    return root / TRAIN if (root / TRAIN).is_dir() else root


def training_files(root: Path) -> list[Path]:
    """The Parquet files of the training split, in order."""
    return sorted(training_folder(root).glob("*.parquet"))


def check_corpus(config: TrainerConfig, root: Path) -> None:
    """Refuse, with the reason, data that cannot be trained on."""
    files = training_files(root)
    if not files:
        raise ValueError(f"data={root}: no *.parquet file there")
    expected = 0
    for file in files:
        try:
            expected = _check_file(config, pq.ParquetFile(file), expected)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise ValueError(f"data={root}: {file.name} {error}") from error
    if expected < config.global_batch:
        raise ValueError(f"data={root}: {expected} sequences do not fill one global batch of {config.global_batch}")


def _check_file(config: TrainerConfig, file: pq.ParquetFile, expected: int) -> int:
    """Check one file whose ids should go on from ``expected``; returns what the next file should begin with."""
    missing = {"id", "tokens"} - set(file.schema_arrow.names)
    if missing:
        raise ValueError(f"has no column {', '.join(sorted(missing))}")
    column = file.schema_arrow.names.index("id")
    for group in range(file.metadata.num_row_groups):
        described = file.metadata.row_group(group)
        ids = described.column(column).statistics
        first, last = (ids.min, ids.max) if ids is not None else (None, None)
        if (first, last) != (expected, expected + described.num_rows - 1):
            raise ValueError(f"holds ids {first} to {last} where {expected} and on are due: ids count rows from 0")
        expected += described.num_rows
    if file.metadata.num_rows:
        _check_tokens(config, file.read_row_group(0, columns=["tokens"])["tokens"][0].as_py())
    return expected


def _check_tokens(config: TrainerConfig, tokens: object) -> None:
    if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
        raise ValueError("holds no lists of whole numbers in its column tokens")
    if len(tokens) != config.sequence_length + 1:
        raise ValueError(
            f"holds sequences of {len(tokens)} tokens, and sequence_length={config.sequence_length} needs "
            f"{config.sequence_length + 1} (one more, to predict)"
        )


def write_corpus(config: TrainerConfig, root: Path) -> None:
    """Write the corpus below ``root``, whole or not at all: two writers at once leave one good copy."""
    sequences = np.frombuffer(b"".join(_source_bytes(config.corpus_bytes)), dtype=np.uint8)
    length = config.sequence_length + 1
    sequences = sequences[: len(sequences) // length * length].reshape(-1, length)
    sequences = np.random.default_rng(config.seed).permutation(sequences)
    held_out = max(1, int(len(sequences) * HELD_OUT_SHARE))
    train = (len(sequences) - held_out) // config.global_batch * config.global_batch
    if not train:
        raise ValueError(f"corpus_bytes={config.corpus_bytes} do not fill one global batch; use more")
    scratch = root.with_name(f".{root.name}-{uuid.uuid4().hex[:8]}")
    _write_split(scratch / TRAIN, sequences[:train])
    _write_split(scratch / HELD_OUT, sequences[train : train + held_out])
    (scratch / "corpus.json").write_text(json.dumps({"rows": train, "length": length, "seed": config.seed}))
    try:
        scratch.rename(root)
    except OSError:  # another writer was first
        shutil.rmtree(scratch)
        if not root.exists():
            raise


def _source_bytes(limit: int) -> Iterator[bytes]:
    """Sources of the standard library in a fixed order, until ``limit`` bytes are reached."""
    library = Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "test", "tests", "idlelib", "__pycache__"}
    for folder, names, files in os.walk(library):
        names[:] = sorted(set(names) - skipped)
        for name in sorted(files):
            if limit > 0 and name.endswith(".py"):
                text = Path(folder, name).read_bytes()[:limit]
                limit -= len(text)
                yield text


def _write_split(folder: Path, sequences: np.ndarray) -> None:
    folder.mkdir(parents=True)
    for start in range(0, len(sequences), ROWS_PER_FILE):
        part = sequences[start : start + ROWS_PER_FILE]
        tokens = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), part.shape[1])
        table = pa.table({"id": pa.array(np.arange(start, start + len(part))), "tokens": tokens})
        pq.write_table(table, folder / f"{start // ROWS_PER_FILE:05d}.parquet")
