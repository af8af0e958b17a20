"""Who made the job hang: the rank that does not stand where the others wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chaos.flight import BEFORE, PRESENT
from chaos.history import Event
from metrics.recovery import incidents
from metrics.verdict import Case, Finding, Verdict, per_case


@dataclass(frozen=True)
class Hang:
    """One standstill, as every rank was found in it at a time (ns since the epoch)."""

    attempt: int
    at_ns: int
    ranks: dict[int, dict[str, Any]]

    @property
    def culprits(self) -> set[int]:
        """The ranks that the others wait for; empty where it cannot be told."""
        by: dict[str, set[int]] = {}
        for rank, stand in self.ranks.items():
            by.setdefault(str(stand["standing"]), set()).add(rank)
        stuck = by.get("stopped", set()) | by.get("silent", set()) | by.get("elsewhere", set())
        waiting = by.get("collective", set()) | by.get("report", set())
        if stuck:
            return stuck if waiting else set()
        # Those in a collective have gone on without the report that the others wait in.
        return by.get("collective", set()) if by.get("report") else self._astray()

    def _astray(self) -> set[int]:
        """The ranks whose collectives since their last step are not those that the step before began with.

        Empty where not every rank tells them, or where none or all have gone astray.
        """
        told = {rank: stand.get("collectives") for rank, stand in self.ranks.items()}
        if not all(one and one[BEFORE] for one in told.values()):
            return set()
        astray = {rank for rank, one in told.items() if one and one[PRESENT] != one[BEFORE][: len(one[PRESENT])]}
        return astray if len(astray) < len(told) else set()

    @property
    def blocked(self) -> str:
        """The call that the other ranks wait in, with where their program made it."""
        stands = (self.ranks[rank] for rank in sorted(self.ranks.keys() - self.culprits))
        stand = next((one for one in stands if one["standing"] in ("collective", "report")), None)
        return f"{stand['frame']}, called by {stand['site'] or 'no code of the program'}" if stand else ""


@per_case
def hangs(case: Case) -> list[Hang]:
    """Every standstill that was looked at, in order."""
    return [_hang(case, event) for event in case.history.select("probe.hang")]


def _hang(case: Case, event: Event) -> Hang:
    begun = [attempt.number for attempt in case.attempts if attempt.start and attempt.start.wall_ns <= event.wall_ns]
    ranks = {int(rank): stand for rank, stand in event.data["ranks"].items()}
    return Hang(max(begun, default=0), event.wall_ns, ranks)


def check(case: Case) -> Finding:
    """Of each incident the ranks that were hit, and no others, were found to be those that the job waited for."""
    name, expected = "culprit", "the ranks that a hang is due to are told from the stacks of all ranks"
    told = []
    if not incidents(case):
        return Finding(name, Verdict.UNKNOWN, expected, "no fault fired that breaks the job")
    for fired in incidents(case):
        attempt, hit = fired[0].attempt or 0, {event.rank or 0 for event in fired}
        looks = [hang for hang in hangs(case) if hang.attempt == attempt and hang.at_ns >= fired[0].wall_ns]
        hang = looks[-1] if looks else None
        if hang is None or not hang.culprits:
            why = f"nobody asked the ranks of attempt {attempt} where they stood" if hang is None else _undecided(hang)
            return Finding(name, Verdict.UNKNOWN, expected, why, "stacks/")
        words = f"{_ranks(hang.culprits)} of attempt {attempt}; the others wait in {hang.blocked}"
        evidence = {"ranks": {str(rank): stand for rank, stand in hang.ranks.items()}}
        if hang.culprits != hit:
            seen = f"{words}; but {_ranks(hit)} was hit"
            return Finding(name, Verdict.FAIL, expected, seen, "stacks/", evidence)
        told.append(words)
    return Finding(name, Verdict.PASS, expected, "; ".join(told), "stacks/")


def _ranks(ranks: set[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, sorted(ranks)))}"


def _undecided(hang: Hang) -> str:
    stands = "; ".join(
        f"rank {rank} {stand['standing']} {stand['frame']}" for rank, stand in sorted(hang.ranks.items())
    )
    return f"nothing sets a rank of attempt {hang.attempt} apart from the others: {stands}"
