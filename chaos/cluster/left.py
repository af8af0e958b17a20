"""``python -m chaos.cluster.left ADDRESS SECONDS``: which actors and placement groups of Ray's are still there.

Meant for the time after a job's end: looks until nothing is left or the time is up, then prints a JSON object with the
actors, the placement groups and the seconds it took. A process of its own, since Ray reads a cluster's token once per
process.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import ray._private.state
from ray._raylet import GcsClientOptions

LOOK_S = 0.25
GONE = ("DEAD", "REMOVED")


def look(state: Any) -> dict[str, list[str]]:
    """Classes of the live actors that belong to a job, ids of the live placement groups.

    Detached actors are meant to outlive a job: Ray Data keeps two for the whole cluster.
    """
    actors, groups = state.actor_table(None), state.placement_group_table()
    alive = [actor for actor in actors.values() if actor["State"] not in GONE and not actor["IsDetached"]]
    return {
        "actors": sorted(str(actor["ActorClassName"]) for actor in alive),
        "placement_groups": sorted(key for key, group in groups.items() if group["state"] not in GONE),
    }


def wait(address: str, seconds: float) -> dict[str, Any]:
    """Look until nothing is left, up to a time."""
    state = ray._private.state.GlobalState()
    state._initialize_global_state(
        GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    )
    begin = time.monotonic()
    while True:
        found = look(state)
        spent = time.monotonic() - begin
        if not any(found.values()) or spent >= seconds:
            return {**found, "seconds": spent}
        time.sleep(LOOK_S)


if __name__ == "__main__":
    print(json.dumps(wait(sys.argv[1], float(sys.argv[2]))))
