"""Mistakes of the script that calls ``fit()``: the failure budget, and how the end is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ray.train import FailureConfig, Result, TrainingFailedError
from ray.train.torch import TorchTrainer

from tests.mutants.program import Mutant
from tests.mutants.trials import BUDGET
from trainer import launch


def forget_budget() -> None:
    """The budget is an option that nobody hands on."""
    launch.FailureConfig = lambda max_failures: FailureConfig()  # type: ignore[assignment,misc]


def endless_budget() -> None:
    """Whatever was asked for, failures are survived without end."""
    launch.FailureConfig = lambda max_failures: FailureConfig(max_failures=-1)  # type: ignore[assignment,misc]


def fit_again() -> None:
    """A job that has failed is fitted once more, beyond its budget."""
    original = launch.build_trainer

    def build_trainer(*arguments: Any) -> TorchTrainer:
        made = original(*arguments)
        once = made.fit

        def fit() -> Result:
            try:
                return once()
            except TrainingFailedError:
                return original(*arguments).fit()

        made.fit = fit  # type: ignore[method-assign]
        return made

    launch.build_trainer = build_trainer


def hide_failure() -> None:
    """The error is printed, and the script ends well."""
    original = launch.run

    def run(*arguments: Any) -> Any:
        try:
            return original(*arguments)
        except TrainingFailedError as error:
            print(f"training failed: {error}")
            return SimpleNamespace(metrics={}, path="nowhere")

    launch.run = run


MUTANTS = (
    Mutant(
        name="ignores-the-budget",
        caught_by="restarts",
        also=frozenset({"completed", "recovered", "trajectory"}),
        driver=forget_budget,
    ),
    Mutant(
        name="endless-budget",
        caught_by="restarts",
        also=frozenset({"failed"}),
        trial=BUDGET,
        driver=endless_budget,
    ),
    Mutant(name="fits-again-by-itself", caught_by="failed", trial=BUDGET, driver=fit_again),
    Mutant(name="hides-the-failure", caught_by="failed", trial=BUDGET, driver=hide_failure),
)
