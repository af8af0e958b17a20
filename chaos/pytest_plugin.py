"""The pytest plugin: scenarios as tests, and runs as fixtures. Imports nothing of ours but ``chaos``.

def test_by_hand(aftershock):                              # a run of its own, when it is called
    aftershock("kill-worker", workers=3)

@pytest.mark.aftershock("kill-worker", "segfault")         # a test for each; all such runs are made together
def test_together(aftershock_result):
    assert aftershock_result.restarts == 1

pytest --aftershock preprod                                # each scenario of a suite is a test
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

import pytest

from chaos import driving
from chaos.exits import UsageError
from chaos.results import Check, Result
from chaos.sharing import Asked, Batch, batches

MARKER = "aftershock(*scenarios, check=True, **options): what aftershock_result is the result of, as chaos.run takes it"
PARALLEL = "not run beside other tests: a run measures times on this machine; leave out -n (pytest-xdist) for it"
THREAD = (
    "pytest-timeout's method 'thread' ends the process, and what the run has made would be left behind: "
    "use timeout_method = signal, or no timeout (each run has a deadline of its own)"
)

BATCHES = pytest.StashKey[dict[str, Batch]]()
ASKED = pytest.StashKey[Asked]()
METHOD = pytest.StashKey[str]()


class ScenarioFailed(AssertionError):
    """A run did not pass; the message says what broke, where to look and how to repeat it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--aftershock``."""
    group = parser.getgroup("aftershock", "resilience tests")
    group.addoption(
        "--aftershock", action="append", default=[], metavar="SCENARIO",
        help="make a test of each scenario of this suite, of a scenario or of a file; may be repeated",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known; refuse what cannot be honest."""
    config.addinivalue_line("markers", MARKER)
    if config.getoption("--aftershock") and _parallel(config):
        raise pytest.UsageError(f"--aftershock {config.getoption('--aftershock')[0]}: {PARALLEL}")


def _parallel(config: pytest.Config) -> bool:
    """Whether tests run in several processes."""
    return hasattr(config, "workerinput") or bool(config.getoption("numprocesses", 0) or config.getoption("tx", None))


# Items


class Suite(pytest.Collector):
    """The tests that ``--aftershock`` asks for."""

    def collect(self) -> list[pytest.Item]:
        """One for each scenario."""
        words = self.config.getoption("--aftershock")
        try:
            names = [(word, str(plan["scenario"])) for word in words for plan in driving.plan(word)]
        except UsageError as error:
            raise pytest.UsageError(f"--aftershock {' '.join(words)}: {error}") from error
        return [Scenario.of(self, word, name) for word, name in dict.fromkeys(names)]


class Scenario(pytest.Item):
    """A scenario that must pass."""

    @classmethod
    def of(cls, parent: Suite, word: str, name: str) -> Scenario:
        """The test of a scenario that a word stands for."""
        item: Scenario = cls.from_parent(parent, name=name)
        file = word.partition("::")[0]
        item.stash[ASKED] = Asked(f"{file}::{name}" if file.endswith(".py") else name)
        item.add_marker(pytest.mark.aftershock)
        return item

    def runtest(self) -> None:
        """Take the result of its run."""
        passed_or_raise(_result_of(self))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What broke, without a traceback of ours."""
        told = isinstance(excinfo.value, (ScenarioFailed, UsageError))
        return str(excinfo.value) if told else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """How it is called."""
        return self.config.rootpath, None, f"aftershock: {self.name}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``aftershock_result`` is one for each scenario of its marker."""
    if "aftershock_result" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("aftershock")
    if marker is None or not marker.args:
        where = metafunc.definition.nodeid
        raise pytest.UsageError(f"{where} takes aftershock_result: mark it, @pytest.mark.aftershock('kill-worker')")
    options = {name: value for name, value in marker.kwargs.items() if name != "check"}
    try:
        driving.option_words(options)
    except TypeError as error:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: @pytest.mark.aftershock: {error}") from error
    asked = [Asked(str(word), options) for word in marker.args]
    metafunc.parametrize("aftershock_result", asked, indirect=True, ids=[Path(one.word).name for one in asked])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the tests that ``--aftershock`` asks for, before any are chosen or left out."""
    if session.config.getoption("--aftershock"):
        items += Suite.from_parent(session, name="aftershock", nodeid="aftershock").collect()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Of the tests that were chosen, learn which runs they ask for."""
    for item in session.items:
        asked = getattr(item, "callspec", None) and item.callspec.params.get("aftershock_result")  # type: ignore[attr-defined]
        if isinstance(asked, Asked):
            item.stash[ASKED] = asked
    wanted = [item.stash[ASKED] for item in session.items if ASKED in item.stash]
    session.config.stash[BATCHES] = batches(wanted)


# Runs


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run the batch of the first test that needs it: before its own timeout begins, outside its captured output."""
    asked = item.stash.get(ASKED, None)
    if asked is not None and not _parallel(item.config):
        batch = item.config.stash[BATCHES][asked.key]
        if not batch.over:
            capture = item.config.pluginmanager.getplugin("capturemanager")
            verbose = item.config.get_verbosity() > 0
            with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
                batch.run(sys.stderr if verbose else None)
    return (yield)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Note how pytest-timeout would end this test."""
    item.stash[METHOD] = settings.method


def _result_of(item: pytest.Item) -> Result:
    """The result that a test asked for.

    Raises UsageError when it could not be run.
    """
    if _parallel(item.config):
        pytest.skip(PARALLEL)
    asked = item.stash[ASKED]
    batch = item.config.stash[BATCHES][asked.key]
    item.add_report_section("setup", "aftershock", batch.progress)
    result = batch.of(asked.word)
    item.user_properties.append(("aftershock_directory", str(result.directory or "")))
    return result


def passed_or_raise(result: Result) -> None:
    """Let the test go on only after a run that passed; where this machine does not permit it, it is skipped.

    Raises ScenarioFailed saying what broke.
    """
    if result.verdict == "skipped":
        pytest.skip(f"{result.scenario}: {result.reason}")
    if not result.passed:
        raise ScenarioFailed(str(result))


@pytest.fixture
def aftershock_result(request: pytest.FixtureRequest) -> Result:
    """The result of the scenario that the test is marked with; it has passed, unless ``check=False``."""
    marker = request.node.get_closest_marker("aftershock")
    return _settle(lambda: _result_of(request.node), marker.kwargs.get("check", True))


def _settle(run: Any, check: bool) -> Result:
    """The result of a run; what broke fails the test without a traceback of ours."""
    try:
        result: Result = run()
        if check:
            passed_or_raise(result)
    except (ScenarioFailed, UsageError) as error:
        pytest.fail(str(error), pytrace=False)
    return result


class Aftershock:
    """What the fixture ``aftershock`` gives: runs, plans and checks of its own, each in a process of its own."""

    def __init__(self, item: pytest.Item, progress: TextIO | None = None) -> None:
        self._item = item
        self._progress = progress

    def __call__(self, *scenarios: str | Path, check: bool = True, **options: Any) -> Result:
        """Run scenarios, as ``chaos.run`` does; what does not pass fails the test, unless ``check`` is False."""
        if _parallel(self._item.config):
            pytest.skip(PARALLEL)
        if self._item.stash.get(METHOD, "") == "thread":
            pytest.fail(THREAD, pytrace=False)
        return _settle(lambda: driving.run(*scenarios, **options), check)

    @staticmethod
    def plan(*scenarios: str | Path, **options: Any) -> list[dict[str, Any]]:
        """What would be run, as ``chaos.plan`` tells it."""
        return driving.plan(*scenarios, **options)

    @staticmethod
    def validate(*files: str | Path) -> None:
        """Fail the test for every mistake in files of one's own."""
        try:
            driving.validate(*files)
        except UsageError as error:
            pytest.fail(str(error), pytrace=False)

    @staticmethod
    def judge(file: str | Path, word: str, **made_up: Any) -> Check:
        """What a check of one's own finds in a run that is made up, as ``chaos.judge`` tells it."""
        return driving.judge(file, word, **made_up)


@pytest.fixture
def aftershock(request: pytest.FixtureRequest) -> Aftershock:
    """Run scenarios from a test: ``aftershock("kill-worker", workers=3)`` fails it unless the run passes."""
    return Aftershock(request.node)
