"""In a world of one, without Ray, programs do what their declared checks see; healthy ones train bit for bit alike."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from tests.mutants.alone import Life, live
from tests.mutants.catalogue import MUTANTS, THEMES, VARIANTS
from tests.mutants.program import Program, nothing

pytestmark = pytest.mark.filterwarnings("ignore")

SHOWN = ("optimizer", "scheduler", "accumulation", "random states")
TOGETHER = {"random-state-of-rank-zero"}
"""Mistakes that need a second rank."""

ALONE = [one.name for theme in SHOWN for one in THEMES[theme] if one.name not in TOGETHER]
ALONE += ["ignores-checkpoint", "resumes-one-step-late", "loads-weights-only", "reinitializes-head"]
ALONE += ["starts-over-when-a-load-fails"]

HEALTHY = [one.name for one in VARIANTS.values() if one.worker is not nothing]


@pytest.fixture(scope="module", autouse=True)
def world_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def killed_and_resumed(program: Program, folder) -> tuple[Life, Life]:
    """Its life up to the fault, and the one that goes on from the checkpoint of step 2."""
    first = live(program.worker, folder / "first", until=4)
    return first, live(program.worker, folder / "second", folder / "first" / "checkpoint_000002")


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    return live(nothing, tmp_path_factory.mktemp("control"))


@pytest.mark.parametrize("name", ALONE)
def test_a_mistake_shows_where_it_is_declared_to(name, control, tmp_path):
    mutant = MUTANTS[name]
    red = {mutant.caught_by, *mutant.also}
    first, second = killed_and_resumed(mutant, tmp_path)
    assert first.steps == control.steps[:3]
    if second.restored:
        assert (second.restored != first.saved[2]) == ("restored-state" in red)
    assert (second.steps != control.steps[2:]) == ("trajectory" in red)
    assert "control-state" in red
    assert len(second.steps) == (4 if "completed" not in red else len(second.steps))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_resumes_as_if_nothing_had_been(name, control, tmp_path):
    variant = VARIANTS[name]
    undisturbed = live(variant.worker, tmp_path / "control") if variant.own_control else control
    first, second = killed_and_resumed(variant, tmp_path)
    assert second.restored == first.saved[2]
    assert first.steps + second.steps[1:] == undisturbed.steps
    assert second.saved == {step: undisturbed.saved[step] for step in (4, 6)}
