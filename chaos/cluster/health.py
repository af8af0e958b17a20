"""``python -m chaos.cluster.health ADDRESS``: prints each change of a node as Ray's GCS sees it.

One JSON object a line: ``node_id``, ``address``, ``alive``, and when it was seen, ``wall_ns`` and ``mono_ns``. It looks
every 50 ms, so a change is told at most that late, and ends when nobody reads any more. A node that was dead at the
first look is none: on a shared cluster an earlier run has lost it. A process of its own, since Ray reads a cluster's
token once per process.
"""

from __future__ import annotations

import json
import sys
import time

from ray._raylet import GcsClient

from chaos.cluster.members import ALIVE

LOOK_S = 0.05
RESOLUTION_MS = 1000 * LOOK_S


def watch(address: str) -> None:
    """Tell of changes for ever."""
    client = GcsClient(address=address)
    known: dict[str, bool] = {}
    while True:
        now = {"wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns()}
        for key, node in client.get_all_node_info().items():
            alive = node.state == ALIVE
            if known.get(key.hex(), False) != alive:
                known[key.hex()] = alive
                told = {"node_id": key.hex(), "address": node.node_manager_address, "alive": alive, **now}
                print(json.dumps(told), flush=True)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    try:
        watch(sys.argv[1])
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)
