"""The pytest plugin, in sessions of its own whose command is only pretended."""

from __future__ import annotations

import json

import pytest

from chaos import INSTALLATION, driving
from tests.chaos.fakes import Fake, member_told, suite_told, told

PLUGINS = ("-p", "no:cacheprovider", "-p", "no:randomly")


@pytest.fixture
def fake(pytester, monkeypatch):
    fake = Fake(pytester.path / "fake")
    monkeypatch.setattr(driving, "COMMAND", fake.command)
    return fake


@pytest.fixture
def session(pytester, fake):
    """Run a session on a text of tests, in this process; returns its result."""
    import importlib.metadata

    there = importlib.metadata.entry_points(group="pytest11", name="aftershock")
    plugins = PLUGINS[2 * bool(there) :]

    def run(text="", *options):
        if text:
            pytester.makepyfile(text)
        return pytester.runpytest_inprocess(*plugins, *options)

    return run


# The fixture


def test_a_run_that_passes_is_a_result(session, fake):
    fake.answer(run={"output": told()})
    session("""
        def test_it(aftershock):
            assert aftershock("kill-worker", workers=3, set={"steps": 20}).restarts == 1
    """).assert_outcomes(passed=1)  # fmt: skip
    assert fake.calls == [["run", "kill-worker", "--json", "--workers", "3", "--set", "steps=20"]]


def test_a_run_that_fails_tells_what_broke_and_how_to_repeat_it(session, fake, tmp_path):
    fake.answer(run={"output": told(verdict="fail", code=1), "code": 1, "directories": [str(tmp_path)],
                     "progress": "  steady   wait"})  # fmt: skip
    result = session("def test_it(aftershock): aftershock('kill-worker')")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "kill-worker: fail (exit code 1): fail: steps",
        "  steps: fail",
        "    expected  40 steps, each once",
        "    seen      step 21 twice",
        "  recovery  kill of rank 1*detect 0.104, restore 0.500*",
        f"  directory {tmp_path}",
        "  repeat    aftershock run kill-worker",
        "*Captured stderr*",
        "  steady   wait",
    ])  # fmt: skip
    assert "Traceback" not in result.stdout.str()
    assert "chaos/pytest_plugin.py" not in result.stdout.str()


def test_a_test_may_look_at_a_run_that_failed(session, fake):
    fake.answer(run={"output": told(verdict="fail", code=1), "code": 1})
    session("""
        def test_it(aftershock):
            assert aftershock("kill-worker", check=False).check("steps").verdict == "fail"
    """).assert_outcomes(passed=1)  # fmt: skip


def test_unknown_is_no_success(session, fake):
    fake.answer(run={"output": told(verdict="unknown", code=2), "code": 2})
    session("def test_it(aftershock): aftershock('kill-worker')").assert_outcomes(failed=1)


def test_a_mistake_is_one_sentence(session, fake):
    fake.answer(run={"output": "", "code": 64, "progress": "aftershock: unknown scenario 'x'"})
    result = session("def test_it(aftershock): aftershock('x')")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["unknown scenario 'x'"])


def test_nothing_of_ours_but_chaos_is_imported_into_the_session(pytester, fake, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(INSTALLATION))
    pytester.makepyfile(metrics="raise RuntimeError('imported')", trainer="x = 1")
    pytester.makepyfile("""
        import sys
        def test_it(aftershock, pytestconfig):
            import trainer
            assert trainer.x == 1
            assert not {"metrics", "scenarios", "ray", "torch"} & set(sys.modules)
    """)
    pytester.runpytest_subprocess(*PLUGINS, "-p", "no:xdist").assert_outcomes(passed=1)


# Runs that tests share


SHARED = """
    import pytest

    @pytest.mark.aftershock("kill-worker", "segfault")
    def test_both(aftershock_result):
        assert aftershock_result.passed

    def test_between():
        pass

    @pytest.mark.aftershock("kill-worker")
    def test_again(aftershock_result):
        assert aftershock_result.scenario == "kill-worker"

    @pytest.mark.aftershock("hang-frozen", workers=3)
    def test_otherwise(aftershock_result):
        pass
"""


def test_tests_with_the_same_options_share_one_suite(session, fake):
    members = suite_told(member_told("kill-worker"), member_told("segfault"))
    fake.answer(run={"output": members})
    session(SHARED, "-k", "not otherwise").assert_outcomes(passed=4, deselected=1)
    assert fake.calls == [["run", "kill-worker", "segfault", "--json"]]


def test_other_options_are_another_run(session, fake):
    fake.answer(run={"output": told("hang-frozen")})
    session(SHARED, "-k", "otherwise").assert_outcomes(passed=1, deselected=4)
    assert fake.calls == [["run", "hang-frozen", "--json", "--workers", "3"]]


def test_a_member_that_fails_fails_only_its_own_tests(session, fake, tmp_path):
    (tmp_path / "seg").mkdir()
    (tmp_path / "seg" / "verdict.json").write_text(json.dumps(told("segfault", "fail", 1)))
    members = suite_told(member_told("kill-worker"), member_told("segfault", "fail", 1, "seg"), code=1)
    fake.answer(run={"output": members, "code": 1, "directories": [str(tmp_path)], "progress": "  steady"})
    result = session(SHARED, "-k", "not otherwise")
    result.assert_outcomes(passed=3, errors=1, deselected=1)
    result.stdout.fnmatch_lines(
        ["segfault: fail*", "  steps: fail", "    seen *step 21 twice", "*aftershock*", "  steady"]
    )


def test_a_member_that_was_skipped_is_a_skipped_test(session, fake):
    members = suite_told(member_told("kill-worker"), member_told("segfault", "skipped"))
    fake.answer(run={"output": members})
    session(SHARED, "-k", "not otherwise").assert_outcomes(passed=3, skipped=1, deselected=1)


def test_a_member_whose_turn_never_came_is_not_green(session, fake):
    cut = {**suite_told(member_told("kill-worker"), code=6), "asked": ["kill-worker", "segfault"]}
    fake.answer(run={"output": cut, "code": 6}, plan={"output": {"scenario": "segfault"}})
    result = session(SHARED, "-k", "not otherwise")
    result.assert_outcomes(passed=3, errors=1, deselected=1)
    result.stdout.fnmatch_lines(["segfault: unknown (exit code 6): not run: the suite ended with exit code 6*"])


def test_a_mistake_is_told_to_every_test_that_asked(session, fake):
    fake.answer(run={"output": "", "code": 64, "progress": "aftershock: unknown scenario 'segfaul'"})
    session(SHARED, "-k", "not otherwise").assert_outcomes(passed=1, errors=3, deselected=1)
    assert len(fake.calls) == 1


def test_a_file_is_the_scenario_that_it_holds(session, fake):
    members = suite_told(member_told("mine"), member_told("segfault"))
    fake.answer(run={"output": members}, plan={"output": {"scenario": "mine"}})
    session("""
        import pytest

        @pytest.mark.aftershock("mine.py", "segfault")
        def test_both(aftershock_result):
            assert aftershock_result.scenario in ("mine", "segfault")
    """).assert_outcomes(passed=2)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "*takes aftershock_result: mark it, @pytest.mark.aftershock('kill-worker')*"),
        ("@pytest.mark.aftershock('kill-worker', worker=3)", "*unknown option 'worker': did you mean 'workers'*"),
    ],
)
def test_a_mark_that_cannot_be_fulfilled_is_refused(session, fake, line, message):
    result = session(f"import pytest\n{line}\ndef test_it(aftershock_result): pass")
    assert result.ret != 0
    (result.stdout if "takes" in result.stdout.str() or "unknown option" in result.stdout.str()
     else result.stderr).fnmatch_lines([message])  # fmt: skip
    assert fake.calls == []


# Suites as tests


def test_each_scenario_of_a_suite_is_a_test(session, fake, tmp_path):
    (tmp_path / "seg").mkdir()
    (tmp_path / "seg" / "verdict.json").write_text(json.dumps(told("segfault", "fail", 1)))
    plans = [{"scenario": name} for name in ("kill-worker", "segfault", "oom-worker")]
    members = suite_told(member_told("kill-worker"), member_told("segfault", "fail", 1, "seg"),
                         member_told("oom-worker", "skipped"), code=1)  # fmt: skip
    fake.answer(plan={"output": plans}, run={"output": members, "code": 1, "directories": [str(tmp_path)]})
    result = session("", "--aftershock", "preprod", "-v")
    result.assert_outcomes(passed=1, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["aftershock::kill-worker PASSED*", "aftershock::segfault FAILED*", "segfault: fail*",
                                 "    seen *step 21 twice"])  # fmt: skip
    assert fake.calls[-1] == ["run", "kill-worker", "segfault", "oom-worker", "--json"]


def test_scenarios_of_a_suite_can_be_chosen_like_any_test(session, fake):
    fake.answer(plan={"output": [{"scenario": "kill-worker"}, {"scenario": "segfault"}]},
                run={"output": told("segfault")})  # fmt: skip
    session("", "--aftershock", "preprod", "-k", "segfault").assert_outcomes(passed=1, deselected=1)
    assert fake.calls[-1] == ["run", "segfault", "--json"]


def test_an_unknown_suite_is_one_sentence(session, fake):
    fake.answer(plan={"output": "", "code": 64, "progress": "aftershock: unknown scenario 'x'"})
    result = session("", "--aftershock", "x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--aftershock x: unknown scenario 'x'*"])


# Other plugins


def test_a_timeout_that_would_end_the_process_is_refused_before_anything_starts(session, fake):
    text = "def test_it(aftershock): aftershock('kill-worker')"
    result = session(text, "--timeout", "50", "--timeout-method", "thread")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["pytest-timeout's method 'thread' ends the process*"])
    assert fake.calls == []


def test_a_timeout_by_a_signal_lets_the_run_heal_first(session, fake):
    fake.answer(run={"wait": 60})
    result = session(
        "def test_it(aftershock): aftershock('kill-worker')", "--timeout", "2", "--timeout-method", "signal"
    )
    result.assert_outcomes(failed=1)
    assert (fake.folder / "healed").exists()


def test_runs_that_tests_share_are_outside_the_timeout_of_the_first(session, fake):
    fake.answer(run={"wait": 2, "output": told()})
    text = "import pytest\n@pytest.mark.aftershock('kill-worker')\ndef test_it(aftershock_result): pass"
    session(text, "--timeout", "1", "--timeout-method", "signal").assert_outcomes(passed=1)


def test_beside_other_processes_it_is_skipped_with_the_reason(pytester, fake, monkeypatch):
    pytester.makepyfile("""
        import pytest

        def test_by_hand(aftershock):
            aftershock("kill-worker")

        @pytest.mark.aftershock("kill-worker")
        def test_together(aftershock_result):
            pass
    """)
    monkeypatch.setattr("chaos.pytest_plugin._parallel", lambda config: True)
    result = pytester.runpytest_inprocess(*PLUGINS, "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["*not run beside other tests: a run measures times on this machine*"])
    assert fake.calls == []


def test_a_suite_beside_other_processes_is_refused(session, fake):
    result = session("", "--aftershock", "preprod", "-n", "1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert fake.calls == []
