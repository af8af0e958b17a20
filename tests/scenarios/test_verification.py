"""The command ``aftershock verify``: what it accepts, what it prints, how it ends."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import torch

from chaos.exits import ExitCode
from metrics.checkpoints.scan import pieces
from tests.histories import healthy
from tests.metrics.test_dcp import saved
from tests.scenarios.test_cli import is_one_line
from tests.shards import save_values, whole
from tests.stories import EXPERIMENT, checkpoint_name

SHARD = "__1_0.distcp"


@pytest.fixture
def checkpoint(place):
    return save_values(place / "checkpoint", whole(8), 2)


def flip(file, position):
    text = bytearray(file.read_bytes())
    text[position] ^= 1
    file.write_bytes(text)


def test_a_sound_checkpoint_passes_with_its_size(command, checkpoint):
    result = command("verify", "checkpoint")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "verdict  pass: 16 pieces, 0.0 MB in " in result.stdout
    assert "not-applicable" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_without_recorded_digests_a_strict_verdict_is_unknown(command, checkpoint):
    assert command("verify", "checkpoint", "--strict").exit_code == 2


def test_digests_are_recorded_and_tell_a_stale_shard(command, checkpoint, place):
    result = command("verify", "checkpoint", "--record", "digests.json")
    assert (result.exit_code, "digests  digests.json: compare with --against" in result.stdout) == (0, True)
    assert command("verify", "checkpoint", "--against", "digests.json", "--strict").exit_code == 0
    older = save_values(place / "older", whole(4), 2)
    shutil.copy(older / SHARD, checkpoint / SHARD)
    assert command("verify", "checkpoint").exit_code == 0
    result = command("verify", "checkpoint", "--against", "digests.json")
    assert result.exit_code == 1
    assert "model.weight@4,0 in __1_0.distcp is not what was recorded" in " ".join(result.stdout.split())


def test_nothing_is_recorded_of_a_checkpoint_that_is_not_sound(command, checkpoint, place):
    os.truncate(checkpoint / SHARD, 100)
    result = command("verify", "checkpoint", "--record", "digests.json")
    assert (result.exit_code, (place / "digests.json").exists()) == (1, False)
    assert "not recorded, since the checkpoint is not sound" in result.stdout


def test_a_checkpoint_of_a_run_is_compared_with_what_the_run_recorded(command, place):
    run = healthy().write(place / "run")
    folder = run / "storage" / EXPERIMENT / checkpoint_name(12)
    result = command("verify", str(folder), "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["exit_code"], told["verdict"]) == (0, 0, "pass")
    assert {finding["check"]: finding["verdict"] for finding in told["findings"]}["digests"] == "pass"
    weight = next(piece for piece in pieces(folder) if piece.place.name == "model.weight")
    flip(folder / weight.place.file, weight.layout.begin)
    told = json.loads(command("verify", str(folder), "--json").stdout)
    (bad,) = [finding for finding in told["findings"] if finding["verdict"] == "fail"]
    assert (told["exit_code"], bad["check"]) == (1, "digests")
    assert bad["seen"] == f"{weight.place.key} in {weight.place.file} is not what was recorded"
    assert told["schema"] == 1
    assert told["bytes"] > 0


MISTAKES = {
    "no such directory": ("verify nosuch", "nosuch is no directory; name the directory of a checkpoint"),
    "a file": ("verify file", "file is no directory"),
    "no checkpoint": ("verify empty", "empty holds no .metadata and no shards: it is no DCP checkpoint"),
    "the directory above": ("verify .", "there is one in checkpoint"),
    "no digests": ("verify checkpoint --against nosuch.json", "--against nosuch.json: "),
    "foreign digests": ("verify checkpoint --against file", "file holds no digests as --record writes them"),
    "a pipe to record in": ("verify checkpoint --record pipe", "--record pipe: it is there already, and no file"),
    "nowhere to record": ("verify checkpoint --record nosuch/file", "nosuch is no directory"),
    "no world": ("verify checkpoint --world-sizes 0", "0 is not in the range x>=1"),
    "nothing": ("verify", "Missing argument 'CHECKPOINT'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_64(command, checkpoint, place, mistake):
    (place / "file").write_text("{}")
    (place / "empty").mkdir()
    os.mkfifo(place / "pipe")
    arguments, message = MISTAKES[mistake]
    is_one_line(command(*arguments.split()), ExitCode.USAGE, message)


def test_shards_without_metadata_are_a_checkpoint_that_fails(command, checkpoint):
    (checkpoint / ".metadata").unlink()
    result = command("verify", "checkpoint")
    assert result.exit_code == 1
    assert "the save never finished" in " ".join(result.stdout.split())


def test_a_record_that_cannot_be_written_is_one_line_and_64(command, place):
    saved({"w": torch.ones(3)}, place / "c")
    (place / "taken").mkdir()
    result = command("verify", "c", "--record", "taken")
    assert (result.exit_code, result.stderr.count("\n")) == (64, 1)
    assert "--record taken: it is there already, and no file" in result.stderr
    assert {file.name for file in place.iterdir()} == {"c", "taken"}


def test_digests_are_recorded_where_there_are_no_checksums(command, place):
    torch.serialization.set_crc32_options(False)
    try:
        saved({"w": torch.ones(3)}, place / "c")
    finally:
        torch.serialization.set_crc32_options(True)
    assert command("verify", "c", "--record", "file").exit_code == 2
    assert command("verify", "c", "--against", "file").exit_code == 0
    text = json.loads((place / "file").read_text())
    (place / "file").write_text(json.dumps({**text, "schema": 99}))
    assert "its schema is 99" in command("verify", "c", "--against", "file").stderr
