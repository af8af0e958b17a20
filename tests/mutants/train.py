"""``train.py PROGRAM [trainer options]``: a program of the catalogue, trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ray import cloudpickle

from tests import mutants
from tests.mutants.catalogue import PROGRAMS
from trainer import loop
from trainer.__main__ import main

cloudpickle.register_pickle_by_value(mutants)

PROGRAM = PROGRAMS[sys.argv[1]]
PATCH = PROGRAM.worker


def train(settings: dict[str, Any]) -> None:
    """Patch this worker, then train as ever."""
    PATCH()
    loop.train(settings)


if __name__ == "__main__":
    PROGRAM.driver()
    sys.exit(main(sys.argv[2:], train))
