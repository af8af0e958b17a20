"""A command that is only pretended, for tests of what drives it: its answers, and what it was called with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FAKE = Path(__file__).with_name("fake_command.py")


class Fake:
    """The command, in a folder of its own; ``answers``: by the word that it is called with, or ``plan``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.command = (sys.executable, "-S", str(FAKE), str(folder))
        self.answers: dict[str, Any] = {}
        self.answer()

    def answer(self, **answers: Any) -> None:
        """From now on it answers so."""
        self.answers |= answers
        (self.folder / "answers.json").write_text(json.dumps(self.answers))

    @property
    def calls(self) -> list[list[str]]:
        """The words of each call."""
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def told(scenario: str = "kill-worker", verdict: str = "pass", code: int = 0, **changes: Any) -> dict[str, Any]:
    """What the command prints of a run."""
    check = {"name": "steps", "verdict": verdict, "expected": "40 steps, each once", "seen": "step 21 twice",
             "where": "history.jsonl", "evidence": {}}  # fmt: skip
    phases = [{"name": "detect", "seconds": 0.104, "resolution": "1 ms", "rank": None},
              {"name": "restore", "seconds": 0.5, "resolution": "1 ms", "rank": 1}]  # fmt: skip
    recovery = {"injection": "kill-0", "fault": "kill", "rank": 1, "step": 25, "phase": "step", "total_s": 0.604,
                "phases": phases, "missing": "", "step_before": 25, "resume_step": 20, "lost_steps": 5,
                "lost_samples": 240, "cause": "", "first_step_s": None, "usual_step_s": None}  # fmt: skip
    whole = {"schema": 1, "run": "r", "scenario": scenario, "title": "t", "verdict": verdict, "exit_code": code,
             "reason": f"{verdict}: steps", "restarts": 1, "checks": [check], "recoveries": [recovery],
             "repeat": f"aftershock run {scenario}"}  # fmt: skip
    return {**whole, **changes}


def suite_told(*members: dict[str, Any], code: int = 0, suite: str = "selection") -> dict[str, Any]:
    """What the command prints of a suite with such members."""
    asked = [member["scenario"] for member in members]
    return {"schema": 2, "suite": suite, "exit_code": code, "asked": asked, "members": list(members)}


def member_told(scenario: str, verdict: str = "pass", code: int = 0, directory: str = "") -> dict[str, Any]:
    """The line of a member in the record of a suite."""
    return {"scenario": scenario, "verdict": verdict, "exit_code": code, "reason": f"because of {verdict}",
            "directory": directory, "recovery_s": 9.0, "lost_steps": 4, "restarts": 1, "spent": {}}  # fmt: skip
