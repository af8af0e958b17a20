"""The user's own scenarios, faults and checks: from files, from the configuration and from installed distributions."""

from __future__ import annotations

import ast
import inspect
import os
import shutil
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import msgspec

from chaos import own
from chaos.agent.plan import Injection
from chaos.exits import UsageError
from chaos.faults import base
from chaos.faults.base import Fault, all_faults
from metrics.expectations import TERMS, Either, Expectation
from metrics.verdict import RECORD, Record
from scenarios import configuration, injecting, scenario
from scenarios.scenario import Chosen, Scenario, Suite, all_scenarios

GROUPS = ("aftershock.faults", "aftershock.checks", "aftershock.scenarios")
"""Entry points by which an installed distribution offers its own, in the order in which they are loaded."""

FOLDER = "sources"
"""Where a run keeps copies of the files of the user's own that it needs."""

ROOMS = ("scenarios", "metrics", "trainer")
"""Packages that must not come into training processes."""


@dataclass(frozen=True)
class Taken:
    """A file that was loaded, what it defines, and how it was named."""

    loaded: own.Loaded
    asked: str
    names: frozenset[tuple[str, str]]

    def of(self, kind: str) -> tuple[str, ...]:
        """The names of its ``scenario``s, ``fault``s or ``word``s, sorted."""
        return tuple(sorted(name for found, name in self.names if found == kind))


_TAKEN: dict[str, Taken] = {}


def gather(files: Iterable[Path] = (), *, configured: bool = True) -> None:
    """Load what installed distributions offer, what the configuration names, and these files.

    Raises UsageError for what cannot be loaded, with file and line.
    """
    for group in GROUPS:
        for point in metadata.entry_points(group=group):
            _take_point(point)
    for path in (*(configuration.load().own if configured else ()), *files):
        take(path)


def take(path: Path, text_from: Path | None = None) -> Taken:
    """Load a file of the user's own, once.

    Raises UsageError when it cannot be loaded, or defines nothing.
    """
    shown = os.path.relpath(path)
    if not path.is_file() and text_from is None:
        raise UsageError(f"{shown}: no such file; name a Python file, or write one with `aftershock new`")
    key = str(path.resolve())
    if key not in _TAKEN:
        before = _known()
        try:
            loaded = own.load(path, text_from or "")
        except (Exception, SystemExit) as error:
            raise UsageError(f"{place(error, shown)}: {told(error)}") from error
        found = Taken(loaded, shown, frozenset((_known() - before) | _defined_in(loaded.file)))
        if not found.names:
            raise UsageError(f"{shown} defines no scenario, fault or check: each is made known by @register or @check")
        _TAKEN[key] = found
    return _TAKEN[key]


def _take_point(point: metadata.EntryPoint) -> None:
    by = f"entry point '{point.name}' of {point.dist.name if point.dist else 'an installed distribution'}"
    if point.value in _TAKEN:
        return
    before = _known()
    try:
        found = point.load()
        if isinstance(found, (Scenario, Suite)):
            scenario.register(found)
        loaded = own.load(point.module)
    except Exception as error:
        raise UsageError(f"{by} cannot be loaded: {error!r}; repair or uninstall it") from error
    _TAKEN[point.value] = Taken(loaded, by, frozenset((_known() - before) | _defined_in(loaded.file)))


def _known() -> set[tuple[str, str]]:
    """Everything that can be named so far, ours before all else."""
    kinds: dict[str, Iterable[str]] = {"fault": all_faults(), "scenario": all_scenarios(), "word": TERMS}
    return {(kind, name) for kind, names in kinds.items() for name in names}


def _defined_in(file: Path) -> set[tuple[str, str]]:
    """What a file defines that was imported by another one before."""
    kinds: dict[str, Mapping[str, object]] = {"fault": all_faults(), "word": TERMS}
    defined = {(k, name): own.place_of(found)[0] for k, names in kinds.items() for name, found in names.items()}
    return {name for name, place in defined.items() if place == str(file)}


def place(error: BaseException, shown: str) -> str:
    """File and line that an error points to: the innermost of the user's own; the file itself where none is known."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.relpath(error.filename)}:{error.lineno or 1}"
    name = os.path.basename(shown)
    numbers = [line.split(":")[1].split(" ")[0] for line in _lines(error) if line.startswith(f"{name}:")]
    return f"{shown}:{numbers[-1]}" if numbers else shown


def _lines(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}" for frame in frames]


def told(error: BaseException) -> str:
    """An error as a user reads it: the message alone of a mistake that we have found, else its type before it."""
    if isinstance(error, SyntaxError):
        return error.msg
    return str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"


# Names on the command line


def members(names: Sequence[str], inject: Sequence[str] = ()) -> Chosen:
    """The scenarios of those names, or of files, suites unfolded, each once; or the one that injections make.

    Raises UsageError when there is no such scenario, suite or file.
    """
    if inject:
        if names:
            raise UsageError(f"--inject makes a scenario of its own: leave out {' '.join(names)}")
        return Chosen((injecting.scenario(inject),), "")
    if not names:
        raise UsageError("Missing argument 'SCENARIO...': name one, or say what breaks with --inject")
    return scenario.members([name for asked in names for name in (_of_file(asked) if is_file(asked) else (asked,))])


def is_file(asked: str) -> bool:
    """Whether a word names a file, or one scenario of a file: ``FILE::NAME``."""
    return asked.partition("::")[0].endswith(".py")


def _of_file(asked: str) -> tuple[str, ...]:
    file, _, wanted = asked.partition("::")
    found = take(Path(file)).of("scenario")
    if not found:
        raise UsageError(f"{file} registers no scenario: name one of its own with register(Scenario(...))")
    if wanted and wanted not in found:
        raise UsageError(f"{asked}: {file} registers no scenario '{wanted}', but {', '.join(found)}")
    return (wanted,) if wanted else found


def word_for(name: str, asked: Sequence[str]) -> str:
    """How the command names a scenario again: as a file, where it was asked for so."""
    for taken in _TAKEN.values():
        named = {Path(word.partition("::")[0]).resolve() for word in asked if is_file(word)}
        if taken.loaded.file in named and name in taken.of("scenario"):
            return taken.asked if len(taken.of("scenario")) == 1 else f"{taken.asked}::{name}"
    return name


def origin(kind: str, name: str) -> str:
    """The file or the distribution that a name comes from; empty for ours."""
    return next((taken.asked for taken in _TAKEN.values() if (kind, name) in taken.names), "")


# What a run takes along


def needed(name: str, injections: Iterable[Injection], expects: Expectation) -> list[Taken]:
    """What was loaded that a scenario's run needs: its file, and those of its faults and of its words."""
    used = {("scenario", name), *(("fault", i.fault) for i in injections), *(("word", w) for w in _words(expects))}
    return [taken for taken in _TAKEN.values() if taken.names & used]


def _words(expects: Expectation) -> Iterator[str]:
    for term in expects.terms:
        if isinstance(term, Either):
            yield from (*_words(term.first), *_words(term.second))
        else:
            yield term.name


def copies(taken: Sequence[Taken], directory: Path) -> dict[Path, Path]:
    """Where a run directory keeps each file; installed modules are not kept."""
    files = [one for one in taken if is_file(one.asked)]
    found: dict[Path, Path] = {}
    for number, one in enumerate(files):
        for file in one.loaded.files:
            found.setdefault(file, directory / FOLDER / str(number) / file.name)
    return found


def keep(taken: Sequence[Taken], directory: Path) -> list[str]:
    """Copy files into a run directory; returns the copies to be loaded again, seen from there."""
    kept = copies(taken, directory)
    for file, copy in kept.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    mains = [one.loaded.file for one in taken]
    return [str(copy.relative_to(directory)) for file, copy in kept.items() if file in mains]


def for_agent(taken: Sequence[Taken], injections: Iterable[Injection], directory: Path) -> dict[str, str]:
    """What training processes must load to fire these injections: files with their copies, or installed modules."""
    kept, found = copies(taken, directory), {}
    for fault in {all_faults()[injection.fault] for injection in injections}:
        file = Path(inspect.getfile(fault))
        if file in kept:
            found[str(file)] = str(kept[file])
        elif not fault.__module__.startswith(f"{base.__package__}."):
            found[fault.__module__] = ""
    return found


def check_carried(injections: Iterable[Injection]) -> None:
    """Refuse faults of the user's own whose file brings rooms into training processes that do not belong there.

    Raises UsageError naming the line and the way out.
    """
    for fault in {all_faults()[injection.fault] for injection in injections}:
        if own.owns(inspect.getfile(fault)) and (line := line_of_room(inspect.getfile(fault))):
            raise UsageError(misplaced(fault, line))


def misplaced(fault: type[Fault], line: int) -> str:
    """That a fault stands in a file which cannot be taken into training processes."""
    shown = os.path.relpath(inspect.getfile(fault))
    return (
        f"{shown}:{line}: fault '{fault.name}' is loaded inside training processes, where only the standard library "
        "and chaos belong: give it a file of its own, without this import"
    )


def line_of_room(file: str) -> int:
    """The first line on which a file imports one of our rooms but ``chaos``; 0 for none."""
    for node in ast.walk(ast.parse(Path(file).read_bytes())):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if any(module.split(".")[0] in ROOMS for module in modules):
            return int(getattr(node, "lineno", 1))
    return 0


def of_run(directory: Path, files: Sequence[Path] = ()) -> None:
    """Load what a stored run needs: its own copies, but for those in whose place a file of the same name is given.

    Raises UsageError for what cannot be loaded.
    """
    gather(files, configured=False)
    instead = {path.name for path in files}
    for source in _sources_of(directory):
        if Path(source).name not in instead and not _is_loaded(directory / source):
            take(directory / source)


def _sources_of(directory: Path) -> list[str]:
    """The copies that a run tells of; none where it cannot be read, which the judge will say."""
    try:
        return msgspec.json.decode((directory / RECORD).read_bytes(), type=Record).sources
    except (OSError, msgspec.MsgspecError):
        return []


def _is_loaded(copy: Path) -> bool:
    """Whether a file of this name and content is loaded already, as after a run in this process."""
    text = copy.read_bytes() if copy.is_file() else b""
    return any(
        one.file.name == copy.name and one.file.read_bytes() == text for one in own.loaded() if one.file.exists()
    )
