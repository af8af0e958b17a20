"""Break a distributed training job on purpose, and record exactly what happens.

The only package of Aftershock that is imported into other people's training processes.
"""

from pathlib import Path

INSTALLATION = Path(__file__).resolve().parent.parent
"""The folder that holds our packages: ``site-packages``, or a checkout."""

AFTERSHOCK = True
"""Marks this package as ours; a module of the user's own that is called ``chaos`` lacks it."""
