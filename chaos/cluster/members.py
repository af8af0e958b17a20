"""``python -m chaos.cluster.members ADDRESS TIMEOUT NODE...``: wait until exactly these nodes are alive in Ray's GCS.

A process of its own, since Ray reads a cluster's token once per process. Prints a JSON object, node address to node
id; exits with 1 and a line on standard error when the time is up.
"""

from __future__ import annotations

import json
import sys

import tenacity
from ray._raylet import GcsClient

ALIVE = 0


class NotYet(Exception):
    """The cluster does not have the expected members so far."""


def alive(client: GcsClient) -> dict[str, str]:
    """Node id by address of the nodes that the GCS holds for alive."""
    nodes = client.get_all_node_info().values()
    return {node.node_manager_address: node.node_id.hex() for node in nodes if node.state == ALIVE}


def wait(address: str, expected: set[str], timeout_s: float) -> dict[str, str]:
    """Poll the GCS until the expected nodes are its members.

    Raises NotYet when they are not in time.
    """
    client = GcsClient(address=address)

    @tenacity.retry(wait=tenacity.wait_fixed(0.1), stop=tenacity.stop_after_delay(timeout_s), reraise=True)
    def look() -> dict[str, str]:
        found = alive(client)
        if set(found) != expected:
            raise NotYet(f"alive are {sorted(found)}, expected {sorted(expected)}")
        return found

    return look()


if __name__ == "__main__":
    try:
        print(json.dumps(wait(sys.argv[1], set(sys.argv[3:]), float(sys.argv[2]))))
    except NotYet as error:
        sys.exit(str(error))
