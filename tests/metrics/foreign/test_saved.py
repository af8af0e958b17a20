"""What torch.save and pickle wrote: equal training states are equal however they were saved; a difference is named."""

from __future__ import annotations

import argparse
import copy
import pickle
import random
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest
import torch


def state() -> dict[str, Any]:
    """The state of a small training in all that a script is likely to save."""
    generator = random.Random(1)
    moments = {"step": torch.tensor(3.0), "exp_avg": torch.arange(32.0).reshape(4, 8), "exp_avg_sq": torch.ones(4, 8)}
    weights = OrderedDict({"layer.0.weight": torch.arange(32.0).reshape(4, 8), "layer.0.bias": torch.zeros(4)})
    return {
        "model": weights,
        "tied": weights["layer.0.weight"],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "turned": torch.arange(6.0).reshape(2, 3).t(),
        "tail": torch.arange(10.0)[7:],
        "half": torch.ones(3, dtype=torch.bfloat16),
        "eighth": torch.ones(4).to(torch.float8_e4m3fn),
        "mask": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "nan": torch.tensor([float("nan"), 1.0]),
        "optimizer": {"state": {0: moments}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0]}]},
        "scheduler": {"last_epoch": 12, "_last_lr": [0.1]},
        "rng": torch.arange(40, dtype=torch.uint8),
        "python": generator.getstate(),
        "numpy": np.random.RandomState(1).get_state(),
        "score": np.float64(0.5),
        "kind": torch.float32,
        "device": torch.device("cpu"),
        "seen": {"c", "a", "b"},
        "counts": Counter({"a": 1}),
        "lists": defaultdict(list, {"a": [1]}),
        "arguments": argparse.Namespace(learning_rate=0.1, nested=argparse.Namespace(depth=3)),
        "nothing": None,
        "large": 1 << 80,
    }


def fortran(values):
    return np.asfortranarray(np.array(values))


def changed(path: str, value: Any) -> dict[str, Any]:
    """The state with one value replaced; ``path``: keys with slashes between."""
    made = copy.deepcopy(state())
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    at = made
    for parent in parents:
        at = at[parent]
    if value is DELETED:
        del at[last]
    else:
        at[last] = value
    return made


DELETED = object()


@pytest.fixture
def pair(mine, control):
    def save(ours, theirs, **options):
        torch.save(ours, mine / "checkpoint.pt", **options)
        torch.save(theirs, control / "checkpoint.pt")

    return save


def backwards(tree):
    """The same dicts in the other order of insertion."""
    return {key: backwards(tree[key]) for key in reversed(tree)} if type(tree) is dict else tree


def test_states_saved_alike_are_equal(pair, told):
    pair(state(), state())
    assert told() == []


def test_the_order_of_insertion_does_not_count(pair, told):
    pair(backwards(state()), state())
    assert told() == []


def test_the_legacy_format_is_equal_to_the_new_one(pair, told):
    pair(state(), state(), _use_new_zipfile_serialization=False)
    assert told() == []
    pair(changed("scheduler/last_epoch", 20), state(), _use_new_zipfile_serialization=False)
    assert told() == ["scheduler.last_epoch: 20, control 12"]


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_any_protocol_of_the_pickle_is_read(pair, told, protocol):
    pair(changed("rng", torch.zeros(40, dtype=torch.uint8)), state(), pickle_protocol=protocol)
    assert told() == ["rng (uint8 (40,)): 39 of 40 numbers differ"]


def test_the_name_that_a_file_was_saved_under_does_not_count(mine, control, told):
    torch.save(state(), mine / "another_name.tmp")
    (mine / "another_name.tmp").rename(mine / "checkpoint.pt")
    torch.save(state(), control / "checkpoint.pt")
    assert (mine / "checkpoint.pt").read_bytes() != (control / "checkpoint.pt").read_bytes()
    assert told() == []


def test_states_pickled_by_processes_of_their_own_are_equal(mine, control, told):
    script = (
        "import pickle, sys, numpy as np\n"
        "pad = [object() for _ in range(int(sys.argv[2]))]\n"
        "value = {'seen': {'a', 'b', 'c', 'dd', 'ee'}, 'rng': np.random.RandomState(1).get_state()}\n"
        "pickle.dump(value, open(sys.argv[1], 'wb'))\n"
    )
    for folder, seed in ((mine, "1"), (control, "2")):
        run = [sys.executable, "-c", script, str(folder / "x.pkl"), seed]
        subprocess.run(run, check=True, env={"PYTHONHASHSEED": seed})
    assert told() == []


ROOT = "optimizer/state/0/exp_avg"
STATE = random.Random(2).getstate()
TURNED = torch.arange(6.0).reshape(3, 2)

CHANGES: list[tuple[str, Any, str]] = [
    (ROOT, state()["optimizer"]["state"][0]["exp_avg"] + 0.0123, f"{ROOT} (float32 (4, 8)): 0.0123 apart"),
    (ROOT, torch.arange(32.0).reshape(4, 8).double(), f"{ROOT}: float64 (4, 8), control float32 (4, 8)"),
    (ROOT, torch.arange(32.0).reshape(8, 4), f"{ROOT}: float32 (8, 4), control float32 (4, 8)"),
    (ROOT, np.arange(32, dtype="float32").reshape(4, 8), f"{ROOT}: numpy float32 (4, 8), control float32 (4, 8)"),
    (ROOT, None, f"{ROOT}: None, control float32 (4, 8)"),
    (ROOT, DELETED, f"{ROOT}: only the control run holds it"),
    ("optimizer/state", {}, "optimizer.state.0: only the control run holds it"),
    ("optimizer/state/1", {}, "optimizer.state.1: only the run holds it"),
    ("optimizer/param_groups/0/lr", 0.2, "optimizer.param_groups.0.lr: 0.2, control 0.1"),
    (
        "optimizer/param_groups/0/betas",
        (0.9, 0.99),
        "optimizer.param_groups.0.betas: (0.9, 0.99), control (0.9, 0.999)",
    ),
    ("scheduler/last_epoch", 20, "scheduler.last_epoch: 20, control 12"),
    ("scheduler/last_epoch", 12.0, "scheduler.last_epoch: 12.0, control 12"),
    ("scheduler/last_epoch", True, "scheduler.last_epoch: True, control 12"),
    ("rng", torch.arange(1, 41, dtype=torch.uint8), "rng (uint8 (40,)): 40 of 40 numbers differ"),
    ("python", STATE, f"python.1: item 1 is {STATE[1][1]}, control {random.Random(1).getstate()[1][1]}"),
    ("numpy", np.random.RandomState(2).get_state(), "numpy.1 (numpy uint32 (624,)): 624 of 624 numbers differ"),
    ("score", np.float64(0.25), "score (numpy float64 ()): 0.25 apart"),
    ("half", torch.tensor([1.0, 2.0, 1.0]).bfloat16(), "half (bfloat16 (3,)): 1 apart"),
    ("eighth", torch.tensor([1.0, 1.0, 1.0, 2.0]).to(torch.float8_e4m3fn), "eighth (float8_e4m3fn (4,)): 1 apart"),
    ("turned", TURNED, "turned (float32 (3, 2)): 2 apart"),
    ("tail", torch.tensor([7.0, 8.0, -9.0]), "tail (float32 (3,)): 18 apart"),
    ("mask", torch.tensor([True, True]), "mask (bool (2,)): 1 of 2 numbers differ"),
    ("empty", torch.zeros(0, 4), "empty: float32 (0, 4), control float32 (0, 3)"),
    ("nan", torch.tensor([float("nan"), float("nan")]), "nan (float32 (2,)): 1 of 2 numbers differ"),
    ("parameter", torch.nn.Parameter(torch.zeros(2)), "parameter (float32 (2,)): 1 apart"),
    ("kind", torch.float64, "kind: torch.float64, control torch.float32"),
    ("device", torch.device("cuda", 0), "device.(0): 'cuda', control 'cpu'"),
    ("seen", {"c", "a", "b", "x"}, "seen.'x': only the run holds it"),
    ("counts", Counter({"a": 2}), "counts.(0).a: 2, control 1"),
    ("lists/a", [1, 2], "lists.a: [1, 2], control [1]"),
    ("nothing", 0, "nothing: 0, control None"),
    ("large", 1 << 81, f"large: {1 << 81}, control {1 << 80}"),
]


@pytest.mark.parametrize(("path", "value", "wanted"), CHANGES)
def test_one_difference_is_found_and_named(pair, told, path, value, wanted):
    pair(changed(path, value), state())
    assert told()[0] == wanted.replace("/", ".")
    assert len({line.partition(":")[0].split(".")[0].split(" ")[0] for line in told()}) == 1


def test_a_field_of_a_class_of_the_users_own_is_named(pair, told):
    ours = state()
    ours["arguments"].learning_rate = 0.2
    ours["arguments"].nested = argparse.Namespace(depth=4)
    pair(ours, state())
    assert told() == ["arguments.learning_rate: 0.2, control 0.1", "arguments.nested.depth: 4, control 3"]


def test_one_bit_of_one_tensor_is_found(pair, told):
    ours = state()
    bits = ours["model"]["layer.0.weight"].view(torch.int32)
    bits[2, 3] ^= 1
    pair(ours, state())
    assert told() == [f"{name} (float32 (4, 8)): 1.91e-06 apart" for name in ("model.layer.0.weight", "tied")]
    assert told(within=1e-5) == []
    assert len(told(within=1e-6)) == 2


def test_a_sign_of_zero_is_a_difference_unless_floats_may_be_apart(pair, told):
    pair(changed("tail", torch.tensor([-0.0, 1.0])), changed("tail", torch.tensor([0.0, 1.0])))
    assert told() == ["tail (float32 (2,)): 0 apart, by signs of zero or NaN"]
    assert told(within=1e-9) == []


def test_no_tolerance_makes_whole_numbers_and_random_states_equal(pair, told):
    pair(changed("scheduler/last_epoch", 13), changed("rng", torch.zeros(40, dtype=torch.uint8)))
    assert len(told(within=1e9)) == 2


def test_plain_floats_are_compared_within_the_tolerance(pair, told):
    pair(changed("optimizer/param_groups/0/betas", (0.9, 0.9990001)), state())
    assert len(told()) == 1
    assert told(within=1e-6) == []


def test_a_tensor_alone_bears_the_name_of_its_file(mine, control, told):
    torch.save(torch.zeros(2), mine / "x.pt")
    torch.save(torch.ones(2), control / "x.pt")
    assert told() == ["x.pt (float32 (2,)): 1 apart"]


def test_where_there_are_several_files_the_name_of_the_file_is_told(mine, control, told):
    for folder, epoch in ((mine, 12), (control, 20)):
        torch.save({"last_epoch": epoch}, folder / "scheduler.pt")
        torch.save({"w": torch.ones(1)}, folder / "model.pt")
    assert told() == ["scheduler.pt: last_epoch: 12, control 20"]


def test_a_file_that_only_one_side_holds_is_named(mine, control, told):
    torch.save({}, control / "model.pt")
    assert told() == ["model.pt: only the control run holds it"]
    (control / "model.pt").rename(control / "a.pt")
    torch.save({}, mine / "a.pt")
    (mine / "below").mkdir()
    (mine / "below" / "b.bin").write_bytes(b"1")
    assert told() == ["below/b.bin: only the run holds it"]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_tensors_and_arrays_in_a_plain_pickle_are_compared(mine, control, told, protocol):
    for folder, last in ((mine, 3.0), (control, 2.0)):
        held = {"w": torch.tensor([1.0, last]), "a": np.array([1, 2]), "b": fortran([[1, 2], [3, int(last)]])}
        (folder / "state.pkl").write_bytes(pickle.dumps(held, protocol=protocol))
    assert told() == ["w (float32 (2,)): 1 apart", "b (numpy int64 (2, 2)): 1 of 4 numbers differ"]
    assert pickle.loads((mine / "state.pkl").read_bytes())["w"][1] == 3.0


def test_equal_plain_pickles_of_tensors_are_equal(mine, control, told):
    kept = []
    for folder in (mine, control):
        held = torch.tensor([1.0, 2.0])
        kept.append(held)  # so that the other one lies elsewhere, which the pickle tells
        (folder / "state.pkl").write_bytes(pickle.dumps({"w": held, "v": [held]}))
    assert (mine / "state.pkl").read_bytes() != (control / "state.pkl").read_bytes()
    assert told() == []


def test_keys_of_dicts_may_be_anything(pair, told):
    pair({(1, "a"): 1, torch.float32: 2, frozenset({1}): 3}, {(1, "a"): 1, torch.float32: 2, frozenset({1}): 4})
    assert told() == ["[2].1: 3, control 4"]
