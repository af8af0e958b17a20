"""Reading a real checkpoint of torch.distributed.checkpoint from its files, whole, spoilt and hostile."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import resource
import shutil
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from chaos.digest import tree_digests
from metrics.checkpoints.dcp import METADATA, BadCheckpoint, Stored, read_metadata
from metrics.checkpoints.scan import pieces
from tests.shards import held, save_values, whole
from tests.shards import save as save_shards

SHARD = "__0_0.distcp"

TREE = {
    "model": {
        "weight": torch.arange(24.0).reshape(4, 6) / 7,
        "half": torch.linspace(-1, 1, 5).bfloat16(),
        "mask": torch.tensor([True, False, True]),
        "scale": torch.tensor(2.5, dtype=torch.float64),
        "strided": torch.arange(12.0).reshape(3, 4)[:, 1:3],
    },
    "scheduler": {"rates": [0.1, 0.2], "last": None, "name": "cosine"},
    "progress": {"step": 7, "by slot": {0: 1, 1: 2}},
    "stamp": {"rank0": torch.tensor([7])},
}


def saved(tree, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(tree, checkpoint_id=folder, no_dist=True)
    return folder


def digests(folder):
    return {piece.place.key: piece.digest for piece in pieces(folder)}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return saved(TREE, tmp_path_factory.mktemp("original") / "checkpoint")


@pytest.fixture
def checkpoint(original, tmp_path):
    """A copy that the test may spoil."""
    return shutil.copytree(original, tmp_path / "checkpoint")


def test_the_stored_pieces_are_those_that_were_saved(original) -> None:
    assert digests(original) == tree_digests(TREE)


def test_reading_does_not_change_the_checkpoint(checkpoint) -> None:
    before = {file.name: file.read_bytes() for file in checkpoint.iterdir()}
    pieces(checkpoint)
    assert {file.name: file.read_bytes() for file in checkpoint.iterdir()} == before


def test_an_empty_tensor_is_stored_as_it_was_saved(tmp_path) -> None:
    tree = {"empty": torch.zeros(0, 3), "full": torch.ones(1)}
    assert digests(saved(tree, tmp_path / "checkpoint")) == tree_digests(tree)


@pytest.mark.parametrize(
    "tree",
    [
        {"layers": [torch.ones(2), torch.zeros(2)]},
        {"optimizer": {"param_groups": [{"lr": 0.1, "params": [0, 1]}]}},
    ],
    ids=["tensors", "an optimizer's own state_dict"],
)
def test_a_list_is_stored_as_it_was_saved(tmp_path, tree) -> None:
    assert digests(saved(tree, tmp_path / "checkpoint")) == tree_digests(tree)


@pytest.mark.parametrize("bit", [0, 7, 13, 23])
@pytest.mark.parametrize("name", ["weight", "half", "mask"])
def test_a_flipped_bit_changes_exactly_its_piece_or_is_refused(checkpoint, name, bit) -> None:
    shard = bytearray((checkpoint / SHARD).read_bytes())
    content = TREE["model"][name].view(torch.uint8).numpy().tobytes()
    assert shard.count(content) == 1
    shard[shard.index(content) + bit // 8] ^= 1 << bit % 8
    (checkpoint / SHARD).write_bytes(shard)
    expected = tree_digests(TREE)
    try:
        found = digests(checkpoint)
    except BadCheckpoint as error:
        assert f"model.{name}" in str(error)
    else:
        assert {key.split("@")[0] for key in found if found[key] != expected[key]} == {f"model.{name}"}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_shard_cut_short_is_refused_by_name(checkpoint, share) -> None:
    shard = checkpoint / SHARD
    os.truncate(shard, int(shard.stat().st_size * share))
    with pytest.raises(BadCheckpoint, match=rf"{shard}: .*cut short"):
        pieces(checkpoint)


def test_a_missing_shard_is_refused_by_name(checkpoint) -> None:
    (checkpoint / SHARD).unlink()
    with pytest.raises(BadCheckpoint, match=f"{checkpoint / SHARD}: .*missing"):
        pieces(checkpoint)


def test_a_shard_of_zeros_is_refused_by_name(checkpoint) -> None:
    shard = checkpoint / SHARD
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(BadCheckpoint, match=f"{shard}: .* cannot be"):
        pieces(checkpoint)


@pytest.mark.parametrize("text", [b"", b"garbage", b"\x80\x04", pickle.dumps({"a": 1}), pickle.dumps(None)])
def test_foreign_metadata_are_refused_by_name(checkpoint, text) -> None:
    (checkpoint / METADATA).write_bytes(text)
    with pytest.raises(BadCheckpoint, match=str(checkpoint / METADATA)):
        pieces(checkpoint)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_metadata_cut_short_are_refused_by_name(checkpoint, share) -> None:
    text = (checkpoint / METADATA).read_bytes()
    (checkpoint / METADATA).write_bytes(text[: int(len(text) * share)])
    with pytest.raises(BadCheckpoint, match=str(checkpoint / METADATA)):
        pieces(checkpoint)


def test_missing_metadata_are_refused_by_name(checkpoint) -> None:
    (checkpoint / METADATA).unlink()
    with pytest.raises(BadCheckpoint, match=f"{checkpoint / METADATA} is missing"):
        pieces(checkpoint)


def test_a_directory_in_the_place_of_metadata_is_refused(checkpoint) -> None:
    (checkpoint / METADATA).unlink()
    (checkpoint / METADATA).mkdir()
    with pytest.raises(BadCheckpoint, match=str(checkpoint / METADATA)):
        pieces(checkpoint)


class Hostile:
    """Runs a command when it is unpickled."""

    def __init__(self, witness):
        self.command = f"touch {witness}"

    def __reduce__(self):
        return os.system, (self.command,)


def test_hostile_metadata_are_refused_and_not_executed(checkpoint, tmp_path) -> None:
    (checkpoint / METADATA).write_bytes(pickle.dumps(Hostile(tmp_path / "witness")))
    with pytest.raises(BadCheckpoint, match=r"posix\.system"):
        pieces(checkpoint)
    assert not (tmp_path / "witness").exists()


def test_a_hostile_value_in_a_shard_is_refused_and_not_executed(tmp_path) -> None:
    folder = saved({"value": Hostile(tmp_path / "witness")}, tmp_path / "checkpoint")
    with pytest.raises(BadCheckpoint, match=r"value: it asks for posix\.system"):
        pieces(folder)
    assert not (tmp_path / "witness").exists()


@pytest.mark.parametrize(
    "name", ["os system", "builtins eval", "builtins getattr", "torch load", "torch.hub load", "pathlib os.system"]
)
def test_only_what_torch_itself_puts_there_is_looked_up(checkpoint, name) -> None:
    module, function = name.split()
    (checkpoint / METADATA).write_bytes(f"c{module}\n{function}\n.".encode())
    with pytest.raises(BadCheckpoint, match=f"asks for {module}.{function}"):
        read_metadata(checkpoint)


@contextmanager
def memory(spare):
    """Within the context this process gets only so many bytes more; a broken pickle may ask for any number."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


MUTATIONS = st.lists(st.tuples(st.integers(min_value=0), st.integers(0, 255)), min_size=1, max_size=3)
FUZZ = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def mutate(file, original, mutations) -> None:
    text = bytearray(original.read_bytes())
    for position, byte in mutations:
        text[position % len(text)] = byte
    file.write_bytes(text)


@FUZZ
@given(mutations=MUTATIONS)
def test_mutated_metadata_are_read_or_refused(original, checkpoint, mutations) -> None:
    mutate(checkpoint / METADATA, original / METADATA, mutations)
    with memory(spare=1 << 30):
        try:
            read_metadata(checkpoint)
        except BadCheckpoint as error:
            assert METADATA in str(error)


@settings(FUZZ, max_examples=40)
@given(mutations=MUTATIONS)
def test_pieces_of_a_mutated_shard_are_read_or_refused(original, checkpoint, mutations) -> None:
    mutate(checkpoint / SHARD, original / SHARD, mutations)
    try:
        assert digests(checkpoint).keys() == tree_digests(TREE).keys()
    except BadCheckpoint as error:
        assert SHARD in str(error)


def renamed(metadata, index):
    return {**metadata.storage_data, MetadataIndex("nosuch", index.offset): metadata.storage_data[index]}


SPOILT = {
    "a piece that is not described": renamed,
    "a negative offset": lambda metadata, index: {index: _changed(metadata, index, offset=-1)},
    "an offset beyond all files": lambda metadata, index: {index: _changed(metadata, index, offset=1 << 70)},
    "a length that is none": lambda metadata, index: {index: _changed(metadata, index, length=None)},
    "a place that is none": lambda metadata, index: {index: None},
    "a folder as file": lambda metadata, index: {index: _changed(metadata, index, relative_path=".")},
    "a file outside": lambda metadata, index: {index: _changed(metadata, index, relative_path=f"../{SHARD}")},
}


def _changed(metadata, index, **fields):
    info = metadata.storage_data[index]
    return type(info)(**{**vars(info), **fields})


@pytest.mark.parametrize("spoilt", SPOILT)
def test_metadata_that_contradict_themselves_are_refused(checkpoint, spoilt) -> None:
    shutil.copy(checkpoint / SHARD, checkpoint.parent / SHARD)
    metadata = read_metadata(checkpoint)
    metadata.storage_data = SPOILT[spoilt](metadata, MetadataIndex("model.weight", torch.Size([0, 0])))
    (checkpoint / METADATA).write_bytes(pickle.dumps(metadata))
    with pytest.raises(BadCheckpoint):
        pieces(checkpoint)


# Whole values, put together again of what several ranks wrote


def values(folder):
    stored = Stored(folder)
    return {name: stored.value(name) for name in stored.names}


def assert_same(found, wanted) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        if isinstance(value, torch.Tensor):
            assert found[name].dtype == value.dtype
            assert torch.equal(found[name], value)
        else:
            assert found[name] == value


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_the_values_are_those_that_were_saved_whatever_the_world_size(tmp_path, world) -> None:
    stamps = {f"stamp.rank{rank}": torch.tensor([8]) for rank in range(world)}
    assert_same(values(save_values(tmp_path / "checkpoint", whole(8), world)), {**whole(8), **stamps})


def test_values_are_put_together_as_torch_does(tmp_path) -> None:
    folder = save_values(tmp_path / "checkpoint", whole(8), 3)
    tree = {name: torch.zeros_like(v) for name, v in whole(8).items() if isinstance(v, torch.Tensor)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(tree, checkpoint_id=folder, no_dist=True)
    assert_same(tree, {name: Stored(folder).value(name) for name in tree})


def test_every_kind_of_value_is_read(original) -> None:
    found = values(original)
    assert found["scheduler.rates"] == [0.1, 0.2]
    assert found["progress.step"] == 7
    assert all(torch.equal(found[f"model.{name}"], value) for name, value in TREE["model"].items())


def test_an_empty_tensor_has_a_value(tmp_path) -> None:
    found = values(saved({"empty": torch.zeros(0, 3)}, tmp_path / "checkpoint"))
    assert found["empty"].shape == (0, 3)


def test_a_name_that_is_not_there_is_refused(original) -> None:
    with pytest.raises(BadCheckpoint, match="nosuch"):
        Stored(original).value("nosuch")


MISFITS = {
    "a rank is missing": lambda trees: trees.pop(1),
    "a shard is that of another rank": lambda trees: trees[1].update({"model.weight": trees[0]["model.weight"]}),
    "shards overlap": lambda trees: trees[1].update({"model.weight": moved(trees[1]["model.weight"], 2)}),
    "a shard lies beyond the end": lambda trees: trees[2].update({"model.weight": moved(trees[2]["model.weight"], 7)}),
    "a shard is of another type": lambda trees: trees[1].update({"model.weight": cast(trees[1]["model.weight"])}),
}


def moved(shard, begin):
    return dataclasses.replace(shard, begin=begin)


def cast(shard):
    return dataclasses.replace(shard, piece=shard.piece.float())


@pytest.mark.parametrize("misfit", MISFITS)
def test_shards_that_do_not_make_one_tensor_are_refused_by_name(tmp_path, misfit) -> None:
    trees = [held(whole(8), rank, 3) for rank in range(3)]
    MISFITS[misfit](trees)
    stored = Stored(save_shards(tmp_path / "checkpoint", trees))
    with pytest.raises(BadCheckpoint, match=r"model\.weight"):
        stored.value("model.weight")


def test_a_tensor_of_any_size_is_refused_before_room_is_made_for_it(checkpoint) -> None:
    metadata = read_metadata(checkpoint)
    metadata.state_dict_metadata["model.weight"].size = torch.Size([1 << 40, 1 << 20])
    (checkpoint / METADATA).write_bytes(pickle.dumps(metadata))
    with memory(spare=1 << 30), pytest.raises(BadCheckpoint, match="hold 24 of"):
        Stored(checkpoint).value("model.weight")


@pytest.mark.parametrize("spoilt", SPOILT)
def test_values_of_metadata_that_contradict_themselves_are_refused(checkpoint, spoilt) -> None:
    shutil.copy(checkpoint / SHARD, checkpoint.parent / SHARD)
    metadata = read_metadata(checkpoint)
    metadata.storage_data = SPOILT[spoilt](metadata, MetadataIndex("model.weight", torch.Size([0, 0])))
    (checkpoint / METADATA).write_bytes(pickle.dumps(metadata))
    with pytest.raises(BadCheckpoint):
        values(checkpoint)


@settings(FUZZ, max_examples=40)
@given(mutations=MUTATIONS)
def test_values_of_mutated_files_are_read_or_refused(original, checkpoint, mutations) -> None:
    mutate(checkpoint / METADATA, original / METADATA, mutations)
    with memory(spare=1 << 30), contextlib.suppress(BadCheckpoint):
        values(checkpoint)


def test_a_hostile_value_is_refused_and_not_executed(tmp_path) -> None:
    folder = saved({"value": Hostile(tmp_path / "witness")}, tmp_path / "checkpoint")
    with pytest.raises(BadCheckpoint, match="value cannot be decoded"):
        Stored(folder).value("value")
    assert not (tmp_path / "witness").exists()
