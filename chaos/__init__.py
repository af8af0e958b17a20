"""Break a distributed training job on purpose, and record exactly what happens.

The only package of Aftershock that is imported into other people's training processes, notebooks and tests:

    from chaos import run

    result = run("kill-worker", workers=3)
    assert result.passed, result
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chaos.driving import judge, plan, run, validate
    from chaos.results import Result

INSTALLATION = Path(__file__).resolve().parent.parent
"""The folder that holds our packages: ``site-packages``, or a checkout."""

AFTERSHOCK = True
"""Marks this package as ours; a module of the user's own that is called ``chaos`` lacks it."""

LATER = {"run": "driving", "plan": "driving", "judge": "driving", "validate": "driving", "Result": "results"}
"""What is imported when it is asked for: training processes need none of it."""

__all__ = ["AFTERSHOCK", "INSTALLATION", "Result", "judge", "plan", "run", "validate"]


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module 'chaos' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f"chaos.{LATER[name]}"), name)
