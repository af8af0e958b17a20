"""Whether files of the user's own are sound: every mistake in them at once, each with its line."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from chaos.exits import UsageError
from chaos.faults.base import Attack, Fault, Proof, all_faults
from chaos.targets import NoTarget
from chaos.timeouts import TIMEOUTS
from chaos.triggers import PHASES
from metrics.expectations import TERMS
from scenarios import extensions
from scenarios.reading import Problem, Text, near
from scenarios.scenario import Scenario, Suite, all_scenarios

KINDS = {"scenario": "scenario", "fault": "fault", "word": "check"}

NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


def defines(file: Path) -> str:
    """What a sound file defines, in words."""
    taken = extensions.take(file)
    names = [f"{word} {name}" for kind, word in KINDS.items() for name in taken.of(kind)]
    return f"{os.path.relpath(file)}: {', '.join(names)}"


def problems(files: Sequence[Path]) -> list[Problem]:
    """All mistakes in these files, in the order of files and lines; a file is only loaded when its text is sound."""
    extensions.gather()
    texts = {file: _read(file) for file in files}
    found = [problem for text in texts.values() for problem in text.found]
    found += _names_twice(texts)
    wrong = {problem.file for problem in found}
    for file, text in texts.items():
        if text.file not in wrong:
            found += _loaded(file, text)
    order = [text.file for text in texts.values()]
    return sorted(found, key=lambda p: (order.index(p.file) if p.file in order else len(order), p.line))


def _read(file: Path) -> Text:
    shown = os.path.relpath(file)
    try:
        return Text.read(shown, file.read_bytes())
    except OSError as error:
        missing = Problem(shown, 1, f"{error.strerror or error}; name a Python file")
        return Text(shown, ast.Module([], []), [missing])


def _names_twice(texts: dict[Path, Text]) -> Iterator[Problem]:
    """Names that ours have, or that two of the files have."""
    seen: dict[str, str] = {f"fault '{name}'": _file_of(fault) for name, fault in all_faults().items()}
    seen |= {f"scenario '{name}'": extensions.origin("scenario", name) for name in all_scenarios()}
    seen |= {f"check '{word}'": extensions.origin("word", word) for word in TERMS}
    for text in texts.values():
        for named, line in text.named:
            other = seen.get(named)
            if other is not None and other.partition(":")[0] != text.file:
                yield Problem(text.file, line, f"{named} exists already{f', in {other}' * bool(other)}: {WAY_OUT}")
            elif other is not None and ":" in other:
                yield Problem(text.file, line, f"{named} exists already, in {other}: {WAY_OUT}")
            seen[named] = f"{text.file}:{line}"


WAY_OUT = "give this one another name"


def _file_of(fault: type[Fault]) -> str:
    return os.path.relpath(inspect.getfile(fault))


def _loaded(file: Path, text: Text) -> Iterator[Problem]:
    """What only shows when the file is loaded: errors of its own, and plans that could not be run."""
    try:
        taken = extensions.take(file)
    except UsageError as error:
        where = re.match(rf"{re.escape(text.file)}:(\d+): ", str(error))
        told = str(error)[where.end() :] if where else str(error).removeprefix(f"{text.file}: ")
        yield Problem(text.file, int(where[1]) if where else 1, told)
        return
    for name in taken.of("fault"):
        yield from (Problem(text.file, line, told) for line, told in _fault(all_faults()[name], taken))
    for name in taken.of("scenario"):
        line = next((line for named, line in text.named if named == f"scenario '{name}'"), 1)
        yield from (Problem(text.file, line, told) for told in _scenario(all_scenarios()[name]))
    for name in taken.of("word"):
        line = next((line for named, line in text.named if named == f"check '{name}'"), 1)
        yield from (Problem(text.file, line, told) for told in _word(name))


def _scenario(one: Scenario | Suite) -> Iterator[str]:
    """What is wrong with a scenario, as a run would refuse it; with a suite, members that do not exist."""
    from scenarios.request import Options, resolve

    if not NAME.fullmatch(one.name):
        yield f"scenario '{one.name}': its name is part of directories: use small letters, digits, hyphens"
    if isinstance(one, Suite):
        unknown = [name for name in one.members if name != "*" and name not in all_scenarios()]
        yield from (f"suite '{one.name}': unknown scenario '{n}'{near(n, all_scenarios())}" for n in unknown)
        return
    if not isinstance(one.title, str) or not one.title.strip():
        yield f"scenario '{one.name}': its title is empty: say in one sentence what happens"
    try:
        resolve(one, Options())
    except (UsageError, NoTarget) as error:
        yield f"scenario '{one.name}': {error}".replace(f"scenario '{one.name}': scenario", "scenario")
    except (TypeError, AttributeError) as error:
        yield f"scenario '{one.name}': {error}; inject returns a tuple of Arming(fault, trigger, target)"


def _fault(fault: type[Fault], taken: extensions.Taken) -> Iterator[tuple[int, str]]:
    """What is wrong with a fault, each with the line of its attribute, else of its class."""
    if Path(inspect.getfile(fault)) != taken.loaded.file:
        return
    source, first = inspect.getsourcelines(fault)

    def line(attribute: str) -> int:
        pattern = re.compile(rf"\s+(def )?{attribute}\b|class ")
        found = [first + i for i, text in enumerate(source) if pattern.match(text)]
        return found[1] if len(found) > 1 else found[0]

    if not NAME.fullmatch(str(fault.name)):
        yield line("name"), f"fault '{fault.name}': use small letters, digits and hyphens in its name"
    for word in ("effect", "certifies", "not_certified"):
        if not isinstance(getattr(fault, word, None), str):
            yield line(word), f"fault '{fault.name}' lacks {word}, a text: see the page on writing a fault"
    yield from ((line(where), f"fault '{fault.name}': {told}") for where, told in _behaviour(fault))
    if number := extensions.line_of_room(inspect.getfile(fault)):
        yield number, extensions.misplaced(fault, number).split(": ", 1)[1]


def _behaviour(fault: type[Fault]) -> Iterator[tuple[str, str]]:
    """Attributes that contradict each other, or whose values do not exist."""
    proof: Any = getattr(fault, "proof", None)
    if not isinstance(proof, Proof):
        yield "proof", f"proof={proof!r}: use one of {', '.join(f'Proof.{known.name}' for known in Proof)}"
    if issubclass(fault, Attack) and fault.attack is Attack.attack:
        yield "attack", "an Attack needs attack(self, victim, scene), a generator"
    if not issubclass(fault, Attack) and fault.fire is Fault.fire:
        yield "fire", "it needs fire(self), which breaks the process"
    if proof is Proof.ERROR and not fault.error:
        yield "error", "Proof.ERROR needs error, the type that the controller receives"
    for name in set(fault.noticed_by) - TIMEOUTS.keys():
        yield "noticed_by", f"noticed_by: there is no time-out '{name}'{near(name, TIMEOUTS)}"
    for name in set(fault.points) - PHASES.keys():
        yield "points", f"points: there is no phase '{name}'{near(name, PHASES)}"
    yield from _settings(fault)


def _settings(fault: type[Fault]) -> Iterator[tuple[str, str]]:
    """Settings without a default, or of a type that does not travel to training processes."""
    for setting in dataclasses.fields(fault):
        if setting.default is dataclasses.MISSING:
            yield setting.name, f"setting {setting.name} needs a default"
        elif not isinstance(setting.default, (int, float, str)):
            yield setting.name, f"{setting.name}={setting.default!r}: settings are numbers, texts or booleans"


def _word(name: str) -> Iterator[str]:
    """What is wrong with the settings of a check."""
    for setting, parameter in inspect.signature(TERMS[name]).parameters.items():
        kind = str(getattr(parameter.annotation, "__name__", parameter.annotation))
        if kind not in ("int", "float", "str") and "None" not in kind:
            yield f"check '{name}': setting {setting} needs a type: int, float or str"
    if not inspect.getdoc(TERMS[name]):
        yield f"check '{name}' lacks a docstring: its first line is what `aftershock list expectations` shows"
