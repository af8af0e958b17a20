"""The command ``aftershock diff``: what it accepts, what it prints, how it ends."""

from __future__ import annotations

import json

import pytest
import torch

from chaos.exits import ExitCode
from tests.scenarios.test_cli import is_one_line


def save(folder, name="checkpoint.pt", **changes):
    """A checkpoint of a small training state; returns its folder."""
    folder.mkdir(exist_ok=True)
    torch.save({"model": {"w": torch.ones(4, 8)}, "scheduler": {"last_epoch": 20}, **changes}, folder / name)
    return folder


@pytest.fixture
def pair(place):
    save(place / "a", scheduler={"last_epoch": 12}, model={"w": torch.ones(4, 8) + 0.0123})
    save(place / "b")


def test_equal_checkpoints_exit_with_0(command, place):
    for name in "ab":
        save(place / name)
    result = command("diff", "a", "b")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "A  a: torch.save, 1 file", "B  b: torch.save, 1 file", "equal: 1 file, 0.0 MB"
    ]  # fmt: skip


def test_differences_are_a_table_and_exit_with_1(command, pair):
    result = command("diff", "a", "b")
    assert result.exit_code == 1
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[2:] == [
        "value difference", "model.w float32 (4, 8): 0.0123 apart", "scheduler.last_epoch 12, B 20",
        "2 differ: 1 file, 0.0 MB",
    ]  # fmt: skip


def test_a_tolerance_is_for_floats(command, pair):
    result = command("diff", "a", "b", "--within", "0.1")
    assert result.exit_code == 1
    assert "1 differs: " in result.stdout
    assert "model.w" not in result.stdout


def test_json_holds_every_difference(command, pair):
    result = command("diff", "a", "b", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["exit_code"], told["schema"]) == (1, 1, 1)
    assert told["made_of"] == {"A": "torch.save, 1 file", "B": "torch.save, 1 file"}
    assert [(one["name"], one["kind"], one["why"]) for one in told["differences"]] == [
        ("model.w", "float32 (4, 8)", "0.0123 apart"), ("scheduler.last_epoch", "", "12, B 20")
    ]  # fmt: skip
    assert [one["apart"] for one in told["differences"]] == [pytest.approx(0.0123, rel=1e-3), None]


def test_the_table_shows_the_first_20_and_the_width_is_kept(command, place):
    for name in "ab":
        save(place / name, many={f"{'layer.' * 12}{number}": name * 70 for number in range(30)})
        (place / name / "log.txt").write_text(name)
        (place / name / "trainer_state.json").write_text(json.dumps({"train_runtime": ord(name)}))
    lines = command("diff", "a", "b").stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert "31 differ, the first 20 are shown (all: --json): 3 files, 0.0 MB" in lines
    assert "passed over, for they tell of time or place: trainer_state.json: train_runtime" in lines


def test_what_only_one_side_holds_is_told_by_its_letter(command, pair, place):
    (place / "b" / "model.pt").write_bytes(b"")
    assert "only B holds it" in command("diff", "a", "b").stdout


def test_what_cannot_be_compared_exits_with_2(command, pair, place):
    (place / "b" / "checkpoint.pt").write_bytes(b"PK\3\4")
    result = command("diff", "a", "b")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("aftershock: not comparable: ")
    told = json.loads(command("diff", "a", "b", "--json").stdout)
    assert (told["exit_code"], "checkpoint.pt cannot be read" in told["reason"]) == (2, True)
    (place / "c").mkdir()
    assert command("diff", "a", "c").exit_code == 2


def test_two_files_are_compared(command, pair):
    assert command("diff", "a/checkpoint.pt", "b/checkpoint.pt").exit_code == 1


MISTAKES = {
    "nothing": ("diff", "Missing argument 'CHECKPOINT_A'"),
    "one": ("diff a", "Missing argument 'CHECKPOINT_B'"),
    "no such": ("diff a nosuch", "nosuch is not there; name the folder of a checkpoint, or a file of one"),
    "a file and a folder": ("diff a/checkpoint.pt b", "b is a folder and a/checkpoint.pt is none"),
    "negative": ("diff a b --within -1", "--within -1: name a distance of 0 or more"),
    "no number": ("diff a b --within nan", "--within nan: name a distance of 0 or more"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_64(command, pair, mistake):
    arguments, message = MISTAKES[mistake]
    is_one_line(command(*arguments.split()), ExitCode.USAGE, message)
