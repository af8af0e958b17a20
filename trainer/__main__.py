"""``python -m trainer``: the reference trainer alone, on any Ray cluster."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

from trainer.config import TrainerConfig

EXAMPLES = """examples:
  python -m trainer --workers 2 --steps 30
  python -m trainer --workers 4 --steps 1000 --storage /mnt/shared --name run-1 --max-failures 3
  RAY_ADDRESS=10.0.0.1:6379 python -m trainer --workers 4 --data /mnt/shared/tokens
"""


def parser() -> argparse.ArgumentParser:
    """One option for each field of TrainerConfig, with the field's own documentation."""
    made = argparse.ArgumentParser(
        prog="python -m trainer",
        description="Train a small decoder with Ray Train, FSDP2 and sharded checkpoints.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for field in dataclasses.fields(TrainerConfig):
        kind = type(field.default)
        shown = f" (default: {field.default})" if field.default != "" else ""
        made.add_argument(
            "--" + field.name.replace("_", "-"),
            type=kind,
            default=field.default,
            metavar=kind.__name__.upper(),
            help=field.metadata["help"].replace("%", "%%") + shown,
        )
    return made


def main(arguments: Sequence[str] | None = None, loop: Callable[[dict[str, Any]], None] | None = None) -> int:
    """Parse, train, print the outcome; 0 when trained to the end, 1 when training failed, 64 for bad settings."""
    options = vars(parser().parse_args(arguments))
    try:
        config = TrainerConfig(**options)
    except ValueError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return 64
    from ray.train import TrainingFailedError

    from trainer import launch
    from trainer import loop as loops

    try:
        result = launch.run(config, loop or loops.train)
    except TrainingFailedError as error:
        print(f"trainer: training failed: {error}", file=sys.stderr)
        return 1
    except (ValueError, launch.NotEnoughCpus) as error:
        print(f"trainer: {error}", file=sys.stderr)
        return 64
    metrics = result.metrics or {}
    print(f"trained to step {metrics.get('step')}, loss {metrics.get('loss', float('nan')):.4f}, in {result.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
