"""What the judge does not miss: without any one of its events a run passes only where that event decides nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from chaos.exits import ExitCode
from chaos.history import Event
from tests.histories import healthy

DECIDES_NOTHING: dict[str, Callable[[Event], bool]] = {
    "cluster.node.start": lambda e: True,  # times only
    "cluster.up": lambda e: True,
    "workload.start": lambda e: True,
    "schedule.begin": lambda e: e.attempt == 0,  # of recoveries, the first attempt is none
    "pg.init.end": lambda e: e.attempt == 0,
    "data.begin": lambda e: True,  # counts where nothing is restored
    "probe.resources": lambda e: True,  # asked for by stays_flat only
    "worker.error": lambda e: True,  # asked for by names only
    "attempt.shutdown": lambda e: True,
    "controller.state": lambda e: e.data["to"] != "RESTARTING",
    "step.end": lambda e: e.attempt == 0 and e.step == 6,  # lost with the fault, and done again
    "checkpoint.commit": lambda e: e.attempt == 1,  # told by Ray's own record in the storage
    "process.exit": lambda e: e.attempt == 1,  # what outlives the job is looked for by residue
}
"""Events, by kind, without which a run that was killed once after step 6 passes all the same, and why."""


@pytest.mark.parametrize("place", range(len(healthy().events)))
def test_without_any_one_event_a_run_passes_only_where_it_decides_nothing(place: int) -> None:
    run = healthy()
    event = run.events[place]
    without = dataclasses.replace(run, events=(*run.events[:place], *run.events[place + 1 :]))
    passes = without.judged().exit_code is ExitCode.PASS
    assert passes == DECIDES_NOTHING.get(event.kind, lambda e: False)(event), event


def test_the_whole_run_passes() -> None:
    assert healthy().judged().exit_code is ExitCode.PASS
