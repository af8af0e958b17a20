"""Aftershock from Python: each call drives the command in a process of its own, and returns what it came to.

Nothing is kept between calls, and nothing but ``chaos`` is imported here, so that a user's own modules are safe.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO, TypedDict, Unpack

from chaos import INSTALLATION
from chaos.exits import ExitCode, UsageError
from chaos.made_up import made_up
from chaos.results import Check, Result, of_output, without_output

COMMAND: tuple[str, ...] = (sys.executable, "-P", str(INSTALLATION / "aftershock.py"))
"""The command; ``-P`` keeps modules of the current folder from taking the place of ours."""

TELL = "AFTERSHOCK_TELL"
"""Environment variable that names the file in which the command tells its run directory, as soon as there is one."""

PATIENCE = 3
"""How many interruptions it takes to stop waiting for a run that heals."""

Words = str | Path | Sequence[str | Path]


class Options(TypedDict, total=False):
    """Options of ``aftershock run`` by their names, but for ``files``, which is ``--from``; None leaves one out."""

    inject: Words
    workers: int | None
    rank: int | None
    step: int | None
    seed: int | None
    expect: str | None
    set: Mapping[str, object]
    control: bool | None
    deadline: float | None
    out: str | Path | None
    strict: bool | None
    share: bool | None
    resume: bool | None
    files: Words


def run(
    *scenarios: str | Path, quiet: bool = False, progress: TextIO | None = None, **options: Unpack[Options]
) -> Result:
    """Run a scenario, several, or a suite, by their names or files, and judge; returns what came of it.

    ``progress``: where the command's progress goes, by default standard error; ``quiet``: nowhere. An interruption, as
    any other exception that arrives meanwhile, interrupts the run, waits until it has healed, and goes on its way.
    Raises UsageError for what cannot be run, before anything is started.
    """
    words = ["run", *map(str, scenarios), "--json", *option_words(options)]
    named = " ".join(map(str, scenarios)) or "injected"
    ended = drive(words, None if quiet else progress or sys.stderr)
    if ended.code == ExitCode.USAGE:
        raise UsageError(ended.reason)
    if not ended.output.strip():
        return without_output(named, ended.code, ended.reason, ended.directory)
    return of_output(json.loads(ended.output), ended.directory)


def plan(*scenarios: str | Path, **options: Unpack[Options]) -> list[dict[str, Any]]:
    """What would be run, as ``--dry-run`` tells it: one plan for each scenario; nothing is started.

    Raises UsageError for what cannot be run.
    """
    told = _answer(["run", *map(str, scenarios), "--json", "--dry-run", *option_words(options)])
    return told if isinstance(told, list) else [told]


def validate(*files: str | Path) -> None:
    """Find every mistake in files of one's own.

    Raises UsageError naming all of them, each with its line.
    """
    ended = drive(["validate", *map(str, files), "--json"], None)
    found = json.loads(ended.output) if ended.output.strip() else [{"problem": ended.reason}]
    if ended.code != ExitCode.PASS:
        told = (":".join(str(one[key]) for key in ("file", "line") if key in one) for one in found)
        raise UsageError("\n".join(f"{where}: {one['problem']}" for where, one in zip(told, found, strict=True)))


def judge(
    file: str | Path,
    word: str,
    *,
    losses: Sequence[float] = (),
    workers: int = 2,
    events: Iterable[Mapping[str, Any]] = (),
) -> Check:
    """What a check of one's own, written as ``--expect`` takes it, finds in a run that is made up (``made_up``).

    Raises UsageError when the file or the word cannot be used.
    """
    with tempfile.TemporaryDirectory() as folder:
        directory = made_up(Path(folder, "made-up"), losses=losses, workers=workers, events=events)
        told = _answer(["analyze", str(directory), "--from", str(file), "--expect", word, "--json"])
    name = word.partition("(")[0].strip().replace("_", "-")
    return of_output(told, None).check(name)


def _answer(words: Sequence[str]) -> Any:
    """What the command prints as JSON.

    Raises UsageError when it prints none.
    """
    ended = drive(words, None)
    if not ended.output.strip():
        raise UsageError(ended.reason)
    return json.loads(ended.output)


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Options as the command line has them.

    Raises TypeError for one that does not exist, naming the nearest.
    """
    words: list[str] = []
    for name, value in options.items():
        if name not in Options.__annotations__:
            near = difflib.get_close_matches(name, Options.__annotations__, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(Options.__annotations__)}"
            raise TypeError(f"unknown option '{name}': {hint}")
        words += _option(name, value)
    return words


def _option(name: str, value: Any) -> Iterator[str]:
    flag = "--from" if name == "files" else f"--{name}"
    if isinstance(value, bool):
        yield from [flag] if value else [] if name == "resume" else [f"--no-{name}"]
    elif isinstance(value, Mapping):
        yield from (word for key, inner in value.items() for word in (flag, f"{key}={inner}"))
    elif value is not None and value != "":
        for one in [value] if isinstance(value, (str, Path, int, float)) else value:
            yield from (flag, str(one))


# The process


@dataclass(frozen=True)
class Ended:
    """How the command ended: its exit code, what it printed, the last line of its messages, its run directory."""

    code: int
    output: str
    reason: str
    directory: Path | None


def drive(words: Sequence[str], progress: TextIO | None) -> Ended:
    """Run the command to its end. Whatever exception comes meanwhile, the command is interrupted and awaited first."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "directories")
        process = subprocess.Popen(
            [*COMMAND, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", env={**os.environ, TELL: str(told)}, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        lines: deque[str] = deque(maxlen=200)
        output: list[str] = []
        readers = [
            threading.Thread(target=_pass_on, args=(process.stderr, lines, progress), daemon=True),
            threading.Thread(target=lambda: output.append(process.stdout.read()), daemon=True),  # type: ignore[union-attr]
        ]
        for reader in readers:
            reader.start()
        try:
            process.wait()
        except BaseException:
            _interrupt(process, progress)
            raise
        finally:
            for reader in readers:
                reader.join(5)
        directory = Path(told.read_text().splitlines()[0]) if told.exists() else None
    reasons = [line.removeprefix("aftershock: ") for line in lines if line.strip()]
    reason = reasons[-1] if reasons else f"the command ended with {process.returncode}"
    return Ended(process.returncode, "".join(output), reason, directory)


def _pass_on(messages: IO[str], lines: deque[str], progress: TextIO | None) -> None:
    for line in messages:
        lines.append(line.rstrip("\n"))
        if progress is not None:
            with contextlib.suppress(OSError, ValueError):
                progress.write(line)
                progress.flush()


def _interrupt(process: subprocess.Popen[str], progress: TextIO | None) -> None:
    """Let the run heal; only several further interruptions stop the waiting, and then its watcher heals."""
    process.send_signal(signal.SIGINT)
    for _ in range(PATIENCE):
        try:
            process.wait()
            return
        except KeyboardInterrupt:
            if progress is not None:
                progress.write(f"aftershock: still healing what the run has made (process {process.pid})\n")


def tell(directory: Path) -> None:
    """Tell whoever drives this command where its run lies; the first directory told is that of the whole."""
    if file := os.environ.get(TELL):
        with open(file, "a") as told:
            told.write(f"{directory}\n")
