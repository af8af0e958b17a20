"""What a scenario expects of the recovery, in sentences that compose and can be written on a command line.

    recovers(within=60) & loses(steps<=10) & matches_control()
    (recovers() & completes()) | fails(error="WorkerGroupError")

A term stands for one or more checks with its bounds; ``&`` asks for all, ``|`` accepts either. The text of an
expectation is stored with the run, so that ``analyze`` judges by the same one.
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chaos.exits import UsageError
from metrics import budgets, continuity, control, detection, growth, recovery
from metrics.checkpoints import content
from metrics.verdict import Case, Check, Finding, Verdict, guarded

NamedCheck = tuple[str, Check]

SHOWN = 200
"""How much of a text that is not understood is repeated."""


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


steps, within, times, by = (Quantity(name) for name in ("steps", "within", "times", "by"))

SIGNS = {"restarts.times": "==", "fails.error": "==", "names.error": "==", "beats_defaults.times": ">="}
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
        verdicts = [_worst(found) for found in sides]
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
    bad = next((f for f in findings if f.verdict is _worst(findings)), findings[0] if findings else None)
    return f"{bad.check}: {bad.seen}" if bad else "nothing was checked"


def _worst(findings: list[Finding]) -> Verdict:
    verdicts = {finding.verdict for finding in findings}
    return next((v for v in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS) if v in verdicts), Verdict.UNKNOWN)


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


def _term(build: Callable[..., list[NamedCheck]]) -> Callable[..., Expectation]:
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

    TERMS[build.__name__] = word
    return word


def _check_types(word: str, known: Any, given: dict[str, Any]) -> None:
    for name, value in given.items():
        kind = str(known[name].annotation)
        if value is None and "None" in kind:
            continue
        right: tuple[type, ...] = (str,) if kind == "str" else (int,) if "int" in kind else (int, float)
        if not isinstance(value, right) or isinstance(value, bool):
            wanted = "a text in quotes" if str in right else "a number" if float in right else "a whole number"
            raise UsageError(f"{word}({name}={value!r}): {name} is {wanted}")
        if isinstance(value, (int, float)) and not 0 <= value < math.inf:
            raise UsageError(f"{word}({name}={value!r}): {name} must be finite and not negative")


@_term
def recovers(within: float = 120.0) -> list[NamedCheck]:
    """After each fault training passes the step count from before it, within so many seconds."""
    return [("recovered", functools.partial(recovery.check, bound=within))]


@_term
def restarts(times: int | None = None) -> list[NamedCheck]:
    """The worker group restarts that often; by default once for each attempt that faults hit."""
    return [("restarts", functools.partial(budgets.check, times=times))]


@_term
def loses(steps: int | None = None) -> list[NamedCheck]:
    """No fault costs more steps; by default than the checkpoint interval, a poll and one report explain."""
    return [("lost-steps", functools.partial(continuity.check_lost_steps, steps=steps))]


@_term
def completes() -> list[NamedCheck]:
    """The training script ends well, with every step complete on every rank."""
    return [("completed", continuity.check_completed)]


@_term
def resumes() -> list[NamedCheck]:
    """Every restarted rank reads the checkpoint committed last, and holds what was saved."""
    return [("resume-step", continuity.check_resume_step), ("restored-state", content.check_restored)]


@_term
def keeps_every_step() -> list[NamedCheck]:
    """The effective history has every step and every sample exactly once."""
    return [("steps", continuity.check_steps), ("samples", continuity.check_samples)]


@_term
def keeps_checkpoints() -> list[NamedCheck]:
    """The committed checkpoints that retention keeps are whole on disk."""
    return [("checkpoints", content.check_stored)]


@_term
def matches_control() -> list[NamedCheck]:
    """Losses, samples and saved state equal those of a run without a fault, bitwise."""
    return [("trajectory", control.check_trajectory), ("control-state", control.check_state)]


@_term
def fails(error: str) -> list[NamedCheck]:
    """The job ends in that type of error, and says so."""
    return [("failed", functools.partial(budgets.check_failed, error=error))]


@_term
def names(error: str) -> list[NamedCheck]:
    """The controller is told that type of error as the cause."""
    return [("cause", functools.partial(budgets.check_named, error=error))]


@_term
def beats_defaults(times: float) -> list[NamedCheck]:
    """The hang is over that many times sooner than Ray's defaults would notice it."""
    return [("detection", functools.partial(detection.check, times=times))]


@_term
def stays_flat(by: float = 0.25) -> list[NamedCheck]:
    """Time, open files and memory grow by no more than that share over all restarts, processes not at all."""
    return [("growth", functools.partial(growth.check, by=by))]


HEALTHY = recovers() & restarts() & loses() & completes() & resumes()
HEALTHY = HEALTHY & keeps_every_step() & keeps_checkpoints() & matches_control()
"""What every healthy recovery keeps."""

UNDISTURBED = restarts(times=0) & completes() & keeps_every_step() & keeps_checkpoints() & matches_control()
"""What a job keeps that is disturbed and must not restart."""


def parse(text: str) -> Expectation:
    """The expectation that a text writes down; nothing in it is executed but the words above.

    Raises UsageError naming what is not understood and the way out.
    """
    shown = repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
    try:
        built = _built(ast.parse(text.strip(), mode="eval").body)
        str(built)
    except SyntaxError as error:
        raise UsageError(f"--expect {shown}: {error.msg}; write for example 'recovers(within=60)'") from error
    except (ValueError, MemoryError, RecursionError) as error:
        raise UsageError(f"--expect {shown}: it cannot be read ({type(error).__name__}); write fewer words") from error
    except UsageError as error:
        raise UsageError(f"--expect {shown}: {error}") from error
    return built


def _built(node: ast.expr) -> Expectation:
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return _built(left) & _built(right)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _built(left) | _built(right)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in TERMS:
            settings = {str(keyword.arg): _constant(keyword.value) for keyword in keywords}
            if len(settings) < len(keywords):
                raise UsageError(f"{name}: a value is given twice")
            return TERMS[name](*(_bound(arg) for arg in args), **settings)
        case ast.Call(func=ast.Name(id=name)) | ast.Name(id=name):
            if name in TERMS:
                raise UsageError(f"write {name}()")
            near = difflib.get_close_matches(name, TERMS, n=1, cutoff=0.4)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(TERMS)}"
            raise UsageError(f"unknown word '{name}': {hint}")
    raise UsageError(f"'{ast.unparse(node)}' is not understood; join words such as recovers(within=60) with & or |")


def _bound(node: ast.expr) -> Bound:
    match node:
        case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[value]):
            signs = {ast.LtE: "<=", ast.Eq: "==", ast.Lt: "<", ast.GtE: ">=", ast.Gt: ">"}
            return Bound(name, signs.get(type(op), "?"), _constant(value))
    raise UsageError(f"'{ast.unparse(node)}': name the value, as in within=60 or steps<=10")


def _constant(node: ast.expr) -> Any:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        return -value if isinstance(value, (int, float)) else value
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str)):
        return node.value
    raise UsageError(f"'{ast.unparse(node)}' is no number or text")
