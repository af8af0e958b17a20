"""Identity of processes: who is alive, who may be signalled, who belongs to a run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from chaos.process import (
    MARKER,
    Identity,
    carries_marker,
    current,
    exit_cause,
    holds_file_below,
    name_of,
    ours,
    session_of,
)

RUN = "0a1b2c3d"


def marked(run_id=RUN):
    return {**os.environ, MARKER: run_id}


def unmarked():
    return {k: v for k, v in os.environ.items() if k != MARKER}


def pids_of(identities):
    return {identity.pid for identity in identities}


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "workspace"
    made.mkdir()
    (made / "log").touch()
    return made


@pytest.fixture
def spawn_holding(spawn, folder):
    """Start an unmarked process that holds a file below the workspace."""

    def start():
        with (folder / "log").open() as file:
            return spawn("sleep", "60", stdin=file, env=unmarked())

    return start


def test_a_live_child_has_one_identity(spawn) -> None:
    child = spawn()
    identity = Identity.of(child.pid)
    assert identity == Identity.of(child.pid)
    assert identity.pid == child.pid
    assert identity.alive()


def test_a_dead_and_reaped_child_has_none(spawn) -> None:
    child = spawn()
    identity = Identity.of(child.pid)
    child.kill()
    child.wait()
    assert Identity.of(child.pid) is None
    assert not identity.alive()
    assert identity.send(signal.SIGKILL) is False
    assert session_of(child.pid) == 0


def test_a_zombie_is_not_alive_and_not_signalled(spawn) -> None:
    child = spawn()
    identity = Identity.of(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{child.pid}").exists()
    assert Identity.of(child.pid) is None
    assert not identity.alive()
    assert identity.send(signal.SIGTERM) is False


def test_another_life_of_the_same_pid_is_never_signalled(spawn) -> None:
    child = spawn()
    identity = Identity.of(child.pid)
    assert Identity(child.pid, identity.start - 1).send(signal.SIGKILL) is False
    assert Identity(child.pid, identity.start + 1).send(signal.SIGKILL) is False
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.1)


def test_the_very_process_is_signalled(spawn) -> None:
    child = spawn()
    assert Identity.of(child.pid).send(signal.SIGKILL) is True
    assert child.wait(5) == -signal.SIGKILL


def test_a_stopped_process_is_alive_and_stopped_until_it_is_continued(spawn, eventually) -> None:
    identity = Identity.of(spawn().pid)
    assert not identity.stopped()
    identity.send(signal.SIGSTOP)
    assert eventually(identity.stopped)
    assert identity.alive()
    identity.send(signal.SIGCONT)
    assert eventually(lambda: not identity.stopped())
    assert identity.alive()


def test_another_life_of_a_stopped_pid_is_not_stopped(spawn, stop) -> None:
    identity = stop(spawn())
    assert not Identity(identity.pid, identity.start - 1).stopped()


def test_a_process_that_is_gone_is_not_stopped(spawn, stop) -> None:
    child = spawn()
    identity = stop(child)
    child.kill()
    child.wait()
    assert not identity.stopped()


@pytest.fixture
def handle_of(spawn):
    """A child and its pidfd."""
    handles = []

    def start(*command, **options):
        child = spawn(*command, **options)
        handles.append(os.pidfd_open(child.pid))
        return child, handles[-1]

    yield start
    for handle in handles:
        os.close(handle)


@pytest.mark.usefixtures("kernel_tells")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM])
def test_the_signal_that_ended_a_process_is_its_cause(handle_of, number) -> None:
    child, handle = handle_of()
    child.send_signal(number)
    child.wait()
    assert exit_cause(handle) == number.name


@pytest.mark.usefixtures("kernel_tells")
@pytest.mark.parametrize("code", [0, 1, 134, 255])
def test_the_exit_code_of_a_process_is_its_cause(handle_of, code) -> None:
    child, handle = handle_of("sh", "-c", f"read line; exit {code}", stdin=subprocess.PIPE)
    child.stdin.close()
    child.wait()
    assert exit_cause(handle) == f"exit code {code}"


@pytest.mark.usefixtures("kernel_tells")
def test_a_signal_without_a_name_is_a_cause_too(handle_of) -> None:
    """As that which asks for stacks, when it comes before its handler or after."""
    child, handle = handle_of()
    child.send_signal(signal.SIGRTMIN + 9)
    child.wait()
    assert str(signal.SIGRTMIN + 9) in exit_cause(handle) or "SIGRTMIN+9" in exit_cause(handle)


def test_a_process_that_runs_has_no_cause(handle_of) -> None:
    _, handle = handle_of()
    assert exit_cause(handle) == ""


def test_what_is_no_process_has_no_cause() -> None:
    with Path("/dev/null").open() as file:
        assert exit_cause(file.fileno()) == ""


def test_a_later_process_starts_later(spawn) -> None:
    first = Identity.of(spawn().pid)
    assert 0 < current().start <= first.start


def test_a_process_name_with_spaces_and_brackets_is_read_right(spawn, tmp_path) -> None:
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to("/bin/sleep")
    child = spawn(str(odd), "60")
    assert Identity.of(child.pid).alive()
    assert session_of(child.pid) == child.pid


def test_the_name_of_a_process_is_that_of_its_program(spawn, tmp_path) -> None:
    program = tmp_path / "raylet of a very long name"
    shutil.copy(shutil.which("sleep"), program)
    child = spawn(program, "60")
    assert name_of(child.pid) == "raylet of a ver"
    child.kill()
    child.wait()
    assert name_of(child.pid) == ""


def test_the_current_process_is_this_one() -> None:
    assert current().pid == os.getpid()
    assert current().alive()


def test_the_marker_is_compared_whole(spawn) -> None:
    child = spawn(env=marked("abcd"))
    assert carries_marker(child.pid, "abcd")
    assert not carries_marker(child.pid, "abc")
    assert not carries_marker(child.pid, "abcde")


def test_the_marked_child_is_ours_and_its_unmarked_sibling_never(spawn, folder) -> None:
    mine, sibling, foreign = spawn(env=marked()), spawn(env=unmarked()), spawn(env=marked("another"))
    found = pids_of(ours(RUN, frozenset(), folder))
    assert mine.pid in found
    assert found.isdisjoint({sibling.pid, foreign.pid, os.getpid()})


def test_who_holds_a_file_below_the_workspace_is_ours_in_a_known_session_only(spawn_holding, folder) -> None:
    child = spawn_holding()
    assert holds_file_below(child.pid, folder)
    assert child.pid in pids_of(ours(RUN, frozenset({child.pid}), folder))
    assert child.pid not in pids_of(ours(RUN, frozenset(), folder))


def test_a_known_session_alone_proves_nothing(spawn, folder) -> None:
    child = spawn(env=unmarked())
    assert child.pid not in pids_of(ours(RUN, frozenset({child.pid}), folder))


def test_who_works_below_the_workspace_holds_it(spawn, folder) -> None:
    (folder / "node").mkdir()
    child = spawn(cwd=folder / "node", env=unmarked())
    assert child.pid in pids_of(ours(RUN, frozenset({child.pid}), folder))


def test_a_folder_with_the_same_beginning_is_another_folder(spawn, folder) -> None:
    other = folder.with_name("workspace-2")
    (other / "node").mkdir(parents=True)
    child = spawn(cwd=other / "node", env=unmarked())
    assert not holds_file_below(child.pid, folder)


def test_the_session_of_a_marked_process_is_known(spawn, folder) -> None:
    """As with Ray: the raylet keeps the marker, its workers lose it."""
    script = f"env -u {MARKER} sleep 60 < {folder}/log & echo $!; wait"
    raylet = spawn("sh", "-c", script, env=marked(), stdout=subprocess.PIPE)
    worker = int(raylet.stdout.readline())
    assert {raylet.pid, worker} <= pids_of(ours(RUN, frozenset(), folder))


def test_we_are_never_ours(folder) -> None:
    with (folder / "log").open():
        assert holds_file_below(os.getpid(), folder)
        assert os.getpid() not in pids_of(ours(RUN, frozenset({os.getsid(0)}), folder))


def test_a_workspace_reached_through_a_symbolic_link_is_recognised(spawn_holding, folder, tmp_path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder.parent)
    assert holds_file_below(spawn_holding().pid, link / folder.name)
