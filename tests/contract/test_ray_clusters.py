"""What the local cluster and the trainer rely on in Ray."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray.data
import ray.train
import ray.train.torch
import ray.util
from ray.data.expressions import Expr, col
from ray.train.v2._internal import constants
from ray.train.v2._internal.callbacks import datasets as datasets_module
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
from ray.train.v2._internal.execution.training_report import _TrainingReport
from ray.train.v2.api import exceptions
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

import chaos.cluster.local as local_cluster
from chaos.logs import KEPT
from tests.contract.parts import CHECKPOINT, parameters, run_context, told_to

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


# Clusters


def test_every_option_of_ray_start_that_nodes_are_started_with_is_understood() -> None:
    from ray.scripts.scripts import start

    source = inspect.getsource(local_cluster.LocalCluster)
    options = {option.split("=")[0].split("{")[0] for option in _strings(source) if option.startswith("--")}
    known = {option for parameter in start.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert len(options) >= 12
    assert options - known == set()


def _strings(source: str) -> set[str]:
    """Every string in a source, an f-string by its literal beginning."""
    tree = ast.parse(textwrap.dedent(source))
    parts = [node.values[0] for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) and node.values]
    nodes = [*parts, *ast.walk(tree)]
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_ray_start_takes_the_head_and_the_worker_command_line() -> None:
    from ray.scripts.scripts import start

    common = [
        "--node-ip-address=127.0.0.1", "--num-cpus=0", "--num-gpus=0", "--object-store-memory=209715200",
        "--min-worker-port=0", "--max-worker-port=0", "--temp-dir=x", "--disable-usage-stats",
    ]  # fmt: skip
    head = start.make_context("start", ["--head", "--port=0", "--include-dashboard=false", "--no-monitor", *common])
    worker = start.make_context("start", ["--address=127.0.0.1:1", *common])
    assert (head.params["head"], head.params["no_monitor"], head.params["include_dashboard"]) == (True, True, False)
    assert (worker.params["address"], worker.params["num_cpus"]) == ("127.0.0.1:1", 0)


def test_ray_scripts_can_be_run_as_a_module() -> None:
    import ray.scripts.scripts as scripts

    assert '__name__ == "__main__"' in inspect.getsource(scripts)
    assert callable(scripts.main)


def test_the_port_of_the_gcs_is_written_to_a_file_of_the_session() -> None:
    from ray import _raylet
    from ray._private.node import Node

    assert _raylet.GCS_SERVER_PORT_NAME == "gcs_server_port"
    assert callable(_raylet.get_port_filename)
    assert 'f"session_{date_str}_' in inspect.getsource(Node)


def test_the_members_of_a_cluster_can_be_asked_of_the_gcs() -> None:
    from ray._raylet import GcsClient, InnerGcsClient
    from ray.core.generated.gcs_pb2 import GcsNodeInfo

    from chaos.cluster.members import ALIVE, alive

    assert "get_all_node_info" in dir(InnerGcsClient), "the client hands on what the inner one has"
    assert hasattr(GcsClient, "__getattr__")
    assert ALIVE == GcsNodeInfo.ALIVE
    nodes = [GcsNodeInfo(node_id=b"\1", node_manager_address="127.0.0.1", state=GcsNodeInfo.ALIVE)]
    nodes += [GcsNodeInfo(node_id=b"\2", node_manager_address="127.0.0.2", state=GcsNodeInfo.DEAD)]
    client = SimpleNamespace(get_all_node_info=lambda: dict(enumerate(nodes)))
    assert alive(client) == {"127.0.0.1": "01"}  # type: ignore[arg-type]


class Stored:
    """Tables as the GCS sends them."""

    def __init__(self, actors: list[Any], groups: list[Any]) -> None:
        self._actors, self._groups = actors, groups

    def get_actor_table(self, job: Any, state: Any) -> list[bytes]:
        return [actor.SerializeToString() for actor in self._actors]

    def get_placement_group_table(self) -> list[bytes]:
        return [group.SerializeToString() for group in self._groups]


def test_what_a_job_left_behind_is_told_by_the_tables_of_the_gcs(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private.state import GlobalState
    from ray.core.generated.gcs_pb2 import ActorTableData, PlacementGroupTableData

    from chaos.cluster.left import look

    kinds = [ActorTableData.ALIVE, ActorTableData.DEAD, ActorTableData.RESTARTING, ActorTableData.PENDING_CREATION]
    actors = [ActorTableData(actor_id=bytes([i]), class_name=f"C{i}", state=kind) for i, kind in enumerate(kinds)]
    actors.append(ActorTableData(actor_id=b"x", class_name="Kept", state=ActorTableData.ALIVE, is_detached=True))
    states = [PlacementGroupTableData.CREATED, PlacementGroupTableData.REMOVED, PlacementGroupTableData.PENDING]
    groups = [PlacementGroupTableData(placement_group_id=bytes([i]), state=state) for i, state in enumerate(states)]
    monkeypatch.setattr(GlobalState, "_connect_and_get_accessor", lambda self: Stored(actors, groups))
    assert look(GlobalState()) == {"actors": ["C0", "C2", "C3"], "placement_groups": ["00", "02"]}


def test_the_states_in_which_something_is_gone_have_our_names() -> None:
    from ray.core.generated.gcs_pb2 import ActorTableData, PlacementGroupTableData

    from chaos.cluster.left import GONE

    names = {*ActorTableData.ActorState.keys(), *PlacementGroupTableData.PlacementGroupState.keys()}
    assert set(GONE) <= names


def test_the_tables_of_a_cluster_are_asked_by_its_address() -> None:
    from ray._private.state import GlobalState
    from ray._raylet import GcsClientOptions

    options = GcsClientOptions.create("127.0.0.1:1", None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    state = GlobalState()
    state._initialize_global_state(options)
    assert state.gcs_options is options
    assert parameters(GlobalState.actor_table)[1] == "actor_id"
    inspect.signature(GlobalState.placement_group_table).bind(state)


def test_mode_and_token_of_a_cluster_are_taken_from_the_environment() -> None:
    code = (
        "from ray._raylet import AuthenticationMode, AuthenticationTokenLoader, get_authentication_mode\n"
        "assert get_authentication_mode() == AuthenticationMode.TOKEN\n"
        "assert AuthenticationTokenLoader.instance().has_token()\n"
    )
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 32, "RAY_AUTH_TOKEN_AGENT": ""}
    environment.pop("RAY_AUTH_TOKEN_AGENT")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_address_and_usage_variables_have_our_names() -> None:
    from ray._common.usage import usage_constants
    from ray._private import ray_constants

    assert ray_constants.RAY_ADDRESS_ENVIRONMENT_VARIABLE == "RAY_ADDRESS"
    assert usage_constants.USAGE_STATS_ENABLED_ENV_VAR == "RAY_USAGE_STATS_ENABLED"


def test_the_logs_that_are_kept_have_the_names_that_ray_gives() -> None:
    from ray._private import ray_constants

    assert f"{ray_constants.PROCESS_TYPE_RAYLET}.*" in KEPT
    assert f"{ray_constants.PROCESS_TYPE_GCS_SERVER}.*" in KEPT


# The trainer


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (ray.init, {"address", "num_cpus", "include_dashboard", "logging_config"}),
        (ray.LoggingConfig, {"log_level"}),
        (ray.train.RunConfig, {"name", "storage_path", "failure_config", "checkpoint_config"}),
        (ray.train.ScalingConfig, {"num_workers", "placement_strategy"}),
        (ray.train.FailureConfig, {"max_failures"}),
        (ray.train.CheckpointConfig, {"num_to_keep"}),
        (ray.train.DataConfig, {"execution_options", "enable_shard_locality"}),
        (ray.train.torch.TorchConfig, {"timeout_s"}),
        (ray.data.ExecutionOptions, {"preserve_order"}),
        (ray.data.read_parquet, {"override_num_blocks"}),
        (ray.data.Dataset.filter, {"expr"}),
        (ray.data.Dataset.repartition, {"target_num_rows_per_block"}),
        (ray.data.Dataset.streaming_split, {"equal", "locality_hints"}),
        (ray.data.DataIterator.iter_batches, {"batch_size", "prefetch_batches"}),
        (ray.data.DataIterator.iter_torch_batches, {"batch_size", "dtypes"}),
        (ray.train.report, {"metrics", "checkpoint"}),
        (ray.train.get_dataset_shard, {"dataset_name"}),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_a_function_that_the_trainer_calls_has_the_arguments_it_is_given(function: Any, names: set[str]) -> None:
    assert names - set(parameters(function)) == set()


def test_a_torch_trainer_has_the_arguments_it_is_given() -> None:
    names = {"train_loop_config", "torch_config", "scaling_config", "run_config", "datasets", "dataset_config"}
    assert names - set(parameters(ray.train.torch.TorchTrainer.__init__)) == set()
    assert parameters(ray.train.torch.TorchTrainer.__init__)[1] == "train_loop_per_worker"
    assert issubclass(ray.train.torch.TorchTrainer, DataParallelTrainer)


def test_no_failure_is_survived_unless_asked_for() -> None:
    assert ray.train.FailureConfig().max_failures == 0


def test_the_process_group_times_out_after_half_an_hour_unless_told_otherwise() -> None:
    assert ray.train.torch.TorchConfig().timeout_s == 1800


def test_every_failure_of_training_is_caught_as_one_kind() -> None:
    for kind in (exceptions.WorkerGroupError, exceptions.ControllerError, exceptions.PreemptionError):
        assert issubclass(kind, ray.train.TrainingFailedError)


def test_the_controller_keeps_what_it_committed_in_the_file_that_the_trainer_looks_for() -> None:
    from trainer import data

    assert constants.CHECKPOINT_MANAGER_SNAPSHOT_FILENAME == "checkpoint_manager_snapshot.json"
    assert constants.CHECKPOINT_MANAGER_SNAPSHOT_FILENAME in inspect.getsource(data.committed_samples)


def test_the_position_of_the_last_commit_can_be_read_from_a_stored_run(tmp_path: Path) -> None:
    from trainer.data import committed_samples

    run = tmp_path / "x"
    assert committed_samples(str(run)) == 0
    context = run_context(tmp_path)
    manager = CheckpointManager(context.run_config.checkpoint_config, context.run_config.storage_context)
    (run / CHECKPOINT).mkdir(parents=True)
    checkpoint = ray.train.Checkpoint(str(run / CHECKPOINT))
    report = _TrainingReport(checkpoint, {"step": 10, "samples": 480, "loss": 1.0}, False)
    asyncio.run(told_to(manager, report))
    assert committed_samples(str(run)) == 480
    assert ray.train.Result.from_path(str(run)).metrics["step"] == 10


def test_a_callable_dataset_is_called_anew_at_every_start_of_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(datasets_module, "RayDatasetShardProvider", lambda **options: given.append(options["datasets"]))
    calls = iter(("first", "second"))
    made = datasets_module.DatasetsCallback(run_context(tmp_path), {"rest": lambda: next(calls)})
    workers = [SimpleNamespace(metadata=SimpleNamespace(node_id="n"))]
    made.before_init_train_context(workers)  # type: ignore[arg-type]
    made.before_init_train_context(workers)  # type: ignore[arg-type]
    assert given == [{"rest": "first"}, {"rest": "second"}]


def test_datasets_are_split_equally_among_the_ranks_blind_to_where_blocks_lie() -> None:
    from trainer.data import ingest

    class Split:
        name = "rest"
        context = SimpleNamespace(execution_options=None)

        def copy(self, other: Any) -> Split:
            return self

        def streaming_split(self, number: int, **options: Any) -> list[Any]:
            asked.append((number, options))
            return [self] * number

    asked: list[Any] = []
    ingest().configure({"rest": Split()}, 2, None, ["a", "b"])  # type: ignore[dict-item]
    assert asked == [(2, {"equal": True, "locality_hints": None})]
    assert Split.context.execution_options.preserve_order is True


def test_the_second_parquet_reader_can_be_turned_off() -> None:
    assert isinstance(ray.data.DataContext().use_datasource_v2, bool)


def test_rows_can_be_filtered_by_an_expression_over_a_column() -> None:
    assert isinstance((col("id") >= 3) & (col("id") < 9), Expr)


def test_a_checkpoint_is_made_from_a_folder_and_read_as_one(tmp_path: Path) -> None:
    checkpoint = ray.train.Checkpoint.from_directory(str(tmp_path))
    with checkpoint.as_directory() as folder:
        assert Path(folder) == Path(checkpoint.path) == tmp_path


def test_the_functions_that_the_training_loop_calls_exist() -> None:
    assert callable(ray.train.get_checkpoint)
    assert callable(ray.train.torch.get_device)
    assert callable(ray.cluster_resources)
