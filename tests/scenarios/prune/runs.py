"""Directories that look like runs and suites."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from chaos.exits import ExitCode
from metrics.verdict import Record

NOBODY = {"pid": 2**22 + 1, "start": 1}
OPEN = {"entry": 0, "kind": "processes"}
DONE = {"done": 0}
MIB = 2**20
PASS = int(ExitCode.PASS)
FAILURES = [int(code) for code in ExitCode if code is not ExitCode.PASS]


def record(scenario, run):
    return Record(
        schema=2, run=run, scenario=scenario, title="t", command="c", seed=0, workers=2, steps=40, checkpoint_every=10,
        keep=2, max_failures=3, poll_s=0.5, control=True, expect="", timeouts={}, injections=[], settings={},
        versions={},
    )  # fmt: skip


def ledger(folder, *lines, owner=NOBODY):
    head = {"schema": 1, "run": "r", "owner": owner, "opened": 0.0, "ttl_s": 1.0}
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))


class Out:
    """A directory with things that look like runs; each new one is an hour newer than the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.made = 0

    def name(self, scenario: str) -> str:
        self.made += 1
        return f"202611{1 + self.made // 24:02}-{self.made % 24:02}0000-{scenario}-{self.made:08x}"

    def run(self, scenario="kill-worker", code: int | None = PASS, *, below=None, entries=(OPEN, DONE), owner=NOBODY):
        """A run that ended with that code; None for one without a verdict."""
        folder = (below or self.folder) / self.name(scenario)
        folder.mkdir()
        (folder / "scenario.json").write_bytes(msgspec.json.encode(record(scenario, folder.name[-8:])))
        ledger(folder, *entries, owner=owner)
        (folder / "history.jsonl").touch()
        if code is not None:
            (folder / "verdict.json").write_text(json.dumps({"exit_code": code, "verdict": "-"}))
        return folder

    def sweep(self, code: int | None = PASS):
        """A sweep that ended with that code; None for one that was never judged."""
        folder = self.run("sweep-checkpoint", None)
        if code is not None:
            (folder / "sweep.json").write_text(json.dumps({"exit_code": code, "crashes": []}))
        return folder

    def suite(self, *codes: int, name="kill-every-phase", asked=0, code=None):
        """A suite whose members ended with these codes; ``code``: its own, by default the greatest of theirs."""
        folder = self.folder / self.name(name)
        folder.mkdir()
        members = [self.run(f"member-{i}", code, below=folder) for i, code in enumerate(codes)]
        self.record_suite(folder, members, name, asked or len(codes), max(codes) if code is None else code)
        return folder, members

    def record_suite(self, folder, members, name, asked, code):
        found = {"suite": name, "exit_code": code, "asked": ["s"] * asked}
        (folder / "suite.json").write_text(json.dumps({**found, "members": [{"directory": m.name} for m in members]}))

    def left(self):
        return sorted(path.name for path in self.folder.iterdir())


def names(*folders):
    return sorted(folder.name for folder in folders)


def reason_for(done, folder):
    return next((fate.action, fate.reason) for fate in done.directories if fate.directory == folder.name)
