"""Sound checkpoints that torch wrote, and where recorded digests come from."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch

from chaos.digest import tree_digests
from metrics.checkpoints.verify import Digests, Recorded, recorded_by_run, recorded_in, verify
from metrics.verdict import Verdict
from tests.histories import healthy
from tests.metrics.test_dcp import saved
from tests.metrics.verify.findings import parts_of, verdicts
from tests.shards import save_values, whole
from tests.stories import EXPERIMENT, checkpoint_name


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_a_sound_checkpoint_passes_and_what_nobody_recorded_is_not_judged(tmp_path: Path, world: int) -> None:
    found = verify(save_values(tmp_path / "c", whole(8), world))
    rest = dict.fromkeys(("metadata", "layout", "content", "loadable"), Verdict.PASS)
    assert verdicts(found) == {**rest, "digests": Verdict.NOT_APPLICABLE}
    assert found.verdict is Verdict.PASS
    assert found.size == sum(file.stat().st_size for file in (tmp_path / "c").glob("*.distcp"))


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_digests_are_those_that_ranks_take_at_the_save(tmp_path: Path, world: int) -> None:
    folder = save_values(tmp_path / "c", whole(8), world)
    assert verify(folder, digests=True).digests == parts_of(8, world)
    assert verdicts(verify(folder, Recorded(parts_of(8, world), "test")))["digests"] is Verdict.PASS


UNUSUAL = {
    "transposed": torch.arange(24.0).reshape(4, 6).t(),
    "channels last": torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded": torch.ones(1).expand(5),
    "sliced": torch.arange(12).reshape(3, 4)[:, 1:3],
    "scalar": torch.tensor(1.5),
    "empty": torch.zeros(0, 3),
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "float8": torch.ones(4).to(torch.float8_e4m3fn),
    "unsigned": torch.ones(4, dtype=torch.uint16),
    "complex": torch.ones(2, dtype=torch.complex64),
    "bool": torch.tensor([True, False]),
    "large": torch.arange(700_000.0).reshape(700, 1000).t(),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_every_kind_of_tensor_is_described_and_digested_as_it_is(tmp_path: Path, name: str) -> None:
    found = verify(saved({"value": UNUSUAL[name]}, tmp_path / "c"), digests=True)
    assert found.verdict is Verdict.PASS
    assert found.digests == tree_digests({"value": UNUSUAL[name]})


def test_a_run_recorded_the_digests_of_its_checkpoints(tmp_path: Path) -> None:
    run = healthy().write(tmp_path / "run")
    folder = run / "storage" / EXPERIMENT / checkpoint_name(12)
    found = recorded_by_run(folder)
    assert found is not None
    assert found.source == "run run"
    assert verify(folder, found).verdict is Verdict.PASS
    assert recorded_by_run(folder.parent / checkpoint_name(99)) is None
    assert recorded_by_run(tmp_path) is None


def test_a_run_whose_program_told_nothing_recorded_none(tmp_path: Path) -> None:
    run = healthy().drop("state").write(tmp_path / "run")
    assert recorded_by_run(run / "storage" / EXPERIMENT / checkpoint_name(12)) is None


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'{"checkpoint": 1, "pieces": {}}'])
def test_a_file_that_holds_no_digests_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "file").write_bytes(text)
    with pytest.raises(ValueError, match="holds no digests as --record writes them"):
        recorded_in(tmp_path / "file")


def test_a_file_of_digests_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(msgspec.json.encode(Digests(checkpoint="c", pieces={"a": "b"})))
    assert recorded_in(tmp_path / "file") == Recorded({"a": "b"}, str(tmp_path / "file"))
