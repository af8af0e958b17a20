"""What the code relies on inside torch, one test each, so that an upgrade that changes it fails by name."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict as state_dicts
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.testing._internal.distributed.fake_pg import FakeStore

from chaos import observe
from chaos.agent import session
from chaos.agent.events import EventWriter
from chaos.agent.plan import Plan
from chaos.digest import tensor_digest, tree_digests, value_digest
from metrics.checkpoints.dcp import METADATA, BadCheckpoint, read_metadata
from metrics.checkpoints.scan import pieces
from trainer.state import OPTIONS, SlotRandomness

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def events(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    found = [json.loads(line) for line in lines]
    assert [e for e in found if e["kind"] == "agent.error"] == []
    return found


@pytest.fixture
def me(tmp_path: Path) -> Iterator[session.Session]:
    """The agent's session of this process, listening to optimizers."""
    plan = Plan(run_id="r", directory=str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    plan.write()
    made = session.Session(plan, EventWriter(plan.events, "n"), 0, 0, 0)
    made.start(None)
    session.begin(made)
    yield made
    session.begin(None)
    made.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of everything that a trainer saves, written by one process."""
    model, optimizer = model_and_optimizer()
    train(model, optimizer)
    scheduler = LambdaLR(optimizer, lambda step: 0.5**step)
    weights, moments = state_dicts.get_state_dict(model, optimizer, options=OPTIONS)
    tree = {
        "model": weights,
        "optimizer": moments,
        "scheduler": scheduler.state_dict(),
        "random": {"slot0": torch.get_rng_state()},
        "progress": {"step": 1, "epoch": 0, "sample": 8},
        "stamp": {"rank0": torch.tensor([1])},
        **{str(kind): torch.zeros(2, dtype=kind) for kind in (torch.float64, torch.bfloat16, torch.int64)},
    }
    folder = tmp_path / "checkpoint"
    save(tree, checkpoint_id=folder, no_dist=True)
    return folder


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """A mesh of two ranks of which this process is the second; collectives do nothing."""
    if dist.is_initialized():
        pytest.skip("a process group is there already")
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


# Steps


def test_a_global_hook_hears_the_end_of_every_optimizer_step() -> None:
    heard: list[tuple[Any, ...]] = []
    handle = register_optimizer_step_post_hook(lambda *given: heard.append(given))
    model, optimizer = model_and_optimizer()
    train(model, optimizer)
    handle.remove()
    train(model, optimizer)
    assert [(given[0], len(given)) for given in heard] == [(optimizer, 3)]


def test_the_hook_hears_a_step_after_the_weights_have_changed() -> None:
    model, optimizer = model_and_optimizer()
    before, after = [p.clone() for p in model.parameters()], []
    handle = register_optimizer_step_post_hook(lambda *given: after.extend(p.clone() for p in model.parameters()))
    train(model, optimizer)
    handle.remove()
    assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_an_optimizer_tells_its_learning_rate_in_its_first_group(me: session.Session, tmp_path: Path) -> None:
    train(*model_and_optimizer())
    (event,) = [e for e in events(tmp_path / "run" / "events") if e["kind"] == "step.end"]
    assert (event["step"], event["data"]["lr"]) == (1, 0.1)


def test_torch_makes_optimizer_state_by_a_step_of_its_own() -> None:
    heard: list[Any] = []
    handle = register_optimizer_step_post_hook(lambda *given: heard.append(_callers()))
    model, optimizer = model_and_optimizer()
    state_dicts.get_optimizer_state_dict(model, optimizer)
    handle.remove()
    assert len(heard) == 1
    assert "_init_optim_state" in heard[0]


def _callers() -> list[str]:
    return [frame.function for frame in inspect.stack(context=0)]


@pytest.mark.parametrize("function", [state_dicts._get_optim_state_dict, state_dicts._load_optim_state_dict])
def test_saving_and_loading_optimizer_state_both_make_it_first(function: Any) -> None:
    assert "_init_optim_state(optim)" in inspect.getsource(function)


def test_the_step_by_which_torch_makes_state_is_not_counted(me: session.Session) -> None:
    model, optimizer = model_and_optimizer()
    weights, moments = state_dicts.get_state_dict(model, optimizer, options=OPTIONS)
    assert me.step == 0
    state_dicts.set_state_dict(
        model, optimizer, model_state_dict=weights, optim_state_dict=moments, options=OPTIONS
    )  # fmt: skip
    train(model, optimizer)
    assert me.step == 1


def test_the_step_by_which_torch_makes_state_changes_no_weight() -> None:
    model, optimizer = model_and_optimizer()
    before = [p.clone() for p in model.parameters()]
    state_dicts.get_optimizer_state_dict(model, optimizer)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


# State


def test_flattened_optimizer_state_is_named_by_parameter() -> None:
    model, optimizer = model_and_optimizer()
    _, moments = state_dicts.get_state_dict(model, optimizer, options=OPTIONS)
    assert {"state.weight.exp_avg", "state.weight.exp_avg_sq", "state.weight.step", "state.bias.exp_avg"} <= set(
        moments
    )
    assert "param_groups.weight.lr" in moments


def test_state_that_was_set_is_the_state_that_is_got() -> None:
    model, optimizer = model_and_optimizer()
    train(model, optimizer)
    weights, moments = state_dicts.get_state_dict(model, optimizer, options=OPTIONS)
    want = tree_digests({"model": weights, "optimizer": moments})
    other, fresh = model_and_optimizer()
    state_dicts.set_state_dict(
        other, fresh, model_state_dict=weights, optim_state_dict=moments, options=OPTIONS
    )  # fmt: skip
    weights, moments = state_dicts.get_state_dict(other, fresh, options=OPTIONS)
    assert tree_digests({"model": weights, "optimizer": moments}) == want


def test_a_schedule_keeps_its_state_in_plain_values() -> None:
    _, optimizer = model_and_optimizer()
    scheduler = LambdaLR(optimizer, lambda step: 0.5**step)
    for value in scheduler.state_dict().values():
        assert not isinstance(value, torch.Tensor)


def test_a_random_state_that_was_left_is_entered_again() -> None:
    kept = torch.get_rng_state()
    slots = SlotRandomness.seeded(0, range(2), torch.device("cpu"))
    slots.enter(0)
    first = torch.rand(3)
    slots.leave(0)
    slots.enter(1)
    assert not torch.equal(first, torch.rand(3))
    slots.enter(0)
    second = torch.rand(3)
    whole = torch.rand(6, generator=torch.Generator().manual_seed(1))
    torch.set_rng_state(kept)
    assert torch.equal(torch.cat([first, second]), whole)


def test_the_module_of_a_device_sets_and_gets_random_states() -> None:
    assert callable(torch.cuda.set_rng_state)
    assert callable(torch.cuda.get_rng_state)
    assert torch.get_device_module(torch.device("cuda")) is torch.cuda


# Shards


def test_a_sharded_parameter_tells_where_its_piece_begins(mesh: DeviceMesh) -> None:
    model = nn.Linear(3, 4)
    fully_shard(model, mesh=mesh)
    weight = model.weight
    assert isinstance(weight, DTensor)
    shape, offsets = compute_local_shape_and_global_offset(weight.shape, weight.device_mesh, weight.placements)
    assert (tuple(shape), tuple(offsets)) == ((2, 3), (2, 0))
    assert tuple(weight.to_local().shape) == (2, 3)
    assert "model.weight@2,0" in tree_digests({"model": {"weight": weight.detach()}})


def test_a_piece_has_the_same_digest_sharded_and_plain(mesh: DeviceMesh) -> None:
    model = nn.Linear(3, 4)
    fully_shard(model, mesh=mesh)
    found = tree_digests({"weight": model.weight})
    assert found == {"weight@2,0": tensor_digest("weight", (4, 3), (2, 0), model.weight.to_local())}


def test_gradients_of_a_sharded_model_can_wait_for_the_last_micro_batch(mesh: DeviceMesh) -> None:
    model = nn.Linear(3, 4)
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=None, reduce_dtype=None))
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(False)


# Checkpoints


def test_a_checkpoint_lies_in_one_file_a_rank_and_a_file_of_metadata(checkpoint: Path) -> None:
    assert sorted(path.name for path in checkpoint.iterdir()) == [METADATA, "__0_0.distcp"]


def test_the_metadata_of_a_checkpoint_ask_for_no_class_beyond_the_allowed(checkpoint: Path) -> None:
    assert set(read_metadata(checkpoint).state_dict_metadata) >= {"model.weight", "progress.step", "stamp.rank0"}


def test_the_metadata_of_a_sharded_checkpoint_ask_for_no_class_beyond_the_allowed(
    mesh: DeviceMesh, tmp_path: Path
) -> None:
    model = nn.Linear(3, 4)
    fully_shard(model, mesh=mesh)
    save({"model": model.state_dict()}, checkpoint_id=tmp_path / "sharded", no_dist=True)
    metadata = read_metadata(tmp_path / "sharded")
    assert [tuple(index.offset) for index in metadata.storage_data if index.fqn == "model.weight"] == [(2, 0)]


def test_metadata_that_ask_for_anything_else_are_refused(checkpoint: Path) -> None:
    (checkpoint / METADATA).write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(BadCheckpoint, match="which no torch checkpoint needs"):
        read_metadata(checkpoint)


def test_metadata_tell_tensors_from_plain_values(checkpoint: Path) -> None:
    described = read_metadata(checkpoint).state_dict_metadata
    assert isinstance(described["model.weight"], TensorStorageMetadata)
    assert tuple(described["model.weight"].size) == (2, 3)
    assert isinstance(described["progress.step"], BytesStorageMetadata)


def test_metadata_tell_file_offset_and_length_of_every_piece(checkpoint: Path) -> None:
    for index, info in read_metadata(checkpoint).storage_data.items():
        assert (checkpoint / info.relative_path).stat().st_size >= info.offset + info.length, index.fqn


def test_every_piece_can_be_read_by_itself_without_executing_anything(checkpoint: Path) -> None:
    found = {piece.place.key: piece for piece in pieces(checkpoint)}
    assert found["progress.step"].digest == value_digest("progress.step", 1)
    assert found["torch.bfloat16@0"].place.dtype is torch.bfloat16


def test_the_digests_of_stored_pieces_are_those_of_the_live_state(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    train(model, optimizer)
    weights, moments = state_dicts.get_state_dict(model, optimizer, options=OPTIONS)
    tree = {"model": weights, "optimizer": moments, "progress": {"step": 1}}
    save(tree, checkpoint_id=tmp_path / "c", no_dist=True)
    assert {piece.place.key: piece.digest for piece in pieces(tmp_path / "c")} == tree_digests(tree)


def test_a_reader_names_the_keys_of_a_checkpoint(checkpoint: Path) -> None:
    assert "stamp.rank0" in FileSystemReader(checkpoint).read_metadata().state_dict_metadata


def test_loading_puts_values_into_the_tree_that_was_handed_over(checkpoint: Path) -> None:
    step = torch.tensor([-1])
    tree: dict[str, Any] = {"progress": {"step": 0}, "stamp": {"rank0": step}}
    load(tree, checkpoint_id=checkpoint, no_dist=True)
    assert (tree["progress"]["step"], int(tree["stamp"]["rank0"])) == (1, 1)


def test_saving_and_loading_take_the_folder_by_the_name_that_the_trainer_uses() -> None:
    assert "checkpoint_id" in inspect.signature(save).parameters
    assert "checkpoint_id" in inspect.signature(load).parameters


def test_python_tells_of_every_file_that_a_load_opens(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    restore = session.Restore(str(checkpoint), EventWriter(folder, "n"))
    load({"stamp": {"rank0": torch.tensor([-1])}}, checkpoint_id=checkpoint, no_dist=True)
    restore.end(exact=False)
    begin, end = events(folder)
    assert (begin["kind"], begin["data"]) == ("restore.begin", {"checkpoint": "checkpoint"})
    assert (end["kind"], end["data"]) == ("restore.end", {"exact": False})
    assert end["mono_ns"] > begin["mono_ns"]


def test_the_word_of_the_program_ends_a_restore(checkpoint: Path, me: session.Session, tmp_path: Path) -> None:
    me._restore = session.Restore(str(checkpoint), me._writer)
    tree = {"stamp": {"rank0": torch.tensor([-1])}}
    load(tree, checkpoint_id=checkpoint, no_dist=True)
    observe.state("restored", tree)
    told = [(e["kind"], e["data"].get("exact")) for e in events(tmp_path / "run" / "events")]
    assert told == [("restore.begin", None), ("restore.end", True), ("state", None)]


def test_the_event_of_an_opened_file_carries_its_path_first(tmp_path: Path) -> None:
    import sys

    heard: list[Any] = []
    listening = True
    sys.addaudithook(lambda event, args: heard.append(args[0]) if listening and event == "open" else None)
    (tmp_path / "file").write_text("")
    os.close(os.open(tmp_path / "file", os.O_RDONLY))
    listening = False
    assert [os.fsdecode(name) for name in heard if isinstance(name, (str, os.PathLike))] == [str(tmp_path / "file")] * 2
