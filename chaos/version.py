"""The version of the installed distribution, and the versions of Ray and torch this one was tested with."""

from __future__ import annotations

from importlib import metadata

TESTED = {"ray": "2.60", "torch": "2.13"}


def version_of(distribution: str) -> str:
    """Version of an installed distribution; ``unknown`` where it is not installed as one."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """Versions that a run depends on, by distribution."""
    return {name: version_of(name) for name in ("aftershock", "ray", "torch")}


def untested() -> list[str]:
    """One sentence for each dependency whose installed version differs from the tested one."""
    return [
        f"{name} {version_of(name)} is installed; this version of aftershock was tested with {tested}"
        for name, tested in TESTED.items()
        if not version_of(name).startswith(f"{tested}.")
    ]
