"""The register of faults, and the faults themselves on processes made for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from chaos.faults.base import all_faults, find_fault
from chaos.workload import INSTALLATION


def test_the_register_holds_every_fault_by_its_name():
    known = all_faults()
    assert "kill" in known
    assert list(known) == sorted(known)
    assert all(fault.name == name for name, fault in known.items())


@pytest.mark.parametrize("name", all_faults())
def test_a_fault_says_what_it_does_and_what_it_proves(name):
    fault = find_fault(name)
    for text in (fault.effect, fault.certifies, fault.not_certified, type(fault).__doc__):
        assert len(text.split()) >= 2


def test_an_unknown_fault_is_an_error():
    with pytest.raises(KeyError):
        find_fault("nosuch")


def test_kill_ends_the_process_that_fires_it():
    code = "from chaos.faults.base import find_fault; find_fault('kill').fire(); print('still here')"
    environment = {**os.environ, "PYTHONPATH": str(INSTALLATION)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-9, b"")
