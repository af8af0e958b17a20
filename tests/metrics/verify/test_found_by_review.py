"""Defects that once passed, sound checkpoints that once failed, and input made to harm the reader."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.state_dict_saver import save

from chaos.digest import tree_digests, value_digest
from metrics.checkpoints.dcp import METADATA, read_metadata
from metrics.checkpoints.verify import Recorded, verify
from metrics.verdict import Verdict
from tests.metrics.test_dcp import SHARD, saved
from tests.metrics.verify.findings import failing, seen, verdicts


def recorded(folder: Path) -> Recorded:
    return Recorded(verify(folder, digests=True).digests, "before")


def rewrite(folder: Path, change: Any) -> None:
    metadata = read_metadata(folder)
    change(metadata)
    (folder / METADATA).write_bytes(pickle.dumps(metadata))


# Once green, and not true


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("byte", range(4))
def test_a_record_whose_header_is_spoilt_fails(tmp_path: Path, record: bool, byte: int) -> None:
    folder = saved({"w": torch.arange(4.0)}, tmp_path / "c")
    before = recorded(folder) if record else None
    text = bytearray((folder / SHARD).read_bytes())
    with zipfile.ZipFile(folder / SHARD) as archive:
        at = next(info.header_offset for info in archive.infolist() if info.filename.endswith("data/0"))
    text[at + byte] ^= 1
    (folder / SHARD).write_bytes(text)
    assert "content" in failing(verify(folder, before))


@pytest.mark.parametrize("byte", range(3, 9))
def test_metadata_whose_frame_is_not_whole_fail(tmp_path: Path, byte: int) -> None:
    folder = saved({"w": torch.arange(4.0)}, tmp_path / "c")
    text = bytearray((folder / METADATA).read_bytes())
    text[text.index(b"\x95") + byte] ^= 1
    (folder / METADATA).write_bytes(text)
    assert failing(verify(folder)) == {"metadata"}


def test_a_tensor_within_a_plain_value_counts_with_all_its_bytes(tmp_path: Path) -> None:
    folder = saved({"random": (torch.arange(5000.0), 1)}, tmp_path / "c")
    before = recorded(folder)
    text = bytearray((folder / SHARD).read_bytes())
    text[text.index(torch.tensor(2500.0).numpy().tobytes())] ^= 1
    (folder / SHARD).write_bytes(text)
    assert verify(folder).verdict is verify(folder, before).verdict is Verdict.FAIL
    one, other = (value_digest("random", (torch.arange(5000.0) + d * (torch.arange(5000) == 2500), 1)) for d in (0, 1))
    assert one != other


def test_pieces_of_one_name_cannot_be_told_apart_by_records(tmp_path: Path) -> None:
    folder = saved({"w": torch.arange(40.0), "w@0": "text"}, tmp_path / "c")
    found = verify(folder, Recorded({"w@0": "0"}, "before"))
    assert verdicts(found)["digests"] is Verdict.UNKNOWN
    assert verify(folder, digests=True).digests == {}


WEIGHT = MetadataIndex("w", torch.Size([0]))


def _index(metadata: Any, old: MetadataIndex, new: MetadataIndex) -> None:
    metadata.storage_data[new] = metadata.storage_data.pop(old)


EDITS: dict[str, Any] = {
    "a tensor without offsets": lambda m: _index(m, WEIGHT, MetadataIndex("w")),
    "a plain value with offsets": lambda m: _index(m, MetadataIndex("b"), MetadataIndex("b", torch.Size([0]))),
    "an offset as text": lambda m: setattr(m.storage_data[WEIGHT], "offset", "0"),
    "a plain value described as nothing": lambda m: m.state_dict_metadata.update(b=None),
    "a size that is a list": lambda m: setattr(m.state_dict_metadata["w"], "size", [4]),
    "a path of another value": lambda m: m.planner_data.update(b=("c",)),
    "a file that is a number": lambda m: setattr(m.storage_data[WEIGHT], "relative_path", 7),
}


@pytest.mark.parametrize("name", EDITS)
def test_metadata_that_torch_would_not_load_by_fail(tmp_path: Path, name: str) -> None:
    folder = saved({"w": torch.arange(4.0), "b": 1}, tmp_path / "c")
    before = recorded(folder)
    rewrite(folder, EDITS[name])
    assert verify(folder, before).verdict is Verdict.FAIL


def test_one_checksum_does_not_stand_for_all(tmp_path: Path) -> None:
    folder = saved({"w": torch.arange(4.0)}, tmp_path / "c")
    text = bytearray((folder / SHARD).read_bytes())
    at = text.rindex(b"PK\x01\x02", 0, text.rindex(b"archive/data/0"))
    text[at + 16 : at + 20] = bytes(4)
    (folder / SHARD).write_bytes(text)
    assert verdicts(verify(folder))["content"] is Verdict.UNKNOWN


def test_numbers_that_are_not_stored_as_they_are_are_unknown(tmp_path: Path) -> None:
    value = torch.ones(2, dtype=torch.complex64).conj()
    assert verdicts(verify(saved({"w": value}, tmp_path / "c")))["content"] is Verdict.UNKNOWN
    assert tree_digests({"w": value}) == tree_digests({"w": value.resolve_conj()})


@pytest.mark.parametrize("record", [None, Recorded({}, "before")])
def test_a_checkpoint_of_nothing_is_no_evidence(tmp_path: Path, record: Recorded | None) -> None:
    assert verify(saved({}, tmp_path / "c"), record).verdict is Verdict.UNKNOWN


def test_a_tensor_within_a_mapping_of_another_kind_counts_with_all_its_bytes() -> None:
    one, other = (OrderedDict(w=torch.arange(5000.0) + d * (torch.arange(5000) == 2500)) for d in (0, 1))
    assert value_digest("state", (one,)) != value_digest("state", (other,))
    assert value_digest("state", (one,)) != value_digest("state", (dict(one),))


# Once red, and not true


def test_empty_files_of_ranks_without_a_piece_are_no_other_save(tmp_path: Path) -> None:
    save({"w": torch.ones(3)}, storage_writer=FileSystemWriter(tmp_path / "c", thread_count=4), no_dist=True)
    assert {file.stat().st_size for file in (tmp_path / "c").glob("*.distcp")} > {0}
    assert verify(tmp_path / "c").verdict is Verdict.PASS


def test_links_to_shards_are_followed(tmp_path: Path) -> None:
    folder = saved({"w": torch.ones(3)}, tmp_path / "c")
    (folder / SHARD).rename(tmp_path / "blob")
    (folder / SHARD).symlink_to(tmp_path / "blob")
    assert verify(folder).verdict is Verdict.PASS


def test_metadata_of_another_python_are_read(tmp_path: Path) -> None:
    folder = saved({"w": torch.ones(3)}, tmp_path / "c")
    text = (folder / METADATA).read_bytes()
    assert text.count(b"\x8c\x07pathlib") == 1
    later = text.replace(b"\x8c\x07pathlib", b"\x8c\x0epathlib._local")
    grown = int.from_bytes(text[3:11], "little") + len(later) - len(text)
    (folder / METADATA).write_bytes(later[:3] + grown.to_bytes(8, "little") + later[11:])
    assert verify(folder).verdict is Verdict.PASS


def test_metadata_of_each_rank_are_unknown(tmp_path: Path) -> None:
    folder = saved({"w": torch.ones(3)}, tmp_path / "c")
    (folder / METADATA).rename(folder / "__0.metadata")
    found = verify(folder)
    assert found.verdict is Verdict.UNKNOWN
    assert "use_collectives=False" in seen(found, "metadata")


def test_a_checkpoint_below_another_is_none_of_its_files(tmp_path: Path) -> None:
    folder = saved({"w": torch.ones(3)}, tmp_path / "c")
    saved({"m": torch.ones(3)}, folder / "optimizer")
    assert verify(folder).verdict is Verdict.PASS


def test_a_set_has_one_digest_whatever_its_order() -> None:
    code = "from chaos.digest import value_digest; print(value_digest('s', {'alpha', 'beta', 'gamma', 'delta'}))"
    root = str(Path(__file__).parents[3])
    env = [{**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": str(seed)} for seed in (1, 2)]
    one, other = (subprocess.run([sys.executable, "-c", code], env=e, capture_output=True, check=True) for e in env)
    assert one.stdout == other.stdout


@pytest.mark.parametrize("value", [1, None, "a", (1, 2), (1,), [1, [2.5]], {"a": (None, True)}, b"x", range(3)])
def test_a_plain_value_is_digested_as_it_is_written(value: object) -> None:
    from chaos import digest

    assert digest._text(value, [100]) == repr(value)


# Made to harm


def test_metadata_cannot_change_a_class(tmp_path: Path) -> None:
    folder = saved({"w": torch.ones(3)}, tmp_path / "c")
    before = Path.resolve
    swap = b"cpathlib\nPosixPath\nN}X\x07\0\0\0resolvecpathlib\nPurePosixPath\ns\x86b0"
    (folder / METADATA).write_bytes(b"\x80\x02" + swap + pickle.dumps(read_metadata(folder), 2)[2:])
    assert failing(verify(folder)) == {"metadata"}
    assert Path.resolve is before


def test_metadata_that_claim_bytes_are_refused_at_once(tmp_path: Path) -> None:
    folder = saved({"w": torch.ones(3)}, tmp_path / "c")
    (folder / METADATA).write_bytes(b"\x80\x05\x96" + (2 << 30).to_bytes(8, "little") + b".")
    assert failing(verify(folder)) == {"metadata"}


@pytest.mark.timeout(20)
def test_metadata_with_a_key_that_would_take_for_ever_to_hash_are_refused(tmp_path: Path) -> None:
    folder = saved({"w": torch.ones(3)}, tmp_path / "c")
    key: Any = ()
    for _ in range(60):
        key = (key, key)
    metadata = read_metadata(folder)
    metadata.planner_data = _Pairs(key)
    (folder / METADATA).write_bytes(pickle.dumps(metadata))
    assert "has a tuple as a key" in seen(verify(folder), "metadata")


class _Pairs:
    """Pickled as a dict with one key, which is never hashed here."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def __reduce__(self) -> Any:
        return OrderedDict, (), None, None, iter([(self.key, 1)])


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_a_file_is_no_file(tmp_path: Path) -> None:
    folder = saved({"w": torch.ones(3)}, tmp_path / "c")
    (folder / SHARD).unlink()
    os.mkfifo(folder / SHARD)
    assert "is missing" in seen(verify(folder), "content")
    (folder / METADATA).unlink()
    os.mkfifo(folder / METADATA)
    assert "no regular file" in seen(verify(folder), "metadata")


def test_names_that_no_text_can_hold_are_digested(tmp_path: Path) -> None:
    assert verify(saved({"w\udcff": torch.ones(3), "b\udcff": 1}, tmp_path / "c"), digests=True).verdict is Verdict.PASS


def test_a_large_row_is_gathered_in_small_blocks(tmp_path: Path) -> None:
    value = torch.arange(600_000.0).reshape(1, 600, 1000).transpose(1, 2)
    assert verify(saved({"w": value}, tmp_path / "c"), digests=True).digests == tree_digests({"w": value})
