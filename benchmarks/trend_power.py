"""How often the regression gate of ``aftershock trend`` cries wolf, and how soon it sees a slower recovery.

    .venv/bin/python benchmarks/trend_power.py [--histories 4000] [--seed 0]

Simulated are histories of one run a night: lognormal with a coefficient of variation of 15 %, and 2 % outliers of three
times. Printed is, by the length of the baseline: how often an alarm is raised and how often one stands without a
change; and the share of changes (25 % slower, 50 % slower, three times) that is seen by the n-th slow run. The last
table is of a gate over many scenarios, which share the rate of false alarms. Exit code 1 when alarms are raised on 1 %
of the nights or more, or at the longest baseline 90 % of the changes of 25 % are not seen within five nights of the
first slow one; the last table decides nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from metrics.regression import BASELINE, LOOKS
from tests.gate import false_alarms, seen_by

FALSE, POWER = 0.01, 0.9
SLOWER = (1.25, 1.5, 3.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    random = np.random.default_rng(asked.seed)
    columns = [f"{slower:g} times: by run 3, 5, 6" for slower in SLOWER]
    print(f"| baseline | alarms raised | nights red | {' | '.join(columns)} |")
    good = True
    for baseline in LOOKS:
        false, red = false_alarms(random, asked.histories // 4, baseline)
        power = [seen_by(random, asked.histories, baseline, slower) for slower in SLOWER]
        rates = f"{100 * false:.2f} % | {100 * red:.1f} %"
        print(f"| {baseline} runs | {rates} | {' | '.join(map(_cell, power))} |", flush=True)
        good &= false < FALSE
    print(f"| scenarios | alarms raised by one | by all | {' | '.join(columns)} |")
    for series in (5, 20, 40):
        false, _ = false_alarms(random, asked.histories, BASELINE, series)
        shared = [seen_by(random, asked.histories, BASELINE, slower, series) for slower in SLOWER]
        rates = f"{100 * false:.3f} % | {100 * false * series:.2f} %"
        print(f"| {series} | {rates} | {' | '.join(map(_cell, shared))} |", flush=True)
    return 0 if good and power[0][-1] > POWER else 1


def _cell(power: np.ndarray) -> str:
    return ", ".join(f"{100 * power[run - 1]:.0f} %" for run in (3, 5, 6))


if __name__ == "__main__":
    sys.exit(main())
