"""Digests: equal for equal content in an equal place, different for everything else."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.digest import LENGTH, piece_key, tensor_digest, tree_digests, value_digest

BASE = ("w", (4, 3), (2, 0), torch.arange(6.0).reshape(2, 3))

VARIANTS = {
    "name": ("v", *BASE[1:]),
    "whole shape": ("w", (5, 3), *BASE[2:]),
    "offsets": ("w", (4, 3), (0, 0), BASE[3]),
    "local shape": (*BASE[:3], BASE[3].reshape(3, 2)),
    "dtype": (*BASE[:3], BASE[3].double()),
    "dtype of the same bytes": (*BASE[:3], BASE[3].view(torch.int32)),
    "order of rows": (*BASE[:3], BASE[3].flip(0)),
    "sign of zero": (*BASE[:3], BASE[3] * torch.tensor([-1.0, 1.0, 1.0])),
}

KINDS = {
    "bfloat16": torch.tensor([1.0, 2.0]).bfloat16(),
    "bool": torch.tensor([True, False]),
    "0-dim": torch.tensor(3.0),
    "empty": torch.zeros(0, 3),
    "uint8": torch.tensor([0, 255], dtype=torch.uint8),
    "complex": torch.tensor([1 + 2j]),
    "int64": torch.tensor([-1]),
}


@pytest.mark.parametrize("changed", VARIANTS)
def test_a_digest_covers(changed):
    assert tensor_digest(*VARIANTS[changed]) != tensor_digest(*BASE)


def test_equal_content_in_an_equal_place_is_equal():
    name, shape, offsets, piece = BASE
    strided = torch.stack([piece, piece], dim=-1)[..., 0]
    assert not strided.is_contiguous()
    for other in (piece.clone(), strided, piece.clone().requires_grad_(), torch.nn.Parameter(piece.clone())):
        assert tensor_digest(name, list(shape), list(offsets), other) == tensor_digest(*BASE)


@settings(max_examples=60, deadline=None)
@given(bit=st.integers(min_value=0, max_value=6 * 32 - 1))
def test_one_flipped_bit_changes_a_digest(bit):
    piece = BASE[3].clone()
    piece.view(-1).view(torch.uint8)[bit // 8] ^= 1 << bit % 8
    assert tensor_digest(*BASE[:3], piece) != tensor_digest(*BASE)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tensor_has_a_digest_of_its_own(kind):
    tensor = KINDS[kind]
    digests = [tensor_digest("w", t.shape, (0,) * t.dim(), t) for t in KINDS.values()]
    mine = tensor_digest("w", tensor.shape, (0,) * tensor.dim(), tensor.clone())
    assert digests.count(mine) == 1
    assert len(mine) == 2 * LENGTH


def test_not_a_number_equals_itself():
    piece = torch.tensor([float("nan")])
    assert tensor_digest("w", (1,), (0,), piece) == tensor_digest("w", (1,), (0,), piece.clone())


@pytest.mark.parametrize("pair", [(1, 1.0), (1, True), (0.1 + 0.2, 0.3), ("1", 1), (None, "None"), ([1], (1,))])
def test_values_of_different_kind_or_size_differ(pair):
    assert value_digest("x", pair[0]) != value_digest("x", pair[1])
    assert value_digest("x", pair[0]) == value_digest("x", pair[0])
    assert value_digest("x", pair[0]) != value_digest("y", pair[0])


def test_the_key_of_a_piece_names_its_place():
    assert piece_key("model.head.weight", (128, 0)) == "model.head.weight@128,0"
    assert piece_key("scalar", ()) == "scalar@"


def test_a_tree_is_told_by_its_pieces():
    tree = {"model": {"w": torch.ones(2, 2), "scale": torch.tensor(2.0)}, "progress": {"step": 3}, 5: "five"}
    assert tree_digests(tree) == {
        "model.w@0,0": tensor_digest("model.w", (2, 2), (0, 0), torch.ones(2, 2)),
        "model.scale@": tensor_digest("model.scale", (), (), torch.tensor(2.0)),
        "progress.step": value_digest("progress.step", 3),
        "5": value_digest("5", "five"),
    }


def test_exchanging_two_equal_shaped_pieces_changes_both():
    a, b = torch.zeros(2), torch.ones(2)
    one, other = tree_digests({"a": a, "b": b}), tree_digests({"a": b, "b": a})
    assert one.keys() == other.keys()
    assert all(one[key] != other[key] for key in one)


@pytest.fixture
def second_of_two():
    """A device mesh as rank 1 of two sees it, without the other."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    yield dist.device_mesh.init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def test_a_shard_is_named_by_where_it_begins(second_of_two):
    from torch.distributed.tensor import DTensor, Shard

    def sharded(local, shape):
        return DTensor.from_local(local, second_of_two, [Shard(0)], shape=torch.Size(shape), stride=(2, 1))

    tree = {"uneven": sharded(torch.ones(1, 2), (3, 2)), "none left": sharded(torch.zeros(0, 2), (1, 2))}
    assert tree_digests(tree) == {"uneven@2,0": tensor_digest("uneven", (3, 2), (2, 0), torch.ones(1, 2))}
