"""What grows from restart to restart: time, processes, open files, memory."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from metrics.recovery import recoveries
from metrics.verdict import Case, Finding, Verdict

LEAST = 4
"""Attempts needed to speak of a trend."""


def slope(values: Sequence[float]) -> float:
    """Theil-Sen slope of a series: the median of the slopes between all pairs of its points, per place."""
    pairs = itertools.combinations(enumerate(values), 2)
    return statistics.median((b - a) / (j - i) for (i, a), (j, b) in pairs)


def series(case: Case) -> dict[str, list[float]]:
    """By name: seconds of each whole recovery; processes, files and MiB of the run in each restarted attempt."""
    samples = [e.data for e in case.history.select("probe.resources") if e.attempt]
    return {
        "seconds": [r.total_s for r in recoveries(case) if not r.missing],
        **{key: [float(sample[key]) for sample in samples] for key in ("processes", "files", "rss_mib")},
    }


def check(case: Case, by: float = 0.25, files: float = 20.0) -> Finding:
    """Over all restarts time and memory have not grown by more than that share of their medians.

    ``files``: how many open files more each restart may leave, over all processes. A process more in every second
    restart is a leak whatever the share.
    """
    name = "growth"
    expected = (
        f"over all restarts, time and memory grow by less than {by:.0%}, open files by at most {files:g} a restart, "
        "processes not at all"
    )
    found = series(case)
    if short := [key for key, values in found.items() if len(values) < LEAST]:
        seen = f"{len(found[short[0]])} values of {short[0]}, {LEAST} are needed"
        return Finding(name, Verdict.UNKNOWN, expected, seen)
    grown = {key: slope(v) * (len(v) - 1) / statistics.median(v) for key, v in found.items()}
    bad = [key for key in ("seconds", "rss_mib") if grown[key] > by]
    bad += ["files"] if slope(found["files"]) > files else []
    bad += ["processes"] if slope(found["processes"]) >= 0.5 else []
    seen = ", ".join(f"{key.replace('_mib', '')} {share:+.1%}" for key, share in grown.items())
    seen += f", {slope(found['files']):+.0f} files a restart"
    verdict = Verdict.FAIL if bad else Verdict.PASS
    return Finding(name, verdict, expected, f"{seen} over {len(found['seconds'])} restarts", evidence={"series": found})
