"""Runs that several tests of one session share: all that they ask for goes into as few suites as their options allow.

A suite shares clusters and control runs among its members, so that is how tests share them, too.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from chaos import driving
from chaos.exits import ExitCode, worst
from chaos.results import Result


@dataclass(frozen=True)
class Asked:
    """One test's wish: a scenario, a suite or a file, and options of ``chaos.run``."""

    word: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The same for wishes that one suite can fulfil."""
        return json.dumps(self.options, sort_keys=True, default=str)


class Progress(io.StringIO):
    """What a run tells meanwhile: kept for those that fail, and shown at once where somebody looks."""

    def __init__(self, shown: TextIO | None = None) -> None:
        super().__init__()
        self._shown = shown

    def write(self, text: str) -> int:
        """Keep it, and show it."""
        if self._shown is not None:
            self._shown.write(text)
            self._shown.flush()
        return super().write(text)


@dataclass
class Batch:
    """Wishes with the same options, fulfilled by one run of the command. ``error``: why it could not be run."""

    options: Mapping[str, Any]
    words: list[str] = field(default_factory=list)
    result: Result | None = None
    error: Exception | None = None
    progress: str = ""

    @property
    def over(self) -> bool:
        """Whether it has been run."""
        return self.result is not None or self.error is not None

    def run(self, shown: TextIO | None = None) -> None:
        """Run it; what goes wrong is kept for every test that asked."""
        progress = Progress(shown)
        try:
            self.result = driving.run(*self.words, progress=progress, **self.options)
        except Exception as error:
            self.error = error
        self.progress = progress.getvalue()

    def of(self, word: str) -> Result:
        """What one wish came to; of a word that stands for several scenarios, of all of them.

        Raises what kept the batch from running.
        """
        if self.error is not None:
            raise self.error
        assert self.result is not None
        if self.words == [word] or not self.result.members:
            return self.result
        known = {member.scenario: member for member in self.result.members}
        names = [word] if word in known else [str(plan["scenario"]) for plan in driving.plan(word, **self.options)]
        found = [known[name] for name in names if name in known]
        return _not_run(self.result, word) if len(found) < len(names) else _together(word, found, self.result.directory)


def _together(word: str, found: Sequence[Result], directory: Path | None) -> Result:
    if len(found) == 1:
        return found[0]
    code = worst(ExitCode(member.exit_code) for member in found if member.verdict != "skipped")
    passed = sum(member.passed for member in found)
    verdict = next(member.verdict for member in found if member.exit_code == code and member.verdict != "skipped")
    reason = f"{passed} of {len(found)} passed"
    return Result(scenario=word, verdict=verdict, exit_code=int(code), reason=reason, members=tuple(found),
                  directory=directory)  # fmt: skip


def _not_run(suite: Result, word: str) -> Result:
    """The result of a wish whose turn never came."""
    code = suite.exit_code or int(ExitCode.UNKNOWN)
    reason = f"not run: the suite ended with exit code {suite.exit_code}: {suite.reason}"
    return dataclasses.replace(suite, scenario=word, verdict="unknown", exit_code=code, reason=reason, members=())


def batches(asked: Iterable[Asked]) -> dict[str, Batch]:
    """One batch for each set of options, by the key of its wishes; each scenario once, in the order of the tests."""
    found: dict[str, Batch] = {}
    for one in asked:
        batch = found.setdefault(one.key, Batch(one.options))
        if one.word not in batch.words:
            batch.words.append(one.word)
    return found
