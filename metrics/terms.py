"""What an expectation is made of: terms with bounds, which compose; the words themselves are in ``expectations``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chaos.exits import UsageError
from chaos.own import place_of
from metrics.verdict import Case, Check, Finding, Verdict, guarded, worst_of

NamedCheck = tuple[str, Check]


@dataclass(frozen=True)
class Bound:
    """``steps <= 10``: a quantity with its bound."""

    name: str
    sign: str
    value: float


@dataclass(frozen=True)
class Quantity:
    """A name that becomes a bound when compared: ``steps <= 10``, ``times == 3``."""

    name: str

    def __le__(self, value: float) -> Bound:
        return Bound(self.name, "<=", value)

    def __ge__(self, value: float) -> Bound:
        return Bound(self.name, ">=", value)

    def __eq__(self, value: object) -> Any:
        return Bound(self.name, "==", value)  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]


SIGNS = {
    "restarts.times": "==",
    "fails.error": "==",
    "names.error": "==",
    "beats_defaults.times": ">=",
    "stays_productive.share": ">=",
    "resizes.worlds": "==",
    "preempts.times": "==",
}
"""How settings are compared that are no upper bounds."""


@dataclass(frozen=True)
class Term:
    """One word of an expectation with its settings, and the checks that it stands for."""

    name: str
    settings: tuple[tuple[str, Any], ...]
    checks: tuple[NamedCheck, ...] = field(compare=False)

    def __str__(self) -> str:
        told = (f"{key}={value!r}" for key, value in self.settings)
        return f"{self.name}({', '.join(told)})"


@dataclass(frozen=True)
class Either:
    """Two expectations of which one must hold."""

    first: Expectation
    second: Expectation

    @property
    def name(self) -> str:
        """By this name a user's own term replaces it."""
        return "either"

    @property
    def checks(self) -> tuple[NamedCheck, ...]:
        """One check, which passes when all checks of one side do."""
        return (("either", self._check),)

    def _check(self, case: Case) -> Finding:
        expected = str(self)
        sides = [[guarded(name, check, case) for name, check in side.checks] for side in (self.first, self.second)]
        verdicts = [worst_of(found) for found in sides]
        if Verdict.PASS in verdicts:
            held = verdicts.index(Verdict.PASS)
            seen = f"{(self.first, self.second)[held]}: " + "; ".join(finding.seen for finding in sides[held])
            return Finding("either", Verdict.PASS, expected, seen)
        verdict = Verdict.UNKNOWN if Verdict.UNKNOWN in verdicts else Verdict.FAIL
        seen = " / ".join(_first_bad(side) for side in sides)
        return Finding("either", verdict, expected, seen)

    def __str__(self) -> str:
        return f"({self.first}) | ({self.second})"


def _first_bad(findings: list[Finding]) -> str:
    """What the finding that decides says."""
    bad = next((f for f in findings if f.verdict is worst_of(findings)), findings[0] if findings else None)
    return f"{bad.check}: {bad.seen}" if bad else "nothing was checked"


@dataclass(frozen=True)
class Expectation:
    """A conjunction of terms."""

    terms: tuple[Term | Either, ...]

    def __and__(self, other: Expectation) -> Expectation:
        return Expectation((*self.terms, *other.terms))

    def __or__(self, other: Expectation) -> Expectation:
        return Expectation((Either(self, other),))

    @property
    def checks(self) -> tuple[NamedCheck, ...]:
        """The checks of all terms, in order."""
        return tuple(check for term in self.terms for check in term.checks)

    def but(self, other: Expectation) -> Expectation:
        """This one, with the other's terms in place of its own of the same names, and beside the rest."""
        theirs = {term.name: [t for t in other.terms if t.name == term.name] for term in other.terms}
        kept: list[Term | Either] = []
        for term in self.terms:
            kept += theirs.pop(term.name, []) if term.name in {t.name for t in other.terms} else [term]
        return Expectation((*kept, *(term for terms in theirs.values() for term in terms)))

    def __str__(self) -> str:
        lone = len(self.terms) == 1
        return " & ".join(str(term) if lone or isinstance(term, Term) else f"({term})" for term in self.terms)


TERMS: dict[str, Callable[..., Expectation]] = {}
"""The words that an expectation is made of."""


def term(build: Callable[..., list[NamedCheck]]) -> Callable[..., Expectation]:
    """Make a word of a function that turns settings into checks; settings may be given as bounds."""

    @functools.wraps(build)
    def word(*bounds: Bound, **settings: Any) -> Expectation:
        known = inspect.signature(build).parameters
        given = {**settings, **{bound.name: bound.value for bound in bounds}}
        if len(given) < len(settings) + len(bounds):
            raise UsageError(f"{build.__name__}: a value is given twice")
        for name in given.keys() - known.keys():
            raise UsageError(f"{build.__name__} knows no '{name}': it takes {', '.join(known) or 'nothing'}")
        for bound in bounds:
            wanted = SIGNS.get(f"{build.__name__}.{bound.name}", "<=")
            if bound.sign != wanted:
                raise UsageError(f"{bound.name} {bound.sign} {bound.value}: write {bound.name} {wanted} {bound.value}")
        if lacking := [n for n, p in known.items() if p.default is inspect.Parameter.empty and n not in given]:
            raise UsageError(f"{build.__name__} needs a value for '{lacking[0]}'")
        _check_types(build.__name__, known, given)
        told = tuple((name, value) for name, value in given.items() if value is not None)
        return Expectation((Term(build.__name__, told, tuple(build(**given))),))

    taken = TERMS.get(build.__name__)
    if taken is not None and place_of(taken) != place_of(build):
        raise UsageError(f"a word called '{build.__name__}' exists already: give this check another name")
    TERMS[build.__name__] = word
    return word


def check(judge: Callable[..., Finding]) -> Callable[..., Expectation]:
    """Make a word of one check: a function of a case, and of settings with types and defaults, that gives a Finding.

    The check bears the function's name, with hyphens.
    """

    def build(**settings: Any) -> list[NamedCheck]:
        return [(name, functools.partial(_judged, judge, name, settings))]

    name = judge.__name__.replace("_", "-")
    functools.update_wrapper(build, judge)
    settings = list(inspect.signature(judge).parameters.values())[1:]
    build.__signature__ = inspect.Signature(settings)  # type: ignore[attr-defined]
    return term(build)


def _judged(judge: Callable[..., Finding], name: str, settings: dict[str, Any], case: Case) -> Finding:
    """What it finds; what it prints goes to standard error, and what is no finding is a mistake of its own."""
    with contextlib.redirect_stdout(sys.stderr):
        found = judge(case, **settings)
    if not isinstance(found, Finding):
        raise TypeError(f"{judge.__name__} returned {found!r}: return a Finding")
    return dataclasses.replace(found, check=name)


def _check_types(word: str, known: Any, given: dict[str, Any]) -> None:
    for name, value in given.items():
        annotation = known[name].annotation
        kind = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        if value is None and "None" in kind:
            continue
        right: tuple[type, ...] = (str,) if kind == "str" else (int,) if "int" in kind else (int, float)
        if not isinstance(value, right) or isinstance(value, bool):
            wanted = "a text in quotes" if str in right else "a number" if float in right else "a whole number"
            raise UsageError(f"{word}({name}={value!r}): {name} is {wanted}")
        if isinstance(value, (int, float)) and not 0 <= value < math.inf:
            raise UsageError(f"{word}({name}={value!r}): {name} must be finite and not negative")
