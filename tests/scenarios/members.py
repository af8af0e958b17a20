"""Members of suites for the tests: what executing and judging would bring, without a cluster."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

from chaos.cluster.local import LocalCluster
from chaos.exits import ExitCode
from chaos.history import HistoryWriter
from metrics.summary import RecoveryRecord, Summary, TimeRecord

NAMES = ("kill-worker", "kill-rank-zero", "segfault")
PASS, FAIL, UNKNOWN, ABORTED = ExitCode.PASS, ExitCode.FAIL, ExitCode.UNKNOWN, ExitCode.ABORTED
VERDICTS = {PASS: "pass", FAIL: "fail", ExitCode.NOT_HEALED: "fail"}
TTL_S = 900.0


def recovery(seconds=9.0, lost=4, missing=""):
    return RecoveryRecord(
        injection="kill-0", fault="kill", rank=1, step=25, phase="step", total_s=seconds, phases=[], missing=missing,
        step_before=25, resume_step=20, lost_steps=lost, lost_samples=8,
    )  # fmt: skip


def summary(scenario, code=PASS, recoveries=None, **times):
    """A run that took a minute: 1 s for the start of the cluster, 50 of training, 5 for the control run."""
    spent = {"wall_s": 60.0, "cluster_start_s": 1.0, "workload_s": 50.0, "control_s": 5.0, "harness_s": 4.0}
    return Summary(
        schema=1, run="r", scenario=scenario, title="t", verdict=VERDICTS.get(code, "unknown"), exit_code=int(code),
        reason=f"because of {code.name}", seed=0, workers=2, steps=40, expect="", restarts=1, injections=[],
        recoveries=[recovery()] if recoveries is None else recoveries, checks=[], repeat="c", known_issue="",
        versions={}, time=TimeRecord(**{**spent, **times}),
    )  # fmt: skip


class Cluster(LocalCluster):
    """A cluster of which nothing is ever started; ``trouble`` is raised when it is looked whether it is whole."""

    trouble: Exception | None = None
    starts = looks = 0

    def start(self):
        self.starts += 1
        self.emit("cluster.up", data={"seconds": 0.0, "nodes": len(self.nodes)})

    def join(self, name=""):
        """A further node, or a lost one again."""
        node = self.node(name) if name else self._further()
        node.lost = False
        if node not in self.nodes:
            self.nodes.append(node)
        return iter(())

    def restore(self):
        self.looks += 1
        if self.trouble:
            raise self.trouble
        for node in self.nodes:
            node.lost = False


def cluster(ledger, workers=2, workspace=None):
    """Such a cluster, of that ledger."""
    return Cluster(workers, 2, workspace or ledger.path.parent, ledger, lambda kind, **fields: None, {})


class Runner:
    """Stands for executing and judging: makes what a run would make on a cluster of the pool, and ends with a code.

    ``codes``: of the first runs; then, and for None, a pass. An exception in place of a code is raised.
    """

    def __init__(self, *codes, finished=True, control_code=0):
        self.codes, self.finished, self.control_code = list(codes), finished, control_code
        self.requests, self.stored, self.pools, self.beds, self.ended = [], [], [], [], []

    def __call__(self, request, pool=None):
        out = request.options.out
        code = (self.codes[len(self.requests)] if len(self.requests) < len(self.codes) else None) or PASS
        self.requests.append(request)
        self.pools.append(pool)
        self.stored.append(json.loads((out / "suite.json").read_text()))
        if pool is not None:
            self.serve(pool.bed(request.cluster_key, TTL_S))
        directory = out / f"run-{len(list(out.glob('run-*'))) + 1}"
        directory.mkdir()
        if request.control and self.finished and request.control_from is None:
            writer = HistoryWriter(directory / "control")
            writer.emit("workload.exit", data={"code": self.control_code})
            writer.close()
        if isinstance(code, BaseException):
            raise code
        if code is not ABORTED:
            self.ended.append(request.scenario.name)
        return summary(request.scenario.name, code), directory

    def serve(self, bed):
        self.beds.append(bed)
        bed.cluster = bed.cluster or cluster(bed.ledger)
        bed.release(clean=True)

    @property
    def names(self):
        return [request.scenario.name for request in self.requests]

    @property
    def controls(self):
        """The run whose control run served each member; None for one of its own."""
        return [request.control_from and request.control_from.name for request in self.requests]


def junit(place):
    """The verdicts of the merged file: name of each suite -> tags below its cases."""
    root = ET.parse(place / "suite" / "junit.xml").getroot()
    return {found.attrib["name"]: [e.tag for case in found.iter("testcase") for e in case] for found in root}
