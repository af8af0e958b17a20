"""Suites for the whole life of a job: before production, and everything."""

from __future__ import annotations

from scenarios.scenario import Suite, register

PREPROD = register(
    Suite(
        name="preprod",
        title="Twelve scenarios that a team wants to have seen before production.",
        members=(
            "kill-worker",
            "kill-rank-zero",
            "worker-exception",
            "kill-in-save",
            "kill-during-recovery",
            "hang-frozen",
            "hang-blocked",
            "straggler",
            "long-save",
            "drop-node",
            "drop-node-elastic",
            "drain-node",
        ),
    )
)

NOTICE = register(
    Suite(
        name="notice",
        title="A node is reclaimed: what heeding the notice is worth, in one table.",
        members=("drain-node", "drain-node-unheeded"),
    )
)

FULL = register(Suite(name="full", title="Every scenario of the library.", members=("*",)))
