"""What the points where faults fire, and the time-outs that notice them, rely on in Ray and torch."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray.train.constants
import ray.train.torch
import torch
import torch.distributed as dist
from ray._private import ray_constants
from ray.train.torch import config as torch_config
from ray.train.v2._internal import constants
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.testing._internal.distributed.fake_pg import FakeStore

from chaos.agent.points import SHARD, listen
from chaos.timeouts import TIMEOUTS

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


# Optimizers and modules


def test_a_global_hook_hears_every_optimizer_step_before_the_weights_change() -> None:
    heard: list[tuple[Any, ...]] = []
    handle = register_optimizer_step_pre_hook(lambda *given: heard.append((*given, weight.item())))
    weight = torch.zeros(1, requires_grad=True)
    trained = torch.optim.SGD([weight], lr=1.0)
    for _ in range(2):
        weight.grad = torch.ones(1)
        trained.step()
    handle.remove()
    trained.step()
    assert [(given[0], len(given), given[-1]) for given in heard] == [(trained, 4, 0.0), (trained, 4, -1.0)]


def test_a_global_hook_hears_every_module_from_the_outside_in_before_its_own_forward() -> None:
    heard: list[Any] = []
    handle = register_module_forward_pre_hook(lambda module, inputs: heard.append((module, len(inputs))))
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1)))
    model(torch.ones(1, 2))
    handle.remove()
    model(torch.ones(1, 2))
    assert heard == [(model, 1), (model[0], 1), (model[1], 1), (model[1][0], 1)]


def test_what_a_global_hook_raises_comes_out_of_the_call() -> None:
    def stop(*given: Any) -> None:
        raise RuntimeError("mine")

    handles = [register_module_forward_pre_hook(stop), register_optimizer_step_pre_hook(stop)]
    with pytest.raises(RuntimeError, match="mine"):
        nn.Linear(1, 1)(torch.ones(1))
    with pytest.raises(RuntimeError, match="mine"):
        torch.optim.SGD([torch.zeros(1, requires_grad=True)]).step()
    for handle in handles:
        handle.remove()


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of two ranks of which this process is the first; collectives do nothing."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_modules_and_optimizers_of_a_sharded_model_are_heard_too(group: None) -> None:
    heard: list[str] = []
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    removers = listen({"first-step", "forward", "optimizer"}, lambda phase, place: heard.append(phase))
    model(torch.ones(2, 4)).sum().backward()
    torch.optim.AdamW(model.parameters()).step()
    for remove in removers:
        remove()
    assert heard == ["first-step", "forward", "forward", "optimizer"]


# Saves


@pytest.fixture
def opened() -> Iterator[list[tuple[str, str | None, bool]]]:
    """Every shard file that Python tells of being opened: its path, the mode, and whether this thread opens it."""
    heard: list[tuple[str, str | None, bool]] = []
    listening, here = True, threading.get_ident()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if listening and event == "open" and str(args[0]).endswith(SHARD):
            heard.append((str(args[0]), args[1], threading.get_ident() == here))

    sys.addaudithook(hook)
    yield heard
    listening = False


def test_python_tells_of_every_shard_that_a_save_opens_for_writing(
    tmp_path: Path, opened: list[tuple[str, str | None, bool]]
) -> None:
    save({"w": torch.ones(2)}, checkpoint_id=tmp_path / "c", no_dist=True)
    assert opened == [(str(tmp_path / "c" / "__0_0.distcp"), "w", True)]


def test_an_asynchronous_save_opens_its_shard_in_another_thread(
    tmp_path: Path, opened: list[tuple[str, str | None, bool]]
) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    async_save({"w": torch.ones(2)}, checkpoint_id=tmp_path / "c").result()
    dist.destroy_process_group()
    assert opened == [(str(tmp_path / "c" / "__0_0.distcp"), "w", False)]


# The process group


def test_ray_calls_torch_distributed_by_the_names_in_that_module() -> None:
    assert torch_config.dist is dist
    assert "dist.init_process_group(" in inspect.getsource(torch_config._setup_torch_process_group)
    assert "dist.destroy_process_group()" in inspect.getsource(torch_config._shutdown_torch)


class Reached(Exception):
    """The point was reached."""


def reach(phase: str, place: str) -> None:
    raise Reached(phase)


def test_the_rendezvous_is_reached_when_ray_sets_up_the_process_group() -> None:
    (remove,) = listen({"rendezvous"}, reach)
    with pytest.raises(Reached, match="rendezvous"):
        torch_config._setup_torch_process_group(backend="gloo", world_rank=0, world_size=1, init_method="env://")
    remove()
    assert not dist.is_initialized()


def test_the_teardown_is_reached_when_ray_takes_down_the_process_group(
    group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.air._internal import torch_utils

    monkeypatch.setattr(torch_utils, "get_devices", lambda: [])
    (remove,) = listen({"teardown"}, reach)
    with pytest.raises(Reached, match="teardown"):
        torch_config._shutdown_torch(destroy_process_group=True)
    remove()
    assert dist.is_initialized()


# Time-outs

SETTINGS = {
    "worker_health": (constants.WORKER_HEALTH_CHECK_TIMEOUT_S_ENV_VAR, constants.DEFAULT_WORKER_HEALTH_CHECK_TIMEOUT_S),
    "report": (constants.COLLECTIVE_TIMEOUT_S_ENV_VAR, constants.DEFAULT_COLLECTIVE_TIMEOUT_S),
    "poll": (constants.HEALTH_CHECK_INTERVAL_S_ENV_VAR, constants.DEFAULT_HEALTH_CHECK_INTERVAL_S),
    "start": (constants.WORKER_GROUP_START_TIMEOUT_S_ENV_VAR, constants.DEFAULT_WORKER_GROUP_START_TIMEOUT_S),
    "preemption_poll": (constants.PREEMPTION_POLL_INTERVAL_S_ENV_VAR, constants.DEFAULT_PREEMPTION_POLL_INTERVAL_S),
    "shutdown": (
        ray.train.constants.TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S,
        ray.train.constants.DEFAULT_TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S,
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_time_out_is_set_by_the_variable_and_has_the_default_of_ray(name: str) -> None:
    assert (TIMEOUTS[name].setting, TIMEOUTS[name].default_s) == SETTINGS[name]


def test_every_time_out_of_ours_is_one_of_ray_or_torch() -> None:
    assert set(TIMEOUTS) == {*SETTINGS, "process_group"}


def test_the_time_out_of_the_process_group_is_an_argument_with_the_default_of_torch() -> None:
    from torch.distributed.constants import default_pg_timeout

    wanted = TIMEOUTS["process_group"]
    assert wanted.setting == "TorchConfig(timeout_s)"
    assert ray.train.torch.TorchConfig().timeout_s == wanted.default_s == default_pg_timeout.total_seconds()


@pytest.mark.parametrize("name", ["worker_health", "report", "poll", "start", "preemption_poll"])
def test_a_time_out_set_for_the_script_reaches_the_controller(name: str) -> None:
    assert TIMEOUTS[name].setting in constants.ENV_VARS_TO_PROPAGATE


def test_the_time_out_of_the_teardown_must_be_in_the_environment_of_the_cluster() -> None:
    assert TIMEOUTS["shutdown"].setting not in constants.ENV_VARS_TO_PROPAGATE


@pytest.mark.parametrize(("text", "read"), [("3", 3), ("2.5", 30)])
def test_the_time_out_of_the_teardown_is_read_as_whole_seconds(
    monkeypatch: pytest.MonkeyPatch, text: str, read: int
) -> None:
    name, default = SETTINGS["shutdown"]
    monkeypatch.setenv(name, text)
    assert "env_integer(" in inspect.getsource(torch_config._TorchBackend.on_shutdown)
    assert ray_constants.env_integer(name, default) == read
