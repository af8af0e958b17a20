"""Files of the user's own: faults, scenarios and checks, imported by their path.

This module is imported inside training processes, where it loads the faults that a plan names.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Loaded:
    """A file, or an installed module, that was imported; ``beside``: the files next to it that it imports itself."""

    module: ModuleType
    file: Path
    beside: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All of them, its own first."""
        return (self.file, *self.beside)


_LOADED: dict[str, Loaded] = {}


def load(source: str | Path, text_from: str | Path = "") -> Loaded:
    """Import a file by its path, or an installed module by its name, once in a process.

    Modules next to the file can be imported by it, after everything else. What it prints goes to standard error.
    ``text_from``: a copy of the file that is read in its place. Raises whatever the file raises.
    """
    if not str(source).endswith(".py"):
        module = importlib.import_module(str(source))
        found = Loaded(module, Path(str(module.__file__)))
        return _LOADED.setdefault(str(found.file), found)
    path = Path(source).resolve()
    if str(path) in _LOADED:
        return _LOADED[str(path)]
    _LOADED[str(path)] = found = _imported(path, Path(text_from or path))
    return found


def _imported(path: Path, text_from: Path) -> Loaded:
    known = {str(getattr(module, "__file__", "")): module for module in list(sys.modules.values())}
    if str(path) in known:
        return Loaded(known[str(path)], path)
    if (folder := str(text_from.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    name = _name_for(path, text_from)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(text_from.read_bytes(), str(path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    files = {Path(str(getattr(other, "__file__", ""))) for other in list(sys.modules.values())}
    beside = {file for file in files if file.parent == Path(folder) and str(file) not in known and file != path}
    return Loaded(module, path, tuple(sorted(beside)))


def _name_for(path: Path, text_from: Path) -> str:
    """The module's name: the one by which its neighbours import it, unless that is another module's."""
    if path.stem.isidentifier() and path.stem not in sys.modules:
        spec = importlib.util.find_spec(path.stem)
        if spec is not None and spec.origin in (str(path), str(text_from.resolve())):
            return path.stem
    return f"own_{re.sub(r'[^a-zA-Z0-9]', '_', path.stem)}_{len(_LOADED)}"


def loaded() -> tuple[Loaded, ...]:
    """All that was loaded in this process, in order."""
    return tuple(_LOADED.values())


def owns(file: str) -> bool:
    """Whether a file is one of the user's own that was loaded."""
    return any(Path(file) in one.files for one in _LOADED.values())


def lines(error: BaseException) -> list[str]:
    """Where in the user's own files an error came from, the innermost last: file, line, function, text of the line."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{Path(f.filename).name}:{f.lineno} in {f.name}: {f.line}" for f in frames if owns(f.filename)]


def place_of(definition: type | object) -> tuple[str, str]:
    """Where a class or a function is defined: its file and its name there; the same for a file imported twice."""
    module = sys.modules.get(str(getattr(definition, "__module__", "")))
    return str(getattr(module, "__file__", "")), str(getattr(definition, "__qualname__", ""))
