"""``train.py MUTANT [trainer options]``: the reference trainer with one mistake of the catalogue in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ray import cloudpickle

from tests.mutants import catalogue
from trainer import launch, loop
from trainer.__main__ import main
from trainer.data import REST

cloudpickle.register_pickle_by_value(catalogue)

NAME = sys.argv[1]


def buggy(settings: dict[str, Any]) -> None:
    """Make the mistake in this worker, then train as ever."""
    catalogue.MUTANTS[NAME].patch()
    loop.train(settings)


def spoil_data() -> None:
    """Hand out the mutant's data in place of the rest of the epoch."""
    original = launch.datasets

    def spoiled(*arguments: Any) -> dict[str, Any]:
        found = original(*arguments)
        return {**found, REST: catalogue.MUTANTS[NAME].epoch(found[REST])}

    launch.datasets = spoiled


if __name__ == "__main__":
    spoil_data()
    sys.exit(main(sys.argv[2:], buggy))
