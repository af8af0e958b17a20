"""The cluster that a run takes place on: its own, or one that serves the runs of a suite one after the other.

A shared cluster goes on to the next run only while nothing of the last one is left on it and all its nodes are there;
else it is ended, and the next run starts a fresh one.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path

from chaos import healing
from chaos.cluster.local import ClusterFailed, LocalCluster
from chaos.ledger import Ledger


@dataclass
class Testbed:
    """A cluster, which ``cluster`` holds once it is up, with the ledger of all that must be undone.

    ``key``: what it can be shared by, empty for a run's own. ``runs``: how many it has served.
    """

    __test__ = False  # pytest collects classes of such a name

    ledger: Ledger
    key: str = ""
    cluster: LocalCluster | None = None
    runs: int = 0
    _injections: list[int] = field(default_factory=list, init=False)

    def intend_injection(self, **told: str) -> None:
        """Record an injection before it is armed."""
        self._injections.append(self.ledger.intend("injection", **told))

    def release(self, *, clean: bool) -> list[str]:
        """The run on it is over: keep the cluster where that is honest, else end it; returns what was not undone.

        ``clean``: whether nothing of the run is left on it.
        """
        self.runs += 1
        if not (self.key and clean and self._whole()):
            return self.close()
        for entry in self._injections:
            self.ledger.done(entry)
        self._injections.clear()
        return []

    def _whole(self) -> bool:
        """Whether its nodes are all there, those brought back that a fault has taken, and none that a fault added."""
        if self.cluster is None or len(self.cluster.nodes) != 1 + self.cluster.workers:
            return False
        try:
            self.cluster.restore()
        except (ClusterFailed, OSError, ValueError):  # whatever it is, the cluster must be ended all the same
            return False
        return True

    def close(self) -> list[str]:
        """End the cluster and undo everything; returns what could not be undone."""
        self.key, self.cluster = "", None
        return healing.close(self.ledger)


@dataclass
class Pool:
    """The clusters of a suite, one at a time, each with a ledger in a folder of the suite's directory."""

    directory: Path
    starts: int = 0
    _bed: Testbed | None = None

    def bed(self, key: str, ttl_s: float) -> Testbed:
        """The standing cluster where it has that key, else a new one to be started; the other one is ended first.

        Raises StillStanding when that could not be undone.
        """
        if self._bed is not None and self._bed.key == key:
            self._bed.ledger.extend(ttl_s)
            return self._bed
        if errors := self.close():
            raise StillStanding("; ".join(errors))
        self._bed = Testbed(Ledger.open(self._folder(), uuid.uuid4().hex[:8], ttl_s), key)
        return self._bed

    def _folder(self) -> Path:
        """A new folder; one that a killed harness has left, and its record does not tell of, holds its own ledger."""
        self.starts += 1
        while (folder := self.directory / f"cluster-{self.starts}").exists():
            self.starts += 1
        folder.mkdir()
        return folder

    def close(self) -> list[str]:
        """End the standing cluster, if there is one; returns what could not be undone."""
        bed, self._bed = self._bed, None
        return bed.close() if bed is not None and bed.key else []


class StillStanding(RuntimeError):
    """The cluster before could not be ended, so no other is started."""
