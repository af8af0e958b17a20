"""Runs that are only pretended: what a conduct does is a script, and of its cluster nothing is ever started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from chaos.history import History
from chaos.ledger import Account
from tests.scenarios.members import Cluster


@dataclass
class Script:
    """What the conducts of a test do, and what came of it. ``left``: whether each leaves nothing; by default so."""

    conducts: list[Conducted] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    finished: bool = True
    left: tuple[bool, ...] = ()
    error: BaseException | None = None
    start_error: Exception | None = None
    conducted: type[Conducted] = field(default_factory=lambda: Conducted)


@dataclass
class Conducted:
    """Stands for a conduct: tells that the script ran, and whether it left anything."""

    script: Script
    directory: Path
    workload: object
    plan: object
    cluster: Cluster
    writer: object
    deadline_s: float
    recovers: bool
    waits_s: float
    left_nothing: bool = False
    drained: bool = False

    def run(self):
        number = len(self.script.conducts)
        self.script.conducts.append(self)
        if self.script.error:
            raise self.script.error
        self.looks = self.cluster.looks
        self.writer.emit("workload.exit", data={"code": 0})
        self.left_nothing = self.script.left[number] if number < len(self.script.left) else True
        return self.script.finished

    def drain(self):
        self.drained = True

    @property
    def options(self):
        """The options of the training script."""
        return dict(word.removeprefix("--").split("=", 1) for word in self.workload.command[3:])


def kinds(directory):
    return [event.kind for event in History.load(directory)]


def of_kind(directory, kind):
    return [event.data for event in History.load(directory).select(kind)]


def in_place(ledger):
    return [entry["kind"] for entry in Account.read(ledger).open.values()]
