"""What strace notes, read again: every shape of line, what was killed, and the tracer of a real process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from chaos import strace
from chaos.strace import Call
from tests.chaos.machines import why_untraceable

TRAINS = """
import os, sys, threading
folder = sys.argv[1]

def save():
    with open(f"{folder}/shard", "wb", buffering=0) as file:
        for _ in range(3):
            file.write(b"x" * 10)
        os.fsync(file.fileno())
    os.rename(f"{folder}/shard", f"{folder}/whole")

other = threading.Thread(target=input)
other.start()
print("here", flush=True)
other.join()
saving = threading.Thread(target=save)
saving.start()
saving.join()
"""
"""Has a second thread; saves in a third one, once it is told a line."""


@pytest.fixture
def calls(tmp_path: Path) -> Callable[..., list[Call]]:
    """The calls of a log with these lines."""

    def read(*lines: str) -> list[Call]:
        log = tmp_path / "log"
        log.write_text("".join(f"{line}\n" for line in lines))
        return strace.calls(log)

    return read


@pytest.fixture
def traceable() -> None:
    """Skip where strace is missing, or may not attach to a process that is not its child."""
    if why := why_untraceable():
        pytest.skip(why)


# Lines

SHAPES = {
    'mkdir("/d/c", 0777) = 0': ("mkdir", "/d/c", True),
    'mkdir("/d/c", 0777) = -1 EEXIST (File exists)': ("mkdir", "/d/c", True),
    'mkdirat(AT_FDCWD</cwd>, "c", 0777) = 0': ("mkdirat", "/cwd/c", True),
    'openat(AT_FDCWD</cwd>, "/d/c/__0_0.distcp", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 3</d/c/__0_0.distcp>': (
        "openat",
        "/d/c/__0_0.distcp",
        True,
    ),
    'openat(AT_FDCWD</cwd>, "c/../c/one", O_RDWR) = 3</cwd/c/one>': ("openat", "/cwd/c/one", True),
    'openat(AT_FDCWD, "/d/one", O_RDWR) = 3</d/one>': ("openat", "/d/one", True),
    'openat(5</d/c>, "one", O_RDONLY|O_CLOEXEC) = 6</d/c/one>': ("openat", "/d/c/one", False),
    'openat(AT_FDCWD</cwd>, "/d/c", O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY) = 7</d/c>': ("openat", "/d/c", False),
    'openat(AT_FDCWD</cwd>, "/d/none", O_RDONLY) = -1 ENOENT (No such file or directory)': (
        "openat",
        "/d/none",
        False,
    ),
    'write(3</d/c/__0_0.distcp>, ""..., 1261) = 1261': ("write", "/d/c/__0_0.distcp", True),
    'write(3</d/c/a name with blanks>, ""..., 5) = 5': ("write", "/d/c/a name with blanks", True),
    'pwrite64(3</d/c/one>, ""..., 1048576, 0) = 1048576': ("pwrite64", "/d/c/one", True),
    "fsync(3</d/c/one>)                      = 0": ("fsync", "/d/c/one", True),
    "close(3</d/c/one>)                      = 0": ("close", "/d/c/one", True),
    "close(3</d/c/one>(deleted))             = 0": ("close", "/d/c/one", True),
    'rename("/d/c/.metadata.tmp", "/d/c/.metadata") = 0': ("rename", "/d/c/.metadata.tmp", True),
    'renameat2(AT_FDCWD</cwd>, "/d/a", AT_FDCWD</cwd>, "/d/b", 0) = 0': ("renameat2", "/d/a", True),
    'unlink("/d/c/one") = 0': ("unlink", "/d/c/one", True),
    'unlinkat(5</d/c>, "one", 0) = 0': ("unlinkat", "/d/c/one", True),
    'unlinkat(AT_FDCWD</d>, "c", AT_REMOVEDIR) = 0': ("unlinkat", "/d/c", True),
    'rmdir("/d/c") = 0': ("rmdir", "/d/c", True),
    'write(3</d/c/one>, ""..., 10 <unfinished ...>': ("write", "/d/c/one", True),
}


@pytest.mark.parametrize("line", SHAPES)
def test_a_call_is_read_with_its_file_and_whether_it_writes(calls: Callable[..., list[Call]], line: str) -> None:
    name, path, writes = SHAPES[line]
    assert calls(f"4711 {line}") == [Call(4711, name, path, writes, False)]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no line of strace's",
        "4711",
        "4711 +++ exited with 0 +++",
        "4711 +++ killed by SIGKILL +++",
        "4711 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=1, si_uid=0, si_status=0} ---",
        "4711 <... write resumed>)               = 10",
        "4711 close(3)                           = 0",
        "4711 write(-1, 0x7ffe, 5)               = -1 EBADF (Bad file descriptor)",
        'write(3</d/c/one>, ""..., 10) = 10',
        "4711 mkdir(",
        "\x00\x01\x02",
    ],
)
def test_what_is_no_call_on_a_file_is_passed_over(calls: Callable[..., list[Call]], line: str) -> None:
    assert calls(line, "7 close(3</d/one>) = 0") == [Call(7, "close", "/d/one", True, False)]


def test_pipes_and_sockets_have_paths_that_are_below_no_folder(calls: Callable[..., list[Call]]) -> None:
    found = calls('7 write(3<pipe:[123]>, ""..., 1) = 1', '7 write(4<socket:[1]>, ""..., 1) = 1')
    assert [call.path for call in found] == ["pipe:[123]", "socket:[1]"]
    assert strace.below(found, "/") == []


def test_calls_come_in_the_order_noted_whatever_their_thread(calls: Callable[..., list[Call]]) -> None:
    found = calls(
        '8 write(3</d/one>, ""..., 10 <unfinished ...>',
        '9 mkdir("/d/c", 0777) = 0',
        "8 <... write resumed>)               = 10",
        "8 close(3</d/one>) = 0",
    )
    assert [(call.thread, call.name) for call in found] == [(8, "write"), (9, "mkdir"), (8, "close")]


def test_a_log_that_is_missing_or_empty_or_cut_tells_what_it_can(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert strace.calls(log) == []
    log.touch()
    assert strace.calls(log) == []
    log.write_bytes(b'7 mkdir("/d/c", 0777) = 0\n7 write(3</d/\xff\xfe')
    assert [call.path for call in strace.calls(log)] == ["/d/c"]


def test_a_link_in_a_path_is_followed_as_the_kernel_does(calls: Callable[..., list[Call]], tmp_path: Path) -> None:
    """The kernel names an open file by its real path, so the two spellings must be one."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = calls(
        f'7 openat(AT_FDCWD</>, "{tmp_path}/link/one", O_WRONLY|O_CREAT, 0666) = 3<{tmp_path}/real/one>',
        f'7 write(3<{tmp_path}/real/one>, ""..., 10) = 10',
        f'7 unlink("{tmp_path}/link") = 0',
        '7 mkdir("somewhere/below", 0777) = 0',
    )
    real = tmp_path.resolve()
    assert [call.path for call in found[:2]] == [f"{real}/real/one"] * 2
    assert [call.path for call in found[2:]] == [f"{real}/link", "somewhere/below"]


# Killed


def test_the_call_on_whose_entering_a_thread_was_killed_was_not_carried_out(calls: Callable[..., list[Call]]) -> None:
    found = calls(
        '7 write(4</d/one>, ""..., 10) = 10',
        '7 write(4</d/one>, ""..., 10) = ?',
        "7 +++ killed by SIGKILL +++",
    )
    assert [call.killed for call in found] == [False, True]


def test_a_call_that_is_unfinished_at_the_end_of_its_thread_was_not_carried_out(
    calls: Callable[..., list[Call]],
) -> None:
    found = calls(
        '7 write(4</d/one>, ""..., 10 <unfinished ...>',
        "8 close(5</d/two>) = 0",
        "7 <... write resumed>)               = ?",
        "8 +++ killed by SIGKILL +++",
        "7 +++ killed by SIGKILL +++",
    )
    assert [(call.name, call.killed) for call in found] == [("write", True), ("close", False)]


@pytest.mark.parametrize(
    "end",
    [
        [],
        ["7 +++ exited with 0 +++"],
        ["7 +++ killed by SIGTERM +++"],
        ["8 +++ killed by SIGKILL +++"],
        ["7 close(4</d/one>) = 0", "7 +++ killed by SIGKILL +++"],
    ],
)
def test_a_call_before_any_other_end_was_carried_out_as_far_as_is_known(
    calls: Callable[..., list[Call]], end: list[str]
) -> None:
    assert not any(call.killed for call in calls('7 write(4</d/one>, ""..., 10) = ?', *end))


# Below


def test_what_is_below_a_folder_is_the_folder_itself_and_its_files_and_no_neighbour() -> None:
    paths = ["/d", "/d/c", "/d/c/one", "/d/c1", "/d/c1/two", "/x/d/c/one"]
    found = [Call(7, "write", path, True, False) for path in paths]
    assert [call.path for call in strace.below(found, "/d/c")] == ["/d/c", "/d/c/one"]


# Commands


def test_a_call_that_this_processor_lacks_is_no_mistake_when_all_are_noted(tmp_path: Path) -> None:
    command = strace.record(tmp_path / "log")
    (traced,) = [word for word in command if word.startswith("trace=")]
    assert traced.removeprefix("trace=").split(",") == [f"?{call}" for call in strace.CALLS]
    assert command[-2:] == ["-o", str(tmp_path / "log")]


def test_a_file_is_aimed_at_by_its_own_name_and_by_that_of_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    command = strace.kill(tmp_path / "log", "write", f"{tmp_path}/link/one", 3)
    aimed = [command[number + 1] for number, word in enumerate(command) if word == "-P"]
    assert aimed == [f"{tmp_path}/link/one", f"{tmp_path.resolve()}/real/one"]
    assert "inject=write:signal=SIGKILL:when=3" in command
    assert strace.kill(tmp_path / "log", "write", f"{tmp_path.resolve()}/real/one", 3).count("-P") == 1


# A real process


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of two threads that saves when it is told a line."""
    started = subprocess.Popen(
        [sys.executable, "-S", "-c", TRAINS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"here\n"
    yield started
    started.kill()
    started.communicate()


def saved(process: subprocess.Popen[bytes], tracer: subprocess.Popen[bytes]) -> int:
    """Once every thread is traced, let the process save; how it ended."""
    while not strace.traces(tracer.pid, process.pid):
        assert tracer.poll() is None
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    code = process.wait(20)
    assert tracer.wait(20) == 0
    return code


@pytest.mark.usefixtures("traceable")
def test_what_a_thread_does_to_files_is_noted_from_the_moment_that_all_are_traced(
    trained: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert len(os.listdir(f"/proc/{trained.pid}/task")) == 2
    assert not strace.traces(os.getpid(), trained.pid)
    assert saved(trained, subprocess.Popen([*strace.record(tmp_path / "log"), "-p", str(trained.pid)])) == 0
    found = [call for call in strace.below(strace.calls(tmp_path / "log"), str(tmp_path.resolve())) if call.writes]
    shard = f"{tmp_path.resolve()}/shard"
    names = ["openat", "write", "write", "write", "fsync", "close", "rename"]
    assert [(call.name, call.path) for call in found] == [(name, shard) for name in names]
    assert len({call.thread for call in found}) == 1
    assert found[0].thread != trained.pid
    assert not any(call.killed for call in found)


@pytest.mark.usefixtures("traceable")
def test_a_process_is_killed_on_entering_the_call_aimed_at_through_a_link_too(
    trained: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    command = [*strace.kill(tmp_path / "log", "write", f"{link}/shard", 3), "-p", str(trained.pid)]
    tracer = subprocess.Popen(command)
    while not strace.traces(tracer.pid, trained.pid):
        assert tracer.poll() is None
    assert trained.stdin is not None
    trained.stdin.write(b"\n")
    trained.stdin.flush()
    assert trained.wait(20) == -9
    tracer.wait(20)
    assert (tmp_path / "shard").read_bytes() == b"x" * 20
    assert [call.killed for call in strace.calls(tmp_path / "log")] == [False, False, True]


def test_a_process_that_is_gone_is_traced_by_nobody() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert not strace.traces(os.getpid(), gone.pid)


# Ending a tracer

DEAF = "import os, signal, time; heard = []; handler = lambda *_: heard.append(0) or len(heard) < {ends} or os._exit(0)"
DEAF += "; signal.signal(signal.SIGTERM, handler); print(flush=True); [time.sleep(0.01) for _ in range(6000)]"


@pytest.mark.parametrize(("ends", "code"), [(1, 0), (3, 0), (10**6, -9)])
def test_a_tracer_that_misses_a_signal_is_told_again_and_killed_in_the_end(
    ends: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strace, "ASKED_S", 0.05)
    deaf = subprocess.Popen([sys.executable, "-S", "-c", DEAF.format(ends=ends)], stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    deaf.stdout.readline()
    strace.end(deaf)
    assert deaf.returncode == code


def alive_in(session: int) -> list[int]:
    """The processes of a session that are no zombies."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


@pytest.mark.usefixtures("traceable")
def test_a_tracer_ended_at_any_time_of_its_start_lets_the_process_go_on(
    trained: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    for taken in range(40):
        command = [*strace.record(tmp_path / "log"), "-p", str(trained.pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
        time.sleep(taken * 0.0005)
        strace.end(tracer)
        assert not strace.traces(tracer.pid, trained.pid)
        end = time.monotonic() + 10
        while alive_in(tracer.pid):
            assert time.monotonic() < end
    assert trained.poll() is None
    assert "S" in Path(f"/proc/{trained.pid}/stat").read_text().rpartition(")")[2].split()[0]
