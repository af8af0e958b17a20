"""What the fault of starter.py does to a process."""

import multiprocessing
from pathlib import Path

from chaos import own

FILE = Path(__file__).with_name("starter.py")
Starter = own.load(FILE).module.Starter


def test_the_file_is_sound(aftershock):
    aftershock.validate(FILE)


def test_the_process_leaves_with_the_code():
    process = multiprocessing.get_context("fork").Process(target=Starter(code=7).fire)
    process.start()
    process.join(10)
    assert process.exitcode == 7


def test_it_says_how_the_process_ends():
    assert Starter(code=7).cause == "exit code 7"
