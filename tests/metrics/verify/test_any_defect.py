"""Checkpoints with any defect: what passes has its values."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metrics.checkpoints.dcp import METADATA, Stored
from metrics.checkpoints.layout import Box, _overlapping, _share
from metrics.checkpoints.verify import Recorded, verify
from metrics.verdict import Verdict
from tests.metrics.verify.findings import RANKS, RECORD
from tests.shards import whole

FUZZ = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PLACES = st.lists(st.tuples(st.integers(min_value=0), st.integers(1, 255)), min_size=1, max_size=3)


def spoil(file: Path, original: Path, places: list[tuple[int, int]]) -> None:
    text = bytearray(original.read_bytes())
    for position, bits in places:
        text[position % len(text)] ^= bits
    file.write_bytes(text)


def same_values(folder: Path) -> bool:
    stored = Stored(folder)
    return all(
        torch.equal(stored.value(name), value) if isinstance(value, torch.Tensor) else stored.value(name) == value
        for name, value in whole(8).items()
    )


@FUZZ
@given(places=PLACES, shard=st.sampled_from(RANKS), record=st.sampled_from([None, RECORD]))
def test_what_passes_has_its_values(
    original: Path, checkpoint: Path, places: list[tuple[int, int]], shard: str, record: Recorded | None
) -> None:
    for rank in RANKS:
        shutil.copy(original / rank, checkpoint / rank)
    spoil(checkpoint / shard, original / shard, places)
    found = verify(checkpoint, record)
    assert found.verdict is not Verdict.PASS or same_values(checkpoint)


@FUZZ
@given(places=PLACES)
def test_metadata_of_any_kind_get_a_verdict_and_only_sound_ones_pass(
    original: Path, checkpoint: Path, places: list[tuple[int, int]]
) -> None:
    spoil(checkpoint / METADATA, original / METADATA, places)
    found = verify(checkpoint, RECORD)
    assert found.verdict is not Verdict.PASS or same_values(checkpoint)


BOXES = st.lists(st.tuples(st.tuples(*[st.integers(0, 4)] * 2), st.tuples(*[st.integers(1, 3)] * 2)), max_size=6)


@given(boxes=BOXES)
def test_overlap_is_found_as_by_comparing_all(boxes: list[Box]) -> None:
    expected = any(_share(one, other) for one, other in itertools.combinations(boxes, 2))
    assert (_overlapping(boxes) is not None) == expected


def test_scalars_overlap_when_there_are_two() -> None:
    assert _overlapping([((), ()), ((), ())])
