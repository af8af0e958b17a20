"""Reading a file of the user's own without running it: every mistake that can be told from its text, with its line."""

from __future__ import annotations

import ast
import builtins
import difflib
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from metrics.expectations import TERMS
from scenarios import words

ROOMS = ("chaos", "metrics", "scenarios")
KINDS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}
"""Annotations that a constant can be held against."""


@dataclass(frozen=True, order=True)
class Problem:
    """A mistake: file, line from 1, and what is wrong with the way out."""

    file: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.problem}"


@dataclass
class Text:
    """A file as it is written. ``named``: what it gives names to, as (name, line)."""

    file: str
    tree: ast.Module
    found: list[Problem] = field(default_factory=list)
    objects: dict[str, Any] = field(default_factory=dict)
    named: list[tuple[str, int]] = field(default_factory=list)

    @classmethod
    def read(cls, file: str, text: str | bytes) -> Text:
        """Read a text and find what is wrong with it; a text that is no Python has one problem."""
        try:
            read = cls(file, ast.parse(text))
        except (SyntaxError, ValueError) as error:
            line, told = getattr(error, "lineno", None) or 1, getattr(error, "msg", str(error))
            return cls(file, ast.Module([], []), [Problem(file, line, f"no Python: {told}")])
        for look in (read._imports, read._names, read._calls, read._classes):
            read.found += [Problem(file, line, told) for line, told in look()]
        return read

    def _imports(self) -> Iterator[tuple[int, str]]:
        """Imports from our rooms; what they bring is kept by its name here."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ROOMS:
                yield from self._import(node)

    def _import(self, node: ast.ImportFrom) -> Iterator[tuple[int, str]]:
        module = node.module or ""
        if not _exists(module):
            yield node.lineno, f"there is no module '{module}'{near(module, _modules_beside(module))}"
            return
        brought = importlib.import_module(module)
        for alias in node.names:
            if alias.name == "*":
                self.objects |= {name: getattr(brought, name) for name in dir(brought)}
            elif hasattr(brought, alias.name):
                self.objects[alias.asname or alias.name] = getattr(brought, alias.name)
            elif not _exists(f"{module}.{alias.name}"):
                known = [name for name in dir(brought) if not name.startswith("_")]
                yield alias.lineno, f"{module} has no '{alias.name}'{near(alias.name, known)}"

    def _names(self) -> Iterator[tuple[int, str]]:
        """Names that nothing in the file makes."""
        known = {*dir(builtins), *self.objects, *_bound(self.tree), "__file__", "__name__", "__doc__"}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in known:
                hint = near(node.id, {*known, *words.__all__})
                if node.id in words.__all__:
                    hint = f": import it, from scenarios.words import {node.id}"
                yield node.lineno, f"unknown name '{node.id}'{hint}"

    def _calls(self) -> Iterator[tuple[int, str]]:
        """Calls of what is ours: settings that do not exist, are missing or of a wrong type."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.objects:
                called = self.objects[node.func.id]
                if callable(called):
                    yield from _call(node, node.func.id, called)
                    self._note_name(node, called)

    def _note_name(self, node: ast.Call, called: Any) -> None:
        if called in (words.Scenario, words.Suite):
            values = [keyword.value for keyword in node.keywords if keyword.arg == "name"]
            names = [value.value for value in values if isinstance(value, ast.Constant)]
            self.named += [(f"scenario '{name}'", node.lineno) for name in names if isinstance(name, str)]

    def _classes(self) -> Iterator[tuple[int, str]]:
        """The names of faults and of checks that are registered."""
        for node in self.tree.body:
            marks = {d.id for d in getattr(node, "decorator_list", []) if isinstance(d, ast.Name)}
            if isinstance(node, ast.ClassDef) and "register" in marks:
                name = next((_constant_of(line) for line in node.body if _assigned(line) == "name"), None)
                self.named += [(f"fault '{name}'", node.lineno)] if name else []
            elif isinstance(node, ast.FunctionDef) and "check" in marks:
                self.named.append((f"check '{node.name}'", node.lineno))
        yield from ()


def _call(node: ast.Call, name: str, called: Callable[..., Any]) -> Iterator[tuple[int, str]]:
    try:
        known = inspect.signature(called).parameters
    except (TypeError, ValueError):
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg not in known:
            yield keyword.value.lineno, f"{name} knows no '{keyword.arg}'{near(keyword.arg, known)}"
        elif keyword.arg is not None:
            yield from _typed(keyword.value, f"{name}({keyword.arg}=", known[keyword.arg].annotation)
    if (
        name in TERMS
        or any(isinstance(arg, ast.Starred) for arg in node.args)
        or None in {k.arg for k in node.keywords}
    ):
        return  # the words take bounds by position
    places = [p for p in known.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(node.args) > len(places):
        takes = ", ".join(known) or "nothing"
        yield node.lineno, f"{name} takes no {len(node.args)} values in a row: it takes {takes}, by name where in doubt"
    for arg, parameter in zip(node.args, places, strict=False):
        yield from _typed(arg, f"{name}({parameter.name}=", parameter.annotation)
    given = {p.name for p in places[: len(node.args)]} | {k.arg for k in node.keywords}
    given |= {meant for odd in given - {*known} for meant in difflib.get_close_matches(str(odd), known, n=1)}
    if lacking := [n for n, p in known.items() if p.default is p.empty and n not in given]:
        yield node.lineno, f"{name} needs {', '.join(lacking)}"


def _typed(node: ast.expr, where: str, annotation: Any) -> Iterator[tuple[int, str]]:
    """A constant of another type than the annotation says, where it says a simple one."""
    kinds = KINDS.get(annotation if isinstance(annotation, str) else getattr(annotation, "__name__", ""))
    value = _constant_of(node)
    if kinds is None or value is None or (isinstance(value, bool) and bool not in kinds):
        if kinds is not None and isinstance(value, bool):
            yield node.lineno, f"{where}{value!r}): a {_word(kinds)} is needed"
        return
    if not isinstance(value, kinds):
        yield node.lineno, f"{where}{value!r}): a {_word(kinds)} is needed"


def _word(kinds: tuple[type, ...]) -> str:
    return {int: "whole number", str: "text", bool: "True or False"}.get(kinds[0], "") if len(kinds) == 1 else "number"


def _constant_of(node: ast.AST) -> Any:
    """The value of a constant, or of an assignment of one; None for anything else."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        return _constant_of(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant_of(node.operand)
        return -value if isinstance(value, (int, float)) else None
    return node.value if isinstance(node, ast.Constant) else None


def _assigned(node: ast.stmt) -> str:
    """The name that a line gives a value to; empty for none."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else ""


def _bound(tree: ast.AST) -> Iterator[str]:
    """Every name that a file binds, wherever."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.split(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


def near(name: str, known: Iterable[str]) -> str:
    """The nearest known name as the end of a sentence; empty where none is near."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f": did you mean '{found[0]}'?" if found else ""


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _modules_beside(module: str) -> list[str]:
    """The modules of the package that a module would be in."""
    package = module.rpartition(".")[0]
    if not package or not _exists(package):
        return [name for room in ROOMS for name in (room, *_modules_beside(f"{room}.?"))] if package else list(ROOMS)
    return [f"{package}.{found.name}" for found in pkgutil.iter_modules(importlib.import_module(package).__path__)]
