"""``report.html``: one run on one page, in one file that opens offline."""

from __future__ import annotations

from pathlib import Path

import jinja2

from chaos.faults.base import all_faults
from metrics.goodput import BUCKETS
from metrics.recovery import PHASES
from metrics.summary import Summary

ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
)


def write(summary: Summary, path: Path) -> None:
    """Render the report of a run."""
    known = all_faults()
    faults = [known[name] for name in sorted({injection.fault for injection in summary.injections} & known.keys())]
    page = ENVIRONMENT.get_template("report.html.j2").render(s=summary, meaning=PHASES, buckets=BUCKETS, faults=faults)
    path.write_text(page, encoding="utf-8")
