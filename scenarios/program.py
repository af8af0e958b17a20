"""The training program under test: the reference trainer under a configuration, or a script of the user's."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from chaos.exits import UsageError
from chaos.workload import Workload
from trainer.config import TrainerConfig

HARMLESS = {
    "name", "data", "timeout_s", "max_failures", "min_workers", "cpus_per_worker", "pace", "preemption_check_every",
    "resize_interval_s", "evaluate_every", "save",
}  # fmt: skip
"""Trainer settings that change nothing in a training that nothing disturbs."""


class Program(Protocol):
    """A program that can be launched on a cluster again and again."""

    @property
    def script(self) -> tuple[str, ...]:
        """The user's own command; empty for the reference trainer."""

    @property
    def settings(self) -> dict[str, Any]:
        """What it was told, for the record."""

    @property
    def key(self) -> object:
        """The same for two programs whose undisturbed runs train alike."""

    @property
    def least_s(self) -> float:
        """The least time that it takes by its settings, seconds."""

    def undisturbed(self) -> Program:
        """The same for a run that nothing disturbs."""

    def workload(self, directory: Path, environment: Mapping[str, str], workers: int, steps: int) -> Workload:
        """The command of one run, whose run directory is new."""


@dataclass(frozen=True)
class Reference:
    """The reference trainer."""

    config: TrainerConfig

    @property
    def script(self) -> tuple[str, ...]:
        """It is no script of the user's."""
        return ()

    @property
    def settings(self) -> dict[str, Any]:
        """Its whole configuration."""
        return dataclasses.asdict(self.config)

    @property
    def key(self) -> object:
        """What decides how it trains."""
        return [(name, value) for name, value in self.settings.items() if name not in HARMLESS]

    @property
    def least_s(self) -> float:
        """Its steps at their pace."""
        return self.config.pace * self.config.steps

    def undisturbed(self) -> Reference:
        """At no pace, and a group of the full size from the start.

        An elastic one may begin smaller, where Ray has not heard of a node that has just come back.
        """
        return Reference(dataclasses.replace(self.config, pace=0.0, min_workers=0))

    def workload(self, directory: Path, environment: Mapping[str, str], workers: int, steps: int) -> Workload:
        """``python -m trainer``, storing below the run directory, where nothing but our installation is importable."""
        config = dataclasses.replace(self.config, storage=str(directory / "storage"), observer="chaos.observe")
        return Workload((sys.executable, "-m", "trainer", *arguments(config)), environment, workers, steps, directory)


def arguments(config: TrainerConfig) -> list[str]:
    """A trainer configuration as command-line arguments."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in dataclasses.asdict(config).items()]


@dataclass(frozen=True)
class Script:
    """The user's own training script, run from a folder with the environment that the user has."""

    words: tuple[str, ...]
    cwd: Path

    @classmethod
    def of(cls, words: tuple[str, ...]) -> Script:
        """The command given after ``--``, to be run from here; a bare ``python`` is the interpreter of this one.

        Raises UsageError when there is no such command, or no such script.
        """
        first, *rest = words
        if first in ("python", "python3"):
            first = sys.executable
        if shutil.which(first) is None:
            raise UsageError(f"-- {shlex.join(words)}: there is no command '{first}'; write -- python train.py")
        script = next((word for word in rest if not word.startswith("-")), "")
        if script.endswith(".py") and not Path(script).exists():
            raise UsageError(f"-- {shlex.join(words)}: there is no file {script} in {Path.cwd()}")
        return cls((first, *rest), Path.cwd())

    @property
    def script(self) -> tuple[str, ...]:
        """The command."""
        return self.words

    @property
    def settings(self) -> dict[str, Any]:
        """Where it runs; what else it was told is in its command."""
        return {"cwd": str(self.cwd)}

    @property
    def key(self) -> object:
        """The same command trains alike, if it is deterministic."""
        return self.words, str(self.cwd)

    @property
    def least_s(self) -> float:
        """Nothing is known of it beforehand."""
        return 0.0

    def undisturbed(self) -> Script:
        """The same."""
        return self

    def workload(self, directory: Path, environment: Mapping[str, str], workers: int, steps: int) -> Workload:
        """The command as it is."""
        return Workload(self.words, environment, workers, steps, self.cwd, isolated=False)
