"""The training program under test, started with the agent on board."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import chaos
from chaos import INSTALLATION
from chaos.agent.plan import VARIABLE
from chaos.exits import UsageError

CALLBACKS = "RAY_TRAIN_CALLBACKS"
AGENT = "chaos.agent.callback.Agent"


@dataclass(frozen=True)
class Workload:
    """A command that calls ``fit()``, its environment beyond ours, and how many steps it should complete.

    ``cwd``: where it runs; Ray adds that folder to the import path of its workers. ``isolated``: nothing but our own
    installation and its dependencies is importable in it, so that modules of the current project called ``trainer``
    or ``metrics`` cannot take the place of ours.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    workers: int
    steps: int
    cwd: Path | None = None
    isolated: bool = True

    def base_environment(self) -> dict[str, str]:
        """The environment of its cluster and of itself, before the cluster's own variables."""
        inherited = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", VARIABLE)}
        if self.isolated:
            inherited["PYTHONPATH"] = str(INSTALLATION)
            inherited["PYTHONSAFEPATH"] = "1"
        return {**inherited, **self.environment}

    def launch(self, cluster: Mapping[str, str], plan: Path, log: Path) -> subprocess.Popen[bytes]:
        """Start it in a session of its own, with the agent's callback after any that is set already."""
        present = [name for name in cluster.get(CALLBACKS, "").split(",") if name.strip()]
        environment = {**cluster, VARIABLE: str(plan), CALLBACKS: ",".join([*present, AGENT])}
        with log.open("wb") as file:
            return subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                env=environment, cwd=self.cwd, start_new_session=True,
            )  # fmt: skip


def check_own_chaos() -> None:
    """Refuse to run where ``import chaos`` in this project would find a module of somebody else's.

    Raises UsageError naming the file that clashes.
    """
    code = "import importlib.util as u; s = u.find_spec('chaos'); print(s.origin if s else '')"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if found and Path(found).resolve() != Path(chaos.__file__).resolve():
        raise UsageError(
            f"{found} takes the name 'chaos', by which training processes import the agent of aftershock "
            f"({chaos.__file__}): rename it, or run from another directory"
        )
