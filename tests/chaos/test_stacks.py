"""Stacks as faulthandler writes them: read, and what is no stack passed over."""

from __future__ import annotations

import faulthandler
import subprocess
import threading

import pytest

from chaos.process import Identity
from chaos.stacks import Frame, ask, inside, read

TWO_THREADS = """\
Thread 0x00007f1c (most recent call first):
  File "/lib/threading.py", line 324 in wait
  File "/lib/threading.py", line 1045 in _bootstrap_inner

Current thread 0x00007f1d (most recent call first):
  File "/site/chaos/faults/hang.py", line 31 in fire
  File "/site/chaos/agent/firing.py", line 107 in _do
  File "<string>", line 1 in <module>
"""

STANDS = """
import sys, time
from pathlib import Path
from chaos.agent.session import write_stacks_on_signal

write_stacks_on_signal(Path(sys.argv[1]), 3)
print("ready", flush=True)
time.sleep(60)
"""

MOVES = """
import sys
from pathlib import Path
from chaos.agent.session import write_stacks_on_signal

def here():
    print("here", flush=True)
    sys.stdin.readline()

def there():
    print("there", flush=True)
    sys.stdin.readline()

write_stacks_on_signal(Path(sys.argv[1]), 3)
here()
there()
"""


@pytest.fixture
def written(tmp_path):
    """The stacks of a process that has written that text."""

    def reading(text):
        (tmp_path / "rank0-7.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(tmp_path, 0, 7)

    return reading


def test_each_thread_is_read_from_its_innermost_frame(written) -> None:
    waiting, standing = written(TWO_THREADS)
    assert waiting == [
        Frame("/lib/threading.py", 324, "wait"),
        Frame("/lib/threading.py", 1045, "_bootstrap_inner"),
    ]
    assert [frame.function for frame in standing] == ["fire", "_do", "<module>"]


def test_a_frame_is_told_as_function_file_and_line() -> None:
    assert str(Frame("/site/chaos/faults/hang.py", 31, "fire")) == "fire (hang.py:31)"


def test_the_innermost_frame_of_a_place_is_found_in_any_thread(written) -> None:
    stacks = written(TWO_THREADS)
    assert inside(stacks, "/chaos/") == Frame("/site/chaos/faults/hang.py", 31, "fire")
    assert inside(stacks, "/agent/") == Frame("/site/chaos/agent/firing.py", 107, "_do")
    assert inside(stacks, "/torch/") is None
    assert inside([], "/chaos/") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "Thread 0x1 (most recent call first):\n",
        "Thread 0x1 (most recent call first):\n  <no Python frame>\n",
        'File "a.py", line 1 in f\n',
        '  File "a.py", line x in f\n',
        '  File "a.py", line 1',
        "  File a.py, line 1 in f\n",
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_stack_is_none(written, text) -> None:
    assert written(text) == []


def test_garbage_around_a_stack_does_not_hide_it(written) -> None:
    torn = b'\xff\x00\nFatal: \x80\n  File "half' + b"\n" + TWO_THREADS.encode() + b'  File "/cut/of'
    assert [len(thread) for thread in written(torn)] == [2, 3]


def test_a_process_that_has_written_nothing_has_no_stacks(tmp_path) -> None:
    assert read(tmp_path, 0, 7) == []
    assert read(tmp_path / "nowhere", 0, 7) == []


def test_stacks_are_told_apart_by_rank_and_process(tmp_path) -> None:
    (tmp_path / "rank1-7.txt").write_text(TWO_THREADS)
    assert read(tmp_path, 1, 7)
    assert read(tmp_path, 0, 7) == []
    assert read(tmp_path, 1, 8) == []


def test_what_this_interpreter_writes_is_read(tmp_path) -> None:
    resting = threading.Event()
    thread = threading.Thread(target=resting.wait)
    thread.start()
    with (tmp_path / "rank0-7.txt").open("w") as file:
        faulthandler.dump_traceback(file, all_threads=True)
    resting.set()
    thread.join()
    stacks = read(tmp_path, 0, 7)
    assert len(stacks) >= threading.active_count() + 1
    assert inside(stacks, __file__).function == "test_what_this_interpreter_writes_is_read"
    assert inside(stacks, "threading.py").function == "wait"


def test_a_process_writes_when_it_is_asked_and_goes_on(tmp_path, python, eventually) -> None:
    child = python(STANDS, tmp_path)
    child.stdout.readline()
    identity = Identity.of(child.pid)
    assert read(tmp_path, 3, child.pid) == []
    assert ask(tmp_path, {3: identity}) == {3: 0}
    assert eventually(lambda: inside(read(tmp_path, 3, child.pid), "<string>"))
    assert identity.alive()


def test_who_is_gone_is_asked_in_vain(spawn, tmp_path) -> None:
    child = spawn()
    identity = Identity.of(child.pid)
    child.kill()
    child.wait()
    ask(tmp_path, {0: identity, 1: Identity(identity.pid, identity.start - 1)})


def test_a_process_stands_where_it_stood_when_it_last_wrote(tmp_path, python, eventually) -> None:
    child = python(MOVES, tmp_path, stdin=subprocess.PIPE)

    def functions(begin):
        return [frame.function for thread in read(tmp_path, 3, child.pid, begin) for frame in thread]

    for place in ("here", "there"):
        assert child.stdout.readline().strip() == place.encode()
        begin = ask(tmp_path, {3: Identity.of(child.pid)})[3]
        assert eventually(lambda wanted=place, since=begin: wanted in functions(since))
        child.stdin.write(b"\n")
        child.stdin.flush()
    assert begin > 0
    assert "here" not in functions(begin)
