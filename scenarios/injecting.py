"""``--inject 'FAULT; TRIGGER; TARGET'``: a scenario made of names on the command line; nothing in them is executed.

kill; at_step(25); Rank(1)
hang(seconds=20); in_phase("save") & at_step(20); Some(1, All())
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from chaos.exits import UsageError
from chaos.faults.base import Fault, all_faults
from chaos.schedule import Arming
from chaos.targets import TARGETS, Target
from chaos.triggers import TRIGGERS, Trigger
from metrics.expectations import HEALTHY, UNDISTURBED
from scenarios.scenario import Scenario

NAME = "injected"
"""What such a scenario is called in its record and its directory."""

Calls = Mapping[str, Callable[..., Any]]


def scenario(texts: Sequence[str]) -> Scenario:
    """The scenario that these injections make: a healthy recovery is expected, or none where nothing breaks the job.

    Raises UsageError naming what is not understood.
    """
    armings = tuple(arming(text) for text in texts)
    breaks = any(one.fault.breaks for one in armings)
    return Scenario(
        name=NAME,
        title=f"As asked for: {', '.join(texts)}.",
        inject=lambda shape: armings,
        expects=HEALTHY if breaks else UNDISTURBED,
    )


def arming(text: str) -> Arming:
    """A fault, its trigger and its target, written with semicolons between them.

    Raises UsageError naming what is not understood.
    """
    parts = [part.strip() for part in text.split(";")]
    if len(parts) != 3 or not all(parts):
        raise UsageError(f"--inject '{text}': write FAULT; TRIGGER; TARGET, such as 'kill; at_step(25); Rank(1)'")
    try:
        fault = _fault(parts[0])
        trigger = _evaluated(parts[1], {build.__name__: build for build in TRIGGERS}, "trigger")
        target = _evaluated(parts[2], {build.__name__: build for build in TARGETS}, "target")
        if not isinstance(trigger, Trigger) or not isinstance(target, Target):
            raise UsageError(f"'{parts[1] if not isinstance(trigger, Trigger) else parts[2]}' is in the wrong place")
    except (UsageError, ValueError, TypeError) as error:
        raise UsageError(f"--inject '{text}': {error}") from error
    return Arming(fault, trigger, target)


def _fault(text: str) -> Fault:
    name, bracket, rest = text.partition("(")
    faults: Calls = {known.replace("-", "_"): fault for known, fault in all_faults().items()}
    word = name.strip().replace("-", "_")
    found: Fault = _evaluated(f"_{word}({rest}" if bracket else f"_{word}()", {f"_{k}": f for k, f in faults.items()})
    return found


def _evaluated(text: str, known: Calls, what: str = "fault") -> Any:
    try:
        return _built(ast.parse(text, mode="eval").body, known, what)
    except SyntaxError as error:
        raise UsageError(f"'{text.lstrip('_')}' is not understood: {error.msg}") from error


def _built(node: ast.expr, known: Calls, what: str) -> Any:
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return _built(left, known, what) & _built(right, known, what)
        case ast.BinOp(left=left, op=ast.RShift(), right=right):
            return _built(left, known, what) >> _built(right, known, what)
        case ast.Call(func=ast.Attribute(value=inner, attr="repeat"), args=args, keywords=[]):
            return _built(inner, known, what).repeat(*(_built(arg, known, what) for arg in args))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            if name not in known:
                raise UsageError(f"unknown {what} '{_plain(name)}'{_hint(name, known)}")
            settings = {str(keyword.arg): _built(keyword.value, known, what) for keyword in keywords}
            return known[name](*(_built(arg, known, what) for arg in args), **settings)
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    raise UsageError(f"'{_plain(ast.unparse(node))}' is no {what}; `aftershock list {what}s` shows them")


def _plain(name: str) -> str:
    """A fault's name as users write it; it is looked for behind an underscore, since some are Python's own words."""
    return name[1:].replace("_", "-") if re.match(r"_[a-z]", name) else name


def _hint(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f": did you mean '{_plain(near[0])}'?" if near else ""
