"""Reading a verification, and what should be found."""

from __future__ import annotations

from metrics.checkpoints.verify import Recorded, Verification
from metrics.verdict import Verdict
from tests.shards import digests, held, whole

WORLD = 2
RANKS = ("__0_0.distcp", "__1_0.distcp")


def parts_of(step: int, world: int = WORLD) -> dict[str, str]:
    """Digests of all that ranks save at a step."""
    return {key: value for rank in range(world) for key, value in digests(held(whole(step), rank, world)).items()}


RECORD = Recorded(parts_of(8), "the test")


def verdicts(found: Verification) -> dict[str, Verdict]:
    """The verdict of each check."""
    return {finding.check: finding.verdict for finding in found.findings}


def seen(found: Verification, check: str) -> str:
    """What a check saw."""
    return next(finding.seen for finding in found.findings if finding.check == check)


def failing(found: Verification) -> set[str]:
    """The checks that fail."""
    return {name for name, verdict in verdicts(found).items() if verdict is Verdict.FAIL}
