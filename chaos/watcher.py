"""``python -m chaos.watcher WORKSPACE LEDGER``: outlives the harness of a run, and heals when nobody else does.

It waits for the end of the harness. When that comes before the run's working directory is gone, it leaves the matter
to ``aftershock heal`` for a while, then heals by itself. When the run's time (TTL) is over it heals in any case, since
then the harness itself is stuck.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from pathlib import Path

from chaos.healing import heal_run
from chaos.ledger import Account

ORPHAN_S = 120.0
"""How long a dead harness's run is left to others."""

LOOK_S = 1.0

LONGEST_S = 3600.0
"""The longest wait in one go; the kernel counts it in 32 bits of milliseconds."""


def watch(workspace: Path, ledger: Path, orphan_s: float = ORPHAN_S) -> None:
    """Wait as long as is due, then heal; return at once when somebody else has healed."""
    expired = _outlives(ledger)
    end = 0.0 if expired else time.monotonic() + orphan_s
    while workspace.exists() and time.monotonic() < end:
        time.sleep(LOOK_S)
    if workspace.exists():
        heal_run(workspace, even_if_owned=expired)


def _outlives(ledger: Path) -> bool:
    """Wait for the end of the owner; True when it still lives at the end of the run's time, which may be extended."""
    account = Account.read(ledger)
    try:
        handle = os.pidfd_open(account.owner.pid)
    except ProcessLookupError:
        return False
    try:
        if not account.owner.alive():
            return False
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        while (left := account.left_s) > 0:
            if poll.poll(min(left, LONGEST_S) * 1000):
                return False
            with contextlib.suppress(OSError, ValueError):  # deleted meanwhile: what was read last holds
                account = Account.read(ledger)
        return account.owner.alive()
    finally:
        os.close(handle)


if __name__ == "__main__":
    watch(Path(sys.argv[1]), Path(sys.argv[2]))
