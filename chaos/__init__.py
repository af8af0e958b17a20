"""Break a distributed training job on purpose, and record exactly what happens.

The only package of Aftershock that is imported into other people's training processes.
"""

AFTERSHOCK = True
"""Marks this package as ours; a module of the user's own that is called ``chaos`` lacks it."""
