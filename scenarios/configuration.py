"""Defaults that a project sets: ``[tool.aftershock]`` in its ``pyproject.toml``, and environment variables.

A flag comes before an environment variable, that before the file, that before the default of the command.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic

from chaos.exits import UsageError

FILE = "pyproject.toml"
PREFIX = "AFTERSHOCK_"
INTERNAL = ("RUN", "PLAN", "NODE", "TELL")
"""Variables of that prefix by which the harness speaks to its own processes."""

OWN = ("faults", "checks", "scenarios")
"""Settings that name files of the user's own, in the order in which they are loaded."""


class Settings(pydantic.BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """What can be set, with the defaults of the command. Paths in the file are relative to it."""

    out: Path = pydantic.Field(Path("runs"), description="Where run directories are made.")
    seed: pydantic.NonNegativeInt = pydantic.Field(0, description="Seed of training and of random targets.")
    workers: pydantic.PositiveInt | None = pydantic.Field(None, description="Training workers of every scenario.")
    control: bool | None = pydantic.Field(None, description="Whether to compare with a run without a fault.")
    expect: str = pydantic.Field("", description="Bounds of your own, such as 'recovers(within=60)'.")
    strict: bool = pydantic.Field(False, description="What is skipped or not applicable makes the outcome unknown.")
    deadline: pydantic.PositiveFloat | None = pydantic.Field(None, description="Longest life of a training script, s.")
    share: bool = pydantic.Field(True, description="Whether a suite's members share clusters and control runs.")
    quiet: bool = pydantic.Field(False, description="Whether to print the result only.")
    keep: pydantic.NonNegativeInt = pydantic.Field(10, description="Passed runs of each name that prune keeps.")
    faults: tuple[Path, ...] = pydantic.Field((), description="Files of your own faults; * stands for any name.")
    checks: tuple[Path, ...] = pydantic.Field((), description="Files of your own checks.")
    scenarios: tuple[Path, ...] = pydantic.Field((), description="Files of your own scenarios.")
    set: dict[str, str] = pydantic.Field({}, description="Settings of scenarios and of the trainer, as --set takes.")


@dataclass(frozen=True)
class Value:
    """One value, and where it came from: ``default``, a file with its line, or a variable."""

    value: Any
    origin: str


@dataclass(frozen=True)
class Configuration:
    """Every setting with its value by name; each key of ``set`` is a value of its own, as in ``set.dropout``."""

    values: Mapping[str, Value]

    @property
    def given(self) -> dict[str, Any]:
        """What somebody has set, by the names of the command's options."""
        known = {name: found.value for name, found in self.values.items() if found.origin != "default"}
        return {n: str(v) if isinstance(v, Path) else v for n, v in known.items() if n not in OWN and "." not in n}

    @property
    def settings(self) -> dict[str, str]:
        """What ``--set`` would set, by name."""
        return {name[4:]: found.value for name, found in self.values.items() if name.startswith("set.")}

    @property
    def own(self) -> tuple[Path, ...]:
        """Files of the user's own, in the order in which they are loaded."""
        return tuple(path for name in OWN for path in self.values[name].value)


def load(folder: Path | None = None, environment: Mapping[str, str] | None = None) -> Configuration:
    """The configuration of a folder, by default the current one: that of the nearest file above that has any.

    Raises UsageError naming every key and value that is wrong, with file and line.
    """
    values = {name: Value(field.default, "default") for name, field in Settings.model_fields.items() if name != "set"}
    mistakes: list[str] = []
    for name, found in (*_of_file(folder or Path.cwd(), mistakes), *_of_environment(environment, mistakes)):
        values[name] = found
    if mistakes:
        raise UsageError("; ".join(mistakes))
    return Configuration(values)


def _of_file(folder: Path, mistakes: list[str]) -> Iterator[tuple[str, Value]]:
    for above in (folder, *folder.parents):
        path = above / FILE
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        if "aftershock" not in text:
            continue
        try:
            stored = tomllib.loads(text).get("tool", {}).get("aftershock")
        except tomllib.TOMLDecodeError as error:
            mistakes.append(f"{_short(path)}: {error}")
            return
        if stored is not None:
            yield from _of_table(path, text, stored, mistakes)
            return


def _of_table(path: Path, text: str, stored: dict[str, Any], mistakes: list[str]) -> Iterator[tuple[str, Value]]:
    for key, given in stored.items():
        name, where = key.replace("-", "_"), f"{_short(path)}:{line_of(text, key)}"
        if name not in Settings.model_fields:
            mistakes.append(f"{where}: unknown setting '{key}': {_hint(name)}")
        elif name == "set" and isinstance(given, dict):
            for inner, value in given.items():
                yield f"set.{inner.replace('-', '_')}", Value(str(value), f"{_short(path)}:{line_of(text, inner)}")
        else:
            try:
                yield name, Value(_in_place(name, _checked(name, given, strict=True), path.parent), where)
            except ValueError as error:
                mistakes.append(f"{where}: {key} = {given!r}: {error}")


def _of_environment(environment: Mapping[str, str] | None, mistakes: list[str]) -> Iterator[tuple[str, Value]]:
    """What variables say; an empty one says nothing, and one that looks like no setting is somebody else's."""
    for variable, text in sorted((os.environ if environment is None else environment).items()):
        name = variable.removeprefix(PREFIX)
        if not variable.startswith(PREFIX) or name in INTERNAL or not text:
            continue
        if name.lower() not in Settings.model_fields:
            if near := difflib.get_close_matches(name.lower(), Settings.model_fields, n=1, cutoff=0.7):
                mistakes.append(f"{variable}: unknown setting: did you mean {PREFIX}{near[0].upper()}?")
            continue
        try:
            yield from _of_variable(name.lower(), text, variable)
        except ValueError as error:
            mistakes.append(f"{variable}={text}: {error}")


def _of_variable(name: str, text: str, variable: str) -> Iterator[tuple[str, Value]]:
    if name == "set":
        for word in shlex.split(text):
            key, equals, value = word.partition("=")
            if not equals:
                raise ValueError(f"'{word}' is no KEY=VALUE; write several with spaces between them")
            yield f"set.{key.replace('-', '_')}", Value(value, variable)
        return
    given = text.split(os.pathsep) if name in OWN else text
    yield name, Value(_in_place(name, _checked(name, given, strict=False), Path()), variable)


def _checked(name: str, given: Any, *, strict: bool) -> Any:
    """The value as its type.

    Raises ValueError saying what is wrong with it.
    """
    loose = not strict or name in (*OWN, "out")
    try:
        return getattr(Settings.model_validate({name: given}, strict=not loose), name)
    except pydantic.ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].lower()) from error


def _in_place(name: str, value: Any, folder: Path) -> Any:
    """Paths seen from the folder of whatever names them; ``*`` and ``?`` spelt out.

    Raises ValueError for a pattern that nothing fits.
    """
    if name == "out":
        return folder / value
    if name not in OWN:
        return value
    found: list[Path] = []
    for path in value:
        fitting = sorted(folder.glob(str(path))) if re.search(r"[*?\[]", str(path)) else [folder / path]
        if not fitting:
            raise ValueError(f"no file fits {path}")
        found += fitting
    return tuple(found)


def line_of(text: str, key: str) -> int:
    """The line of a key in ``[tool.aftershock]`` or a table below it, from 1; of the table where it is not found."""
    inside, header = False, 1
    for number, line in enumerate(text.splitlines(), 1):
        if table := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            inside = table[1] == "tool.aftershock" or table[1].startswith("tool.aftershock.")
            header = number if table[1] == "tool.aftershock" else header
            if inside and table[1].rsplit(".", 1)[-1] == key:
                return number
        elif inside and re.search(rf"(?:^|[\s{{,.])[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return number
    return header


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name, Settings.model_fields, n=1, cutoff=0.4)
    return f"did you mean '{near[0]}'?" if near else f"known are {', '.join(Settings.model_fields)}"


def _short(path: Path) -> str:
    return os.path.relpath(path)
