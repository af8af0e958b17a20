"""Checkpoints that torch wrote, with one defect each."""

from __future__ import annotations

import io
import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

from chaos.digest import tree_digests
from metrics.checkpoints.dcp import METADATA, read_metadata
from metrics.checkpoints.verify import Recorded, Verification, verify
from metrics.verdict import Verdict
from tests.metrics.test_dcp import Hostile, saved
from tests.metrics.verify.findings import RANKS, RECORD, WORLD, failing, parts_of, seen, verdicts
from tests.shards import save_values, whole

WEIGHT = MetadataIndex("model.weight", torch.Size([0, 0]))


def cut(folder: Path) -> None:
    os.truncate(folder / RANKS[1], (folder / RANKS[1]).stat().st_size - 10)


def grow(folder: Path) -> None:
    with (folder / RANKS[1]).open("ab") as file:
        file.write(b"more")


DEFECTS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "a shard removed": (lambda folder: (folder / RANKS[1]).unlink(), "layout", "__1_0.distcp is missing; it should"),
    "a shard cut short": (cut, "layout", "__1_0.distcp is cut short"),
    "a shard that goes on": (grow, "layout", "4 bytes belong to nothing"),
    "a shard of another save": (
        lambda folder: (folder / "__7_0.distcp").write_bytes(b"x"), "layout", "__7_0.distcp belongs to no piece",
    ),
    "metadata of another save": (
        lambda folder: (folder / ".metadata.tmp").write_bytes(b"x"), "layout", ".metadata.tmp belongs to no piece",
    ),
    "no metadata": (lambda folder: (folder / METADATA).unlink(), "metadata", "is missing"),
    "empty metadata": (lambda folder: (folder / METADATA).write_bytes(b""), "metadata", "cannot be read"),
    "foreign metadata": (lambda folder: (folder / METADATA).write_bytes(pickle.dumps([1])), "metadata", "holds a list"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFECTS)
def test_each_defect_of_the_files_is_found_by_name(checkpoint: Path, name: str) -> None:
    spoil, check, words = DEFECTS[name]
    spoil(checkpoint)
    found = verify(checkpoint)
    assert found.verdict is Verdict.FAIL
    assert check in failing(found)
    assert words in seen(found, check)


def test_a_removed_shard_fails_what_it_held_by_name(checkpoint: Path) -> None:
    (checkpoint / RANKS[1]).unlink()
    found = verify(checkpoint, RECORD)
    assert "model.weight" in " ".join(next(f for f in found.findings if f.check == "content").evidence["flaws"])
    assert "a group of 1 cannot load model.weight" in str(found.findings)
    assert verdicts(found)["digests"] is Verdict.UNKNOWN


def test_files_of_ray_and_users_are_told_and_fail_nothing(checkpoint: Path) -> None:
    (checkpoint / ".metadata.json").write_text("{}")
    (checkpoint / "config").mkdir()
    (checkpoint / "config" / "model.yaml").write_text("x: 1")
    found = verify(checkpoint)
    assert found.verdict is Verdict.PASS
    assert "2 other files beside them, first .metadata.json" in seen(found, "layout")


def test_shards_swapped_are_told_by_recorded_digests_alone(tmp_path: Path) -> None:
    folder = saved({"one": torch.ones(8), "two": torch.zeros(8)}, tmp_path / "c")
    record = Recorded(verify(folder, digests=True).digests, "before")
    metadata = read_metadata(folder)
    first, second = (MetadataIndex(name, torch.Size([0])) for name in ("one", "two"))
    places = metadata.storage_data
    places[first], places[second] = places[second], places[first]
    (folder / METADATA).write_bytes(pickle.dumps(metadata))
    assert verify(folder).verdict is Verdict.PASS  # nothing in the files says which is which
    found = verify(folder, record)
    assert failing(found) == {"digests"}
    assert seen(found, "digests") == "one@0 in __0_0.distcp is not what was recorded (and 1 more)"


def test_a_stale_shard_is_told_by_recorded_digests(checkpoint: Path, tmp_path: Path) -> None:
    older = save_values(tmp_path / "older", whole(4), WORLD)
    shutil.copy(older / RANKS[1], checkpoint / RANKS[1])
    assert failing(verify(checkpoint, RECORD)) == {"digests"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda parts: {**parts, "never.saved": "0" * 32}, "never.saved is not in the checkpoint"),
        (lambda parts: {k: parts[k] for k in parts if k != "progress.step"}, "progress.step in .* was never recorded"),
        (lambda parts: {**parts, "progress.step": None}, "progress.step in .* was saved differently by ranks"),
    ],
)  # fmt: skip
def test_records_and_pieces_must_be_the_same(checkpoint: Path, change: Any, words: str) -> None:
    found = verify(checkpoint, Recorded(change(parts_of(8)), "test"))
    assert failing(found) == {"digests"}
    assert re.search(words, seen(found, "digests"))


def test_without_checksums_or_digests_the_content_is_unknown(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        folder = saved({"value": torch.ones(3)}, tmp_path / "c")
    finally:
        torch.serialization.set_crc32_options(True)
    found = verify(folder)
    assert (found.verdict, verdicts(found)["content"]) == (Verdict.UNKNOWN, Verdict.UNKNOWN)
    assert "stored without a checksum" in seen(found, "content")
    assert verify(folder, Recorded(tree_digests({"value": torch.ones(3)}), "test")).verdict is Verdict.PASS


class Odd:
    """A value of a class that torch does not know."""


def test_a_value_that_would_have_to_be_executed_is_unknown_and_a_hostile_one_fails(tmp_path: Path) -> None:
    found = verify(saved({"value": Odd(), "weight": torch.ones(2)}, tmp_path / "odd"))
    assert verdicts(found)["content"] is verdicts(found)["loadable"] is found.verdict is Verdict.UNKNOWN
    assert "only executing tests.metrics.verify.test_defects.Odd could decode it" in seen(found, "content")
    found = verify(saved({"value": Hostile(tmp_path / "witness")}, tmp_path / "hostile"))
    assert "asks for posix.system" in seen(found, "content")
    assert found.verdict is Verdict.FAIL
    assert not (tmp_path / "witness").exists()


def test_a_tensor_whose_pickle_is_hostile_is_not_executed(checkpoint: Path, tmp_path: Path) -> None:
    _replace(checkpoint, pickle.dumps(Hostile(tmp_path / "witness"), protocol=2))
    found = verify(checkpoint)
    assert "it asks for posix.system" in seen(found, "content")
    assert found.verdict is not Verdict.PASS
    assert not (tmp_path / "witness").exists()


def test_a_pickle_that_claims_memory_gets_none(checkpoint: Path) -> None:
    _replace(checkpoint, b"\x80\x02Nr\xff\xff\xff\x7f.")  # remembers None as number 2147483647
    assert "it holds a NoneType, not a tensor" in seen(verify(checkpoint), "content")
    (checkpoint / METADATA).write_bytes(b"\x80\x02Nr\xff\xff\xff\x7f.")
    assert "holds a NoneType" in seen(verify(checkpoint), "metadata")


def _replace(folder: Path, pickled: bytes) -> None:
    """Put a pickle of our own in the place of the first part of the weight, at the end of its shard."""
    metadata = read_metadata(folder)
    info = metadata.storage_data[WEIGHT]
    shard = folder / info.relative_path
    begin = shard.stat().st_size
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        for name, text in (("data.pkl", pickled), ("byteorder", b"little"), ("version", b"3")):
            made.writestr(f"archive/{name}", text)
    with shard.open("ab") as file:
        file.write(archive.getvalue())
    metadata.storage_data[WEIGHT] = type(info)(info.relative_path, begin, shard.stat().st_size - begin)
    (folder / METADATA).write_bytes(pickle.dumps(metadata))


def _rewrite(folder: Path, change: Callable[[Any], None]) -> Verification:
    metadata = read_metadata(folder)
    change(metadata)
    (folder / METADATA).write_bytes(pickle.dumps(metadata))
    return verify(folder)


def _chunks(metadata: Any) -> list[ChunkStorageMetadata]:
    return metadata.state_dict_metadata["model.weight"].chunks


def _info(metadata: Any, **fields: Any) -> None:
    info = metadata.storage_data[WEIGHT]
    metadata.storage_data[WEIGHT] = type(info)(**{**vars(info), **fields})


MISFITS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "a part that is not stored": (lambda m: m.storage_data.pop(WEIGHT), "layout", "model.weight: the part at (0"),
    "a part that is not there": (lambda m: _chunks(m).pop(), "metadata", "where it has no part"),
    "a value that is not stored": (
        lambda m: m.storage_data.pop(MetadataIndex("progress.step")), "layout", "progress.step is stored 0 times",
    ),
    "a part beyond the shape": (
        lambda m: setattr(m.state_dict_metadata["model.weight"], "size", torch.Size([5, 2])), "layout", "goes beyond",
    ),
    "a shape larger than its parts": (
        lambda m: setattr(m.state_dict_metadata["model.weight"], "size", torch.Size([9, 2])), "layout", "14 of 18",
    ),
    "another type than stored": (
        lambda m: setattr(m.state_dict_metadata["model.weight"].properties, "dtype", torch.int64), "content", "int64",
    ),
    "a piece that is not described": (
        lambda m: m.state_dict_metadata.pop("model.scale"), "metadata", "model.scale, which it does not describe",
    ),
    "a file outside": (lambda m: _info(m, relative_path="../other"), "metadata", "points outside"),
    "a negative offset": (lambda m: _info(m, offset=-1), "layout", "placed at byte -1"),
    "an offset beyond all files": (lambda m: _info(m, offset=1 << 70), "layout", "cut short"),
    "a length that is none": (lambda m: _info(m, length=None), "metadata", "contradicts itself"),
    "a place that is none": (lambda m: m.storage_data.update({WEIGHT: None}), "metadata", "contradicts itself"),
    "a folder as file": (lambda m: _info(m, relative_path="."), "layout", "is missing"),
    "a name with a null": (lambda m: _info(m, relative_path="a\0b"), "layout", "is missing"),
    "nothing": (lambda m: m.storage_data.clear(), "metadata", "places nothing"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISFITS)
def test_metadata_that_do_not_fit_are_found_by_name(checkpoint: Path, name: str) -> None:
    change, check, words = MISFITS[name]
    found = _rewrite(checkpoint, change)
    assert found.verdict is Verdict.FAIL
    assert check in failing(found)
    assert words in str(next(f for f in found.findings if f.check == check).evidence) + seen(found, check)


def test_parts_that_overlap_are_found(checkpoint: Path) -> None:
    second = _chunks(read_metadata(checkpoint))[1].offsets

    def move(metadata: Any) -> None:
        index = next(i for i in metadata.storage_data if i.fqn == "model.weight" and i.offset == second)
        moved = torch.Size([second[0] - 1, 0])
        _chunks(metadata)[1] = ChunkStorageMetadata(moved, _chunks(metadata)[1].sizes)
        metadata.storage_data[MetadataIndex("model.weight", moved)] = metadata.storage_data.pop(index)

    found = _rewrite(checkpoint, move)
    assert "overlap" in seen(found, "layout")


def test_transformed_pieces_are_unknown(checkpoint: Path) -> None:
    found = _rewrite(checkpoint, lambda metadata: _info(metadata, transform_descriptors=["zstd"]))
    assert found.verdict is Verdict.UNKNOWN
    assert "compressed" in seen(found, "content")
