"""Everything that a file of scenarios, or of checks, of one's own is written with, to be imported from one place.

A file of faults imports from ``chaos.faults.base`` instead, since it is loaded inside training processes.
"""

from chaos.faults.abort import Abort
from chaos.faults.add_node import AddNode
from chaos.faults.async_exception import AsyncException
from chaos.faults.crash_in_call import CrashControllerInCall, CrashInCall
from chaos.faults.delay import Delay
from chaos.faults.drain_node import DrainNode
from chaos.faults.drop_node import DropNode
from chaos.faults.exception import Raise
from chaos.faults.exit import Exit
from chaos.faults.freeze import Freeze
from chaos.faults.freeze_node import FreezeNode, PauseNode
from chaos.faults.gil_call import GilCall
from chaos.faults.hang import Hang
from chaos.faults.hang_gil import HangGil
from chaos.faults.kill import Kill
from chaos.faults.memory_limit import MemoryLimit
from chaos.faults.missing_report import MissingReport
from chaos.faults.oom import OutOfMemory
from chaos.faults.segfault import Segfault
from chaos.faults.skip_collective import SkipCollective
from chaos.faults.straggler import Straggler
from chaos.history import Event, History
from chaos.schedule import Arming
from chaos.targets import All, Label, Node, NodeOf, OtherNodes, Rank, Some
from chaos.triggers import after_seconds, at_random, at_step, before_step, in_phase, on_attempt
from metrics.expectations import (
    HEALTHY,
    UNDISTURBED,
    Expectation,
    beats_defaults,
    completes,
    fails,
    idles,
    ignores_interrupt,
    interruptible,
    keeps_batch,
    keeps_checkpoints,
    keeps_every_step,
    loses,
    matches_control,
    names,
    names_culprit,
    never_two_groups,
    notices,
    preempts,
    recovers,
    reschedules,
    resizes,
    restarts,
    resumes,
    spares_others,
    stays_flat,
    stays_productive,
)
from metrics.terms import check
from metrics.verdict import Case, Finding, Verdict
from scenarios.scenario import Scenario, Shape, Suite, register

__all__ = [
    "HEALTHY", "UNDISTURBED", "Abort", "AddNode", "All", "Arming", "AsyncException", "Case", "CrashControllerInCall",
    "CrashInCall", "Delay", "DrainNode", "DropNode", "Event", "Exit", "Expectation", "Finding", "Freeze", "FreezeNode",
    "GilCall", "Hang", "HangGil", "History", "Kill", "Label", "MemoryLimit", "MissingReport", "Node", "NodeOf",
    "OtherNodes", "OutOfMemory", "PauseNode", "Raise", "Rank", "Scenario", "Segfault", "Shape", "SkipCollective",
    "Some", "Straggler", "Suite", "Verdict", "after_seconds", "at_random", "at_step", "beats_defaults", "before_step",
    "check", "completes", "fails", "idles", "ignores_interrupt", "in_phase", "interruptible", "keeps_batch",
    "keeps_checkpoints", "keeps_every_step", "loses", "matches_control", "names", "names_culprit", "never_two_groups",
    "notices", "on_attempt", "preempts", "recovers", "register", "reschedules", "resizes", "restarts", "resumes",
    "spares_others", "stays_flat", "stays_productive",
]  # fmt: skip
