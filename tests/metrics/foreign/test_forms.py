"""Files of every other form: safetensors, numpy, JSON, DCP, anything; and what a checkpoint is made of, in words."""

from __future__ import annotations

import argparse
import json
import shutil
import struct

import numpy as np
import pytest
import torch

from metrics.checkpoints import sharded
from metrics.checkpoints.dcp import METADATA
from metrics.checkpoints.foreign import compared, kinds
from tests.shards import save_values, whole


def safetensors(file, tensors, metadata=None, order=None):
    """A file of safetensors, as its format says; the order of tensors is free."""
    header, body = ({"__metadata__": metadata} if metadata else {}), b""
    for name in order or tensors:
        kind, shape, numbers = tensors[name]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(numbers)]}
        body += numbers
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return file


def floats(*values):
    return np.array(values, "float32").tobytes()


TENSORS = {"a.weight": ("F32", [2], floats(1, 2)), "b": ("BF16", [1], b"\x80\x3f"), "c": ("I64", [], b"\1" + bytes(7))}


def test_equal_safetensors_are_equal_in_any_order(mine, control, told):
    safetensors(mine / "model.safetensors", TENSORS, {"format": "pt"}, order=["c", "b", "a.weight"])
    safetensors(control / "model.safetensors", TENSORS, {"format": "pt"})
    assert told() == []


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"a.weight": ("F32", [2], floats(1, 2.5))}, "a.weight (float32 (2,)): 0.5 apart"),
        ({"a.weight": ("F16", [4], floats(1, 2))}, "a.weight: float16 (4,), control float32 (2,)"),
        ({"b": ("BF16", [1], b"\x00\x40")}, "b (bfloat16 (1,)): 1 apart"),
        ({"c": ("I64", [], bytes(8))}, "c (int64 ()): 1 of 1 numbers differ"),
        ({"d": ("U8", [0], b"")}, "d: only the run holds it"),
    ],
)
def test_a_difference_of_safetensors_is_named(mine, control, told, change, wanted):
    safetensors(mine / "model.safetensors", TENSORS | change)
    safetensors(control / "model.safetensors", TENSORS)
    assert told() == [wanted]


def test_metadata_of_safetensors_count(mine, control, told):
    safetensors(mine / "m.safetensors", TENSORS, {"step": "3"})
    safetensors(control / "m.safetensors", TENSORS, {"step": "4"})
    assert told() == ["__metadata__.step: '3', control '4'"]


ARRAYS = [(np.save, "a.npy", "C"), (np.save, "a.npy", "F"), (np.savez, "a.npz", "C"), (np.savez, "a.npz", "F"),
          (np.savez_compressed, "a.npz", "C")]  # fmt: skip


@pytest.mark.parametrize(("save", "file", "order"), ARRAYS)
def test_arrays_of_numpy_are_compared(mine, control, told, save, file, order):
    one = np.asarray(np.arange(6.0).reshape(2, 3), order=order)
    other = np.arange(6.0).reshape(2, 3)
    save(control / file, other)
    save(mine / file, one)
    assert told() == []
    save(mine / file, one + np.eye(2, 3) / 4)
    assert told() == [f"{'arr_0' if file == 'a.npz' else file} (numpy float64 (2, 3)): 0.25 apart"]
    save(mine / file, one.astype("float32"))
    assert told()[0].endswith(": numpy float32 (2, 3), control numpy float64 (2, 3)")


def test_a_packed_array_in_another_order_is_told_as_bytes(mine, control):
    np.savez_compressed(mine / "a.npz", np.asfortranarray(np.eye(2, 3)))
    np.savez_compressed(control / "a.npz", np.eye(2, 3))
    found = compared(mine, control)
    assert [gap.name for gap in found.gaps] == ["arr_0.npy"]
    assert "first dimension runs fastest" in found.as_bytes[0]


TRAINER_STATE = {
    "epoch": 1.0, "global_step": 4, "best_metric": 0.5, "best_model_checkpoint": "out/checkpoint-4", "num_timesteps": 7,
    "log_history": [{"loss": 0.5, "step": 1}, {"train_runtime": 1.5, "train_samples_per_second": 7.0, "step": 4}],
}  # fmt: skip


def write(folder, change, file="trainer_state.json", **options):
    (folder / file).write_text(json.dumps({**TRAINER_STATE, **change}, **options))


def test_equal_json_is_equal_however_it_is_laid_out(mine, control, told):
    write(mine, {}, indent=2, sort_keys=True)
    write(control, {"nan": float("nan")})
    write(mine, {"nan": float("nan")}, indent=2, sort_keys=True)
    assert told() == []


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"global_step": 5}, "global_step: 5, control 4"),
        ({"num_timesteps": 8}, "num_timesteps: 8, control 7"),
        ({"best_metric": 0.25}, "best_metric: 0.25, control 0.5"),
        ({"best_model_checkpoint": "out/checkpoint-2"}, "best_model_checkpoint: "),
        ({"log_history": [{"loss": 0.25, "step": 1}, TRAINER_STATE["log_history"][1]]}, "log_history.0.loss: 0.25, c"),
        ({"log_history": TRAINER_STATE["log_history"][:1]}, "log_history.1: only the control run holds it"),
    ],
)
def test_a_difference_of_json_is_named(mine, control, told, change, wanted):
    write(mine, change)
    write(control, {})
    assert [line[: len(wanted)] for line in told()] == [wanted]


OTHER_LOG = [{"loss": 0.5, "step": 1}, {"train_runtime": 2.5, "train_samples_per_second": 5.0, "step": 4}]


def test_times_speeds_and_places_are_passed_over_and_told(mine, control):
    place = "/elsewhere/out/checkpoint-4"
    write(mine, {"log_history": OTHER_LOG, "best_model_checkpoint": place})
    write(control, {})
    found = compared(mine, control)
    assert found.gaps == ()
    assert set(found.passed) == {
        "best_model_checkpoint", "log_history.1.train_runtime", "log_history.1.train_samples_per_second"
    }  # fmt: skip


OF_TIME = ["time", "step_time", "train_runtime", "eval/step_time", "tokens_per_sec", "eval_samples_per_second",
           "timestamp", "_timestamp", "date", "hostname", "pid", "node_ip", "time_this_iter_s", "time_total_s",
           "output_dir", "logging_dir", "run_name", "elapsed", "wall-time"]  # fmt: skip
OF_STATE = ["timesteps", "num_timesteps", "time_embed_dim", "total_flos", "runtimes_seen", "lifetime", "update",
            "max_steps", "seconds", "steps_per_epoch", "sentiment", "estimated", "last_epoch", "timeout"]  # fmt: skip


@pytest.mark.parametrize("name", [*OF_TIME, *OF_STATE])
def test_only_names_of_times_speeds_and_places_are_passed_over(mine, control, told, name):
    write(mine, {name: 1})
    write(control, {name: 2})
    assert told() == ([] if name in OF_TIME else [f"{name}: 1, control 2"])


def test_a_name_of_time_that_is_missing_is_no_matter_of_time(mine, control, told):
    write(mine, {})
    write(control, {"train_runtime": 1.0})
    assert told() == ["train_runtime: only the control run holds it"]


def test_a_tensor_is_never_passed_over_whatever_its_name(mine, control, told):
    torch.save({"time": torch.zeros(1)}, mine / "x.pt")
    torch.save({"time": torch.ones(1)}, control / "x.pt")
    assert told() == ["time (float32 (1,)): 1 apart"]


def test_json_lines_are_compared_line_by_line(mine, control, told):
    (mine / "log.jsonl").write_text('{"loss": 1, "time": 3}\n{"loss": 2}\n')
    (control / "log.jsonl").write_text('{"loss": 1, "time": 4}\n{"loss": 3}\n')
    assert told() == ["1.loss: 2, control 3"]


def test_logs_of_tensorboard_are_passed_over(mine, control, told):
    write(mine, {})
    write(control, {})
    (mine / "events.out.tfevents.1700000000.host.1.0").write_bytes(b"x")
    assert told() == []


def test_any_other_file_is_compared_by_its_bytes(mine, control, told):
    for name in ("vocabulary.txt", "a/b.bin"):
        for folder in (mine, control):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(b"0123456789")
    assert told() == []
    (mine / "a/b.bin").write_bytes(b"01234X6789")
    assert told() == ["a/b.bin (10 bytes): differs from byte 5 on"]
    (mine / "a/b.bin").write_bytes(b"01234")
    assert told() == ["a/b.bin: 5 bytes, control 10 bytes"]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_checkpoint_of_dcp_is_equal_whatever_the_world_that_saved_it(mine, control, told, world):
    save_values(mine, whole(8), world)
    save_values(control, whole(8), 2)
    assert told() == []


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("model.weight", whole(8)["model.weight"] + 1e-6, " (float64 (7, 2)): 1e-06 apart"),
        ("model.weight", whole(8)["model.weight"].float(), ": float32 (7, 2), control float64 (7, 2)"),
        ("random.slot4", torch.tensor([8, 5], dtype=torch.uint8), " (uint8 (2,)): 1 of 2 numbers differ"),
        ("scheduler.last", [0.008, 0.75], ": [0.008, 0.75], control [0.008, 0.5]"),
        ("progress.step", 9, ": 9, control 8"),
        ("extra", 1, ": only the run holds it"),
    ],
)
def test_a_difference_of_dcp_is_named(mine, control, told, world, name, value, wanted):
    save_values(mine, {**whole(8), name: value}, world)
    save_values(control, whole(8), 2)
    assert told() == [f"{name}{wanted}"]


def test_a_tensor_of_dcp_that_is_not_cut_into_rows_is_put_together(mine, control, told, monkeypatch):
    monkeypatch.setattr(sharded, "_rows", lambda folder, pieces: None)
    save_values(mine, whole(8), 3)
    save_values(control, whole(8), 2)
    assert told() == []
    save_values(control.parent / "other", {**whole(8), "model.weight": whole(8)["model.weight"] + 0.5}, 1)
    found = compared(control.parent / "other", control)
    assert [str(gap) for gap in found.gaps] == ["model.weight (float64 (7, 2)): 0.5 apart"]


def test_a_value_of_a_class_in_dcp_is_compared_by_its_fields(mine, control, told):
    for folder, rate in ((mine, 0.1), (control, 0.2)):
        save_values(folder, {**whole(8), "arguments": argparse.Namespace(rate=rate)}, 2)
    assert told() == ["arguments.rate: 0.1, control 0.2"]


def test_files_beside_dcp_are_compared_too(mine, control, told):
    for folder, step in ((mine, 1), (control, 2)):
        save_values(folder / "fsdp", whole(8), 2)
        (folder / ".metadata.json").write_text(json.dumps({"step": step}))
    assert told() == [".metadata.json: step: 1, control 2"]
    shutil.rmtree(mine / "fsdp")
    save_values(mine / "fsdp", {**whole(8), "progress.step": 9}, 2)
    assert told() == ["fsdp: progress.step: 9, control 8", ".metadata.json: step: 1, control 2"]


def test_a_shard_that_is_missing_or_metadata_that_are_cut_are_told(mine, control, told):
    save_values(mine, whole(8), 2)
    save_values(control, whole(8), 2)
    (mine / "__1_0.distcp").unlink()
    assert any(line.startswith("model.weight: ") and "its file is missing" in line for line in told())
    (mine / METADATA).write_bytes((mine / METADATA).read_bytes()[:20])
    assert len(told()) == 1
    assert told()[0].startswith(".metadata: ")


def test_two_files_can_be_compared(tmp_path):
    torch.save({"a": 1}, tmp_path / "one.pt")
    torch.save({"a": 2}, tmp_path / "two.pt")
    assert [str(gap) for gap in compared(tmp_path / "one.pt", tmp_path / "two.pt").gaps] == ["a: 1, control 2"]


def test_what_a_checkpoint_is_made_of(mine, control):
    assert kinds(mine) == "nothing"
    torch.save({}, mine / "a.pt")
    assert kinds(mine) == "torch.save, 1 file"
    torch.save({}, mine / "b.bin", _use_new_zipfile_serialization=False)
    write(mine, {})
    assert kinds(mine) == "torch.save, 2 files, 1 other"
    for number in range(3):
        safetensors(mine / f"{number}.safetensors", TENSORS)
    np.savez(mine / "x.npz", np.ones(1))
    (mine / "notes.txt").write_text("x")
    assert kinds(mine) == "torch.save, 2 files; safetensors, 3 files; numpy, 1 file, 2 others"
    save_values(control, whole(8), 2)
    assert kinds(control) == "DCP, 2 shards"
