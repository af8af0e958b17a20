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
from typing import Any

from chaos.exits import UsageError
from metrics import (
    blast,
    budgets,
    continuity,
    control,
    detection,
    goodput,
    groups,
    growth,
    hangs,
    layers,
    recovery,
    waiting,
)
from metrics.checkpoints import content, registry
from metrics.terms import TERMS as TERMS
from metrics.terms import Bound, Quantity
from metrics.terms import Either as Either
from metrics.terms import Expectation as Expectation
from metrics.terms import NamedCheck as NamedCheck
from metrics.terms import term as _term

SHOWN = 200
"""How much of a text that is not understood is repeated."""

steps, within, times, by, cpu, share = map(Quantity, ("steps", "within", "times", "by", "cpu", "share"))


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
def keeps_batch() -> list[NamedCheck]:
    """Every step consumes the same number of samples over all ranks, whatever the world size."""
    return [("global-batch", continuity.check_batch)]


@_term
def keeps_checkpoints() -> list[NamedCheck]:
    """The committed checkpoints that retention keeps are whole on disk, and in Ray's own record."""
    return [("checkpoints", content.check_stored), ("snapshot", registry.check)]


@_term
def matches_control(within: float | None = None) -> list[NamedCheck]:
    """Losses, samples and saved state equal those of a run without a fault: bitwise, or within that difference."""
    return [
        ("trajectory", functools.partial(control.check_trajectory, within=within)),
        ("control-state", functools.partial(control.check_state, within=within)),
    ]


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
def names_culprit() -> list[NamedCheck]:
    """The ranks that a hang is due to are told from where all ranks stand."""
    return [("culprit", hangs.check)]


@_term
def spares_others() -> list[NamedCheck]:
    """No process and no node dies by the faults but those that they hit."""
    return [("blast-radius", blast.check)]


@_term
def stays_flat(by: float = 0.25, files: float = 20.0) -> list[NamedCheck]:
    """Time and memory grow by no more than that share over all restarts, open files by so many each, processes not."""
    return [("growth", functools.partial(growth.check, by=by, files=files))]


@_term
def stays_productive(share: float) -> list[NamedCheck]:
    """At least that share of the job's life goes into steps that are done for the first time."""
    if not 0 < share <= 1:
        raise UsageError(f"stays_productive(share={share!r}): share is a part of 1, such as 0.3")
    return [("goodput", functools.partial(goodput.check, share=share))]


@_term
def resizes(worlds: str) -> list[NamedCheck]:
    """The attempts have these world sizes, one after the other, as in "3, 2, 3"."""
    return [("world-sizes", functools.partial(budgets.check_worlds, worlds=_sizes(worlds)))]


def _sizes(worlds: str) -> tuple[int, ...]:
    parts = [part.strip() for part in worlds.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"resizes(worlds={worlds!r}): write the world size of each attempt, as in '3, 2, 3'")
    return tuple(map(int, parts))


@_term
def preempts(times: int) -> list[NamedCheck]:
    """So many restarts, and no more, are due to preemptions."""
    return [("preemptions", functools.partial(budgets.check_preemptions, times=times))]


@_term
def never_two_groups() -> list[NamedCheck]:
    """No process of an older group completes a step once a newer group has started."""
    return [("one-group", groups.check)]


@_term
def notices(within: float = 60.0) -> list[NamedCheck]:
    """Ray's node health and the controller notice each loss of a node within so many seconds."""
    return [("layers", functools.partial(layers.check, within=within))]


@_term
def reschedules(times: int) -> list[NamedCheck]:
    """No more than so many groups fail to start for want of capacity."""
    return [("rescheduling", functools.partial(layers.check_rescheduling, times=times))]


@_term
def idles(cpu: float = 0.5) -> list[NamedCheck]:
    """While the job waits for capacity its controller uses at most that share of one core."""
    return [("idle", functools.partial(waiting.check_idle, cpu=cpu))]


@_term
def interruptible(within: float = 20.0) -> list[NamedCheck]:
    """Ctrl-C ends the training script within so many seconds."""
    return [("interruptible", functools.partial(waiting.check_interruptible, within=within))]


@_term
def ignores_interrupt() -> list[NamedCheck]:
    """Ctrl-C does not end the training script: a defect, which only a known issue should accept."""
    return [("deaf", waiting.check_deaf)]


HEALTHY = recovers() & restarts() & loses() & completes() & resumes()
HEALTHY = HEALTHY & keeps_every_step() & keeps_checkpoints() & matches_control() & spares_others()
"""What every healthy recovery keeps."""

UNDISTURBED = restarts(times=0) & completes() & keeps_every_step() & keeps_checkpoints() & matches_control()
UNDISTURBED = UNDISTURBED & spares_others()
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
