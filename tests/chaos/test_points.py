"""The points of a training process, reached by torch's own optimizers, modules, saves and process groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.testing._internal.distributed.fake_pg import FakeStore

from chaos.agent.points import listen
from chaos.triggers import PHASES

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

Listen = Callable[..., list[str]]
"""Of each point that is reached only the phase."""


@pytest.fixture
def reached() -> Iterator[Listen]:
    """Listen to phases; returns the list of those that are reached from then on. All stop after the test."""
    removers: list[Callable[[], None]] = []

    def begin(*phases: str) -> list[str]:
        heard: list[str] = []
        removers.extend(listen(phases, lambda phase, place: heard.append(phase)))
        return heard

    yield begin
    for remove in removers:
        remove()


def model() -> nn.Sequential:
    """Two layers in one model."""
    return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))


def run(trained: nn.Module) -> torch.Tensor:
    return trained(torch.ones(1, 2))


# Optimizers


def test_the_optimizer_is_reached_before_the_weights_change() -> None:
    heard: list[list[float]] = []
    weight = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    removers = listen({"optimizer"}, lambda phase, place: heard.append(weight.tolist()))
    for _ in range(2):
        weight.grad = torch.ones(2)
        optimizer.step()
    removers[0]()
    assert heard == [[0.0, 0.0], [-1.0, -1.0]]


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_the_step_by_which_torch_makes_empty_state_is_no_point(
    reached: Listen, kind: type[torch.optim.Optimizer]
) -> None:
    trained = nn.Linear(2, 2)
    optimizer = kind(trained.parameters(), lr=0.1)
    heard = reached("optimizer")
    get_optimizer_state_dict(trained, optimizer)
    assert heard == []
    run(trained).sum().backward()
    optimizer.step()
    assert heard == ["optimizer"]


def test_a_step_that_the_gradient_scaler_skips_is_no_point(reached: Listen) -> None:
    heard = reached("optimizer")
    weight = torch.ones(1, requires_grad=True)
    trained, scaler = torch.optim.SGD([weight]), torch.amp.GradScaler("cpu", init_scale=2.0)
    for factor in (1.0, float("inf")):
        trained.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(trained)
        scaler.update()
    assert heard == ["optimizer"]


# Modules


def test_the_first_module_of_all_is_the_first_step_and_leaves_are_inside_a_forward_pass(reached: Listen) -> None:
    heard, trained = reached("first-step", "forward"), model()
    run(trained)
    assert heard == ["first-step", "forward", "forward"]
    run(trained)
    assert heard[3:] == ["forward", "forward"]


def test_modules_in_evaluation_mode_are_an_evaluation(reached: Listen) -> None:
    heard, trained = reached("first-step", "forward", "evaluation"), model()
    run(trained)
    run(trained.eval())
    run(trained.train())
    assert heard == ["first-step", *["forward"] * 2, *["evaluation"] * 3, *["forward"] * 2]


def test_the_first_step_is_reached_by_a_program_that_evaluates_first(reached: Listen) -> None:
    heard, trained = reached("first-step"), model()
    run(trained.eval())
    run(trained.train())
    assert "first-step" in heard


@pytest.mark.parametrize("phase", ["first-step", "forward", "evaluation"])
def test_one_armed_phase_listens_to_modules_once(reached: Listen, phase: str) -> None:
    from torch.nn.modules.module import _global_forward_pre_hooks

    before = len(_global_forward_pre_hooks)
    reached(phase)
    assert len(_global_forward_pre_hooks) == before + 1


# Files


def test_a_save_is_reached_once_for_each_shard_file(reached: Listen, tmp_path: Path) -> None:
    heard = reached("save")
    save({"w": torch.ones(2)}, checkpoint_id=tmp_path / "c", no_dist=True)
    assert [path.name for path in (tmp_path / "c").glob("*.distcp")] == ["__0_0.distcp"]
    assert heard == ["save"]


def test_a_load_and_other_files_are_no_save(reached: Listen, tmp_path: Path) -> None:
    save({"w": torch.ones(2)}, checkpoint_id=tmp_path / "c", no_dist=True)
    heard = reached("save")
    load({"w": torch.zeros(2)}, checkpoint_id=tmp_path / "c", no_dist=True)
    (tmp_path / "metrics.json").write_text("{}")
    torch.save({}, tmp_path / "other.pt")
    assert heard == []


def test_a_save_is_reached_before_its_file_is_there(tmp_path: Path) -> None:
    sizes: list[bool] = []
    (remove,) = listen({"save"}, lambda phase, place: sizes.append((tmp_path / "c" / "__0_0.distcp").exists()))
    save({"w": torch.ones(2)}, checkpoint_id=tmp_path / "c", no_dist=True)
    remove()
    assert sizes == [False]


@pytest.mark.parametrize("name", ["c/__0_0.distcp", "c/../c/__0_0.distcp"])
def test_a_save_is_about_the_folder_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "c").mkdir()
    monkeypatch.chdir(tmp_path)
    heard: list[tuple[str, str]] = []
    (remove,) = listen({"save"}, lambda phase, place: heard.append((phase, os.path.normpath(place))))
    for path in (name, tmp_path / name):
        open(path, "wb").close()
    remove()
    assert heard == [("save", str(tmp_path / "c"))] * 2


# The process group


def test_a_process_group_is_reached_before_it_is_set_up_and_before_it_is_taken_down() -> None:
    heard: list[tuple[str, bool]] = []
    removers = listen({"rendezvous", "teardown"}, lambda phase, place: heard.append((phase, dist.is_initialized())))
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    dist.destroy_process_group()
    for remove in removers:
        remove()
    assert heard == [("rendezvous", False), ("teardown", True)]
    assert not dist.is_initialized()


def test_what_stands_before_a_function_is_gone_when_nobody_listens() -> None:
    functions = (dist.init_process_group, dist.destroy_process_group)
    removers = listen({"rendezvous", "teardown"}, lambda phase, place: None)
    stands_before = (dist.init_process_group, dist.destroy_process_group)
    assert all(a is not b for a, b in zip(functions, stands_before, strict=True))
    assert [f.__name__ for f in stands_before] == [f.__name__ for f in functions]
    for remove in removers:
        remove()
    assert (dist.init_process_group, dist.destroy_process_group) == functions


# All of them


class Stop(Exception):
    """What a fault would raise."""


def stop(phase: str, place: str) -> None:
    raise Stop(phase)


def save_something(folder: Path) -> None:
    (folder / "__0_0.distcp").open("wb").close()


def step_something(folder: Path) -> None:
    weight = torch.zeros(1, requires_grad=True)
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight]).step()


REACH: dict[str, Callable[[Path], object]] = {
    "optimizer": step_something,
    "first-step": lambda folder: run(model()),
    "evaluation": lambda folder: run(model().eval()),
    "save": save_something,
    "rendezvous": lambda folder: dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore()),
    "teardown": lambda folder: dist.destroy_process_group(),
}


@pytest.mark.parametrize("phase", REACH)
def test_what_is_raised_at_a_point_comes_out_of_the_programs_own_call(phase: str, tmp_path: Path) -> None:
    removers = listen({phase}, stop)
    with pytest.raises(Stop, match=phase):
        REACH[phase](tmp_path)
    for remove in removers:
        remove()
    assert not dist.is_initialized()


@pytest.mark.parametrize("phase", [phase for phase in REACH if phase != "teardown"])
def test_after_the_listening_nothing_is_reached(phase: str, tmp_path: Path) -> None:
    for remove in listen({phase}, stop):
        remove()
    REACH[phase](tmp_path)
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("phases", [(), ("step", "restore", "report", "transfer", "commit", "time")])
def test_points_that_others_tell_of_need_no_hook(phases: Collection[str]) -> None:
    assert listen(phases, stop) == []


def test_every_phase_is_reached_by_a_hook_here_or_told_by_the_session_and_the_callback() -> None:
    told = {"step", "restore", "report", "transfer", "commit"}
    hooked = {phase for phase in PHASES if listen_and_remove(phase)}
    assert told | hooked == set(PHASES)
    assert not told & hooked


def listen_and_remove(phase: str) -> int:
    """How many hooks a phase needs."""
    removers = listen({phase}, stop)
    for remove in removers:
        remove()
    return len(removers)
