"""What the data of an event must hold, by its kind: a stored line that says otherwise cannot be read.

Only what readers rest on is asked for; a kind or a key that is not named here may hold anything.
"""

from __future__ import annotations

from typing import Any

import msgspec

Number = float | str | None
"""None where the program told of none; one that JSON lacks, as the loss of a diverged run, is there in words."""

FIRED = {"injection": str, "fault": str, "phase?": str, "node?": str, "place?": str}
NODE = {"name": str, "address": str}
SEEN = {"name": str, "resolution_ms": float}

DATA: dict[str, dict[str, Any]] = {
    "step.end": {"loss": Number, "lr": Number, "samples": list[tuple[int, int]], "data_ns?": int},
    "state": {"name": str, "parts": dict[str, str]},
    "controller.start": {
        "experiment": str,
        "filesystem?": str,
        "found?": list[str] | None,
        "workers?": int | list[int],
        "claim?": dict[str, float],
        "timeout_s?": float | None,
        "max_failures?": int,
        "max_preemption_failures?": int | None,
        "controller_failure_limit?": int,
        "keep?": int | None,
        "score?": str | None,
    },
    "controller.state": {"from": str, "to": str, "error?": str, "message?": str},
    "controller.decision": {"decision": str},
    "attempt.start": {"placement_ms?": float | None, "workers?": list[dict[str, Any]]},
    "worker.start": {"checkpoint": str | None, "steps": int | None, "start?": int},
    "worker.error": {"error": str, "message?": str},
    "checkpoint.commit": {"checkpoint": str},
    "process.exit": {"pid?": int, "start?": int, "cause?": str},
    "fault.armed": {"injection": str},
    "fault.due": FIRED,
    "fault.fired": FIRED,
    "fault.ended": FIRED,
    "fault.failed": {"injection": str, "error?": str},
    "fault.confirmed": {"injection": str},
    "fault.healed": {"injection": str, "seconds?": float},
    "agent.error": {"error": str},
    "cluster.node.start": NODE,
    "cluster.node.up": NODE,
    "cluster.node.lost": {"name": str},
    "cluster.node.alive": SEEN,
    "cluster.node.dead": SEEN,
    "cluster.node.drain": {"name": str},
    "probe.resources": {"processes": float, "files": float, "rss_mib": float},
    "probe.hang": {"still_s": float, "ranks": dict[str, dict[str, Any]]},
    "probe.waiting": {"seconds": float, "cpu_share": float | None, "states": int},
    "workload.interrupted": {"signal": str, "seconds": float | None},
    "workload.exit": {"code": int | None},
    "residue.checked": {"seconds?": float, "error?": str},
    "run.start": {"schema?": int, "process_started?": float},
    "run.phase": {"phase": str},
    "run.phase.missed": {"phase": str},
    "run.deadline": {"seconds": float},
    "run.healed": {"errors?": list[str]},
    "run.judged": {"seconds?": dict[str, float]},
}
"""Types by key; a key with a question mark may be absent."""


def _decoder(keys: dict[str, Any]) -> msgspec.json.Decoder[Any]:
    fields: list[Any] = []
    for key, kind in keys.items():
        fields.append((key[:-1], kind | msgspec.UnsetType, msgspec.UNSET) if key.endswith("?") else (key, kind))
    return msgspec.json.Decoder(msgspec.defstruct("Data", fields, kw_only=True))


_DECODERS = {kind: _decoder(keys) for kind, keys in DATA.items()}
_ANY = msgspec.json.Decoder(dict[str, Any])


def check(kind: str, data: bytes | msgspec.Raw) -> None:
    """See whether the JSON text of an event's data is what its kind asks for.

    Raises msgspec.MsgspecError or RecursionError where it is not.
    """
    _DECODERS.get(kind, _ANY).decode(data)
