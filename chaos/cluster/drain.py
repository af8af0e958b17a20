"""``python -m chaos.cluster.drain ADDRESS NODE_ID DEADLINE_MS``: tell Ray's GCS that a node will be taken away.

A process of its own, since Ray reads a cluster's token once per process. Kills nothing. Exits with 1 and Ray's reason
when the notice is refused.
"""

from __future__ import annotations

import sys

from ray._raylet import GcsClient
from ray.core.generated import autoscaler_pb2

MESSAGE = "aftershock: the node is about to be reclaimed"


def drain(address: str, node_id: str, deadline_ms: int) -> tuple[bool, str]:
    """Whether Ray took the notice, and its reason where it did not. ``deadline_ms``: milliseconds since the epoch."""
    preemption = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    accepted, why = GcsClient(address=address).drain_node(node_id, preemption, MESSAGE, deadline_ms)
    return bool(accepted), str(why)


if __name__ == "__main__":
    accepted, why = drain(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    if not accepted:
        sys.exit(why)
