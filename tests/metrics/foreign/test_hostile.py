"""Files that are cut, empty, strange or made to harm: a difference or a refusal, never a crash, never an execution."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import random
import struct
import zipfile

import numpy as np
import pytest
import torch

from metrics.checkpoints import pickled, zips
from metrics.checkpoints.dcp import BadCheckpoint
from metrics.checkpoints.foreign import compared, differences
from metrics.checkpoints.pickled import Unreadable, read_pickle


@pytest.fixture
def saved(mine, control):
    """The same torch.save file on both sides; returns ours."""
    for folder in (mine, control):
        torch.save({"w": torch.arange(6.0), "step": 3}, folder / "x.pt")
    return mine / "x.pt"


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("how", ["torch.save", "legacy", "pickle"])
def test_nothing_is_executed(mine, control, tmp_path, how):
    trap = tmp_path / "trap"
    for folder, step in ((mine, 1), (control, 2)):
        held = {"step": step, "evil": Evil(trap)}
        if how == "pickle":
            (folder / "x.pkl").write_bytes(pickle.dumps(held))
        else:
            torch.save(held, folder / "x.pkl", _use_new_zipfile_serialization=how == "torch.save")
    found = compared(mine, control)
    assert [str(gap) for gap in found.gaps] == ["step: 1, control 2"]
    assert (found.as_bytes, trap.exists()) == ((), False)


@pytest.mark.parametrize("kept", [0, 1, 3, 20, 200, -1, -30, -200])
def test_a_file_of_ours_that_is_cut_is_a_difference_and_one_of_the_controls_is_refused(saved, mine, control, kept):
    text = saved.read_bytes()
    saved.write_bytes(text[:kept])
    (gap,) = differences(mine, control)
    assert gap.name == "x.pt"
    assert gap.why
    with pytest.raises(BadCheckpoint, match=r"x\.pt cannot be read: "):
        differences(control, mine)


@pytest.mark.parametrize("seed", range(12))
def test_any_damaged_byte_gives_a_difference_or_a_refusal(saved, mine, control, seed):
    chance = random.Random(seed)
    for use_zip in (True, False):
        torch.save({"w": torch.arange(6.0), "step": 3}, saved, _use_new_zipfile_serialization=use_zip)
        text = bytearray(saved.read_bytes())
        for place in chance.sample(range(len(text)), 8):
            damaged = text.copy()
            damaged[place] ^= 1 << chance.randrange(8)
            saved.write_bytes(damaged)
            for sides in ((mine, control), (control, mine)):
                with contextlib.suppress(BadCheckpoint):
                    differences(*sides)


def code(*parts):
    return b"\x80\x04" + b"".join(parts) + b"."


HOSTILE = {
    "a list that holds itself": code(b"]\x94", b"h\x00", b"a"),
    "lists of lists of lists": code(b"]" * 5000, b"a" * 4999),
    "shared lists": code(b"]\x94", *(b"]\x94h" + bytes([n]) + b"ah" + bytes([n]) + b"a" for n in range(60))),
    "a key that takes for ever": code(b"}", b")\x94", *(b"h%ch%c\x86\x94" % (n, n) for n in range(60)), b"K\x01s"),
    "memory that it has not": code(b"\x96" + struct.pack("<Q", 1 << 62)),
    "text that it has not": code(b"\x8d" + struct.pack("<Q", 1 << 62)),
    "a frame that it has not": code(b"\x95" + struct.pack("<Q", 1 << 62)),
    "a number without end": code(b"\x8b" + struct.pack("<i", 1 << 30)),
    "a number of thousands of digits": code(b"\x8b" + struct.pack("<i", 2000) + b"\x01" * 2000),
    "an extension": code(b"\x82\x01"),
    "a state for a number": code(b"K\x01}b"),
    "an item for a number": code(b"K\x01K\x02a"),
    "a call of a number": code(b"K\x01K\x02R"),
    "an empty stack": code(b"0" * 9),
    "no memo": code(b"h\x07"),
    "an unknown instruction": code(b"\xff"),
    "a persistent thing": code(b"K\x01Q"),
    "nothing": b"\x80\x04",
    "text that is none": code(b"\x8c\x02\xff\xfe"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_pickle_is_a_difference(mine, control, case):
    (mine / "x.pkl").write_bytes(HOSTILE[case])
    (control / "x.pkl").write_bytes(pickle.dumps(b"step"))
    (gap,) = differences(mine, control)
    assert gap.name == "x.pkl"
    (mine / "x.pkl").write_bytes(HOSTILE[case] + b"1")
    (control / "x.pkl").write_bytes(HOSTILE[case] + b"2")
    found = compared(mine, control)
    assert (len(found.gaps), len(found.as_bytes)) == (1, 1)


def test_two_deep_values_that_differ_at_the_bottom_are_told_as_bytes(mine, control):
    for folder, number in ((mine, b"K\x01"), (control, b"K\x02")):
        (folder / "x.pkl").write_bytes(code(b"]" * 500, number, b"a" * 500))
    found = compared(mine, control)
    assert [gap.name for gap in found.gaps] == ["x.pkl"]
    assert "nested more than 100 deep" in found.as_bytes[0]


def test_a_pickle_with_too_many_instructions_is_refused(monkeypatch):
    monkeypatch.setattr(pickled._Counting, "left", 10)
    assert read_pickle(io.BytesIO(code(b"]" * 8))) == []
    with pytest.raises(Unreadable, match="instructions"):
        read_pickle(io.BytesIO(code(b"]" * 9)))


def in_archive(file, text, numbers=b"\0" * 8):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x/data.pkl", text)
        archive.writestr("x/data/0", numbers)


def tensor(shape, stride, offset=0, count=2, key="0"):
    """The pickle of a tensor of single precision with that claim."""

    class Claim:
        def __reduce__(self):
            return torch._utils._rebuild_tensor_v2, (Claimed(), offset, shape, stride, False, {})

    class Claimed:
        pass

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return ("storage", torch.FloatStorage, key, "cpu", count) if isinstance(value, Claimed) else None

    text = io.BytesIO()
    Pickler(text, 2).dump({"w": Claim()})
    return text.getvalue()


CLAIMS = {
    "more numbers than there are": tensor((1 << 40,), (1,)),
    "endless repetition": tensor((1 << 30, 1 << 30), (0, 0)),
    "a beginning behind the end": tensor((1,), (1,), offset=99),
    "negative strides": tensor((2,), (-1,)),
    "strides that do not fit": tensor((2,), (1, 1)),
    "a shape of texts": tensor(("a",), (1,)),
    "a longer storage": tensor((2,), (1,), count=3),
    "no such storage": tensor((2,), (1,), key="../../x"),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_tensor_that_claims_what_is_not_there_is_a_difference(mine, control, claim):
    in_archive(mine / "x.pt", CLAIMS[claim])
    in_archive(control / "x.pt", tensor((2,), (1,)))
    found = compared(mine, control)
    (gap,) = found.gaps
    if claim in ("a longer storage", "no such storage"):
        assert (gap.name, "are not those that it describes" in gap.why) == ("x.pt", True)
    else:
        assert (gap.name, found.as_bytes[0][:6]) == ("data.pkl", "x.pt: ")


def test_packed_members_that_claim_too_much_are_not_unpacked(mine, control, monkeypatch):
    monkeypatch.setattr(zips, "LARGEST_UNPACKED", 1000)
    for folder, size in ((mine, 2000), (control, 3000)):
        np.savez_compressed(folder / "x.npz", np.zeros(size))
    (gap,) = differences(mine, control)
    assert (gap.name, gap.why[-6:]) == ("x.npz", " bytes")
    assert "claim to have more than 1000 bytes" in compared(mine, control).as_bytes[0]


def test_two_members_of_one_name_are_no_archive(mine, control):
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(mine / "x.npz", "w") as archive:
        archive.writestr("a.npy", b"1")
        archive.writestr("a.npy", b"2")
    np.savez(control / "x.npz", np.zeros(1))
    (gap,) = differences(mine, control)
    assert "two members called a.npy" in gap.why


def header(text, claimed=None):
    return struct.pack("<Q", len(text) if claimed is None else claimed) + text


def described(**changes):
    return json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}).encode()


HEADERS = {
    "beyond the file": header(b"{}", 1 << 60),
    "cut": b"\1\2\3",
    "no JSON": header(b"{"),
    "no table": header(b"[]"),
    "deep": header(b"[" * 100_000),
    "offsets beyond the file": header(described(data_offsets=[0, 1 << 40])) + bytes(8),
    "offsets turned round": header(described(data_offsets=[8, 0])) + bytes(8),
    "a shape of another size": header(described(shape=[3])) + bytes(8),
    "a huge shape": header(described(shape=[1 << 61, 8])) + bytes(8),
    "a shape of texts": header(described(shape=["a"])) + bytes(8),
    "a number": header(b'{"w": 1}'),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_of_safetensors_that_claims_what_is_not_there_is_told(mine, control, case):
    (mine / "m.safetensors").write_bytes(HEADERS[case])
    (control / "m.safetensors").write_bytes(header(described()) + bytes(8))
    (gap,) = differences(mine, control)
    assert (gap.name, gap.why[:16]) == ("m.safetensors", "cannot be read: ")
    with pytest.raises(BadCheckpoint, match=r"m\.safetensors cannot be read: "):
        differences(control, mine)


def test_a_type_that_is_not_known_is_told_as_bytes(mine, control):
    for folder, last in ((mine, 1), (control, 2)):
        (folder / "m.safetensors").write_bytes(header(described(dtype="X9")) + bytes([0] * 7 + [last]))
    found = compared(mine, control)
    assert len(found.gaps) == 1
    assert found.as_bytes == ("m.safetensors: its tensor w is of the unknown type X9",)


NPY = {
    "a header that would be executed": b"\x93NUMPY\x01\x00\x20\x00" + b"__import__('os').mkdir('x')".ljust(32),
    "a header that is not there": b"\x93NUMPY\x01\x00\xff\xff{",
    "an unknown version": b"\x93NUMPY\x09\x00" + bytes(20),
}


@pytest.mark.parametrize("case", NPY)
def test_a_strange_array_of_numpy_is_told(mine, control, case):
    (mine / "x.npy").write_bytes(NPY[case])
    np.save(control / "x.npy", np.zeros(2))
    (gap,) = differences(mine, control)
    assert gap.name == "x.npy"
    assert "no array of numpy's" in gap.why


def test_an_array_of_objects_is_not_unpickled(mine, control, tmp_path):
    for folder, number in ((mine, 1), (control, 2)):
        np.save(folder / "x.npy", np.array([Evil(tmp_path / "trap"), number], dtype=object), allow_pickle=True)
    found = compared(mine, control)
    assert len(found.gaps) == 1
    assert "only executing a pickle" in found.as_bytes[0]
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize("text", [b"{", b"[" * 100_000, b"\xff\xfe", b"1" * 10_000, b""])
def test_json_that_is_none_is_told(mine, control, text):
    (mine / "x.json").write_bytes(text)
    (control / "x.json").write_text("{}")
    (gap,) = differences(mine, control)
    assert gap.name == "x.json"
    assert "it is no JSON" in gap.why


def linked(folder, target):
    (folder / "x.pt").unlink()
    (folder / "x.pt").symlink_to(target)


@pytest.mark.parametrize("target", ["/etc/passwd", "../control/x.pt", "missing", "x.pt", "/proc/self/mem"])
def test_a_link_that_leads_out_or_nowhere_is_a_difference_or_refused(saved, mine, control, target):
    linked(mine, target)
    (gap,) = differences(mine, control)
    assert gap.name == "x.pt"
    assert "leads out of the checkpoint" in gap.why or "cannot be read" in gap.why
    with pytest.raises(BadCheckpoint, match=r"x\.pt"):
        differences(control, mine)


def test_a_link_within_the_checkpoint_is_followed(saved, mine, control, told):
    saved.rename(mine / "y.pt")
    saved.symlink_to("y.pt")
    (control / "y.pt").write_bytes((control / "x.pt").read_bytes())
    assert told() == []


def test_a_pipe_and_a_link_to_a_folder_are_no_files(saved, mine, control):
    saved.unlink()
    os.mkfifo(saved)
    assert "no regular file" in differences(mine, control)[0].why
    saved.unlink()
    saved.symlink_to(control.parent, target_is_directory=True)
    assert "leads out of the checkpoint" in differences(mine, control)[0].why


def test_an_empty_control_is_refused(mine, control):
    (mine / "x").write_bytes(b"")
    with pytest.raises(BadCheckpoint, match="control holds no file, so there is nothing to compare"):
        differences(mine, control)


def test_names_cannot_command_a_terminal(mine, control, told):
    torch.save({"a\x1b[31m": 1}, mine / "x.pt")
    torch.save({"a\x1b[31m": 2}, control / "x.pt")
    (mine / "b\x1b[2J\udcff").write_bytes(b"")
    assert told() == ["x.pt: a\\x1b[31m: 1, control 2", "b\\x1b[2J\\udcff: only the run holds it"]


def test_a_form_that_is_not_the_controls_is_told(mine, control, told):
    torch.save({}, mine / "x.bin")
    with (control / "x.bin").open("wb") as file:
        np.save(file, np.zeros(1))
    assert told() == ["x.bin: torch.save, control numpy"]
