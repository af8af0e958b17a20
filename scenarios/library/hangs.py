"""Scenarios in which a worker hangs. Short time-outs are set, since Ray's defaults would wait for half an hour."""

from __future__ import annotations

import dataclasses

from chaos.faults.freeze import Freeze
from chaos.faults.hang import Hang
from chaos.faults.hang_gil import HangGil
from chaos.faults.missing_report import MissingReport
from chaos.faults.skip_collective import SkipCollective
from chaos.schedule import Arming
from chaos.targets import Rank
from chaos.triggers import at_step, in_phase
from metrics.expectations import HEALTHY, UNDISTURBED, beats_defaults, names_culprit
from scenarios.library.workers import once
from scenarios.scenario import Scenario, Shape, register

SHORT = Shape(timeout_s=10, health_s=10.0, report_s=10.0, shutdown_s=3)
"""Time-outs for a healthy step of well under a second; a job's own must be longer than its slowest healthy step."""

HANG_FROZEN = register(
    Scenario(
        name="hang-frozen",
        title="A worker process is frozen (SIGSTOP): it answers nothing, and holds its sockets.",
        inject=once(Freeze()),
        expects=HEALTHY & beats_defaults(times=10) & names_culprit(),
        shape=SHORT,
    )
)

HANG_BLOCKED = register(
    Scenario(
        name="hang-blocked",
        title="The training thread of a worker blocks between two steps; all health checks are answered.",
        inject=once(Hang()),
        expects=HEALTHY & beats_defaults(times=20) & names_culprit(),
        shape=SHORT,
    )
)

HANG_SKIPPED_COLLECTIVE = register(
    Scenario(
        name="hang-skipped-collective",
        title="One rank leaves out a collective, so the ranks wait in different ones.",
        inject=once(SkipCollective()),
        expects=HEALTHY & beats_defaults(times=20),
        # After a step that neither logs nor saves FSDP gathers next; an all-reduce of another size would abort in gloo.
        shape=dataclasses.replace(SHORT, step=23),
    )
)

HANG_GIL = register(
    Scenario(
        name="hang-gil",
        title="A native call that never returns keeps the interpreter lock of a worker.",
        inject=once(HangGil()),
        expects=HEALTHY & beats_defaults(times=10) & names_culprit(),
        shape=SHORT,
    )
)

HANG_WATCHDOG = register(
    Scenario(
        name="hang-watchdog",
        title="A hang under Ray's own time-outs, our watchdog on: it restarts the group.",
        inject=once(Hang()),
        expects=HEALTHY & beats_defaults(times=10),
        shape=Shape(watchdog_s=8.0),
    )
)

HANG_UNWATCHED = register(
    Scenario(
        name="hang-unwatched",
        title="A hang under Ray's own time-outs, no watchdog: nobody notices for 20 s.",
        inject=once(Hang(seconds=20)),
        expects=UNDISTURBED,
        recovers=False,
    )
)

MISSING_REPORT = register(
    Scenario(
        name="missing-report",
        title="One rank never reports its checkpoint; the others wait for it in ray.train.report.",
        inject=lambda shape: (
            Arming(MissingReport(), in_phase("report") & at_step(2 * shape.checkpoint_every), Rank(shape.rank)),
        ),
        expects=HEALTHY & beats_defaults(times=20) & names_culprit(),
        shape=SHORT,
    )
)
