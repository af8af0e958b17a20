"""What the page on planning says, compared with what the command prints and computes."""

from __future__ import annotations

import re

import msgspec
import pytest
from click.testing import CliRunner

from metrics.plan.failures import job_mtbf_s
from metrics.plan.fleet import RULES, Budget, Choice, FleetPlan, Input, Knob, Reserve
from metrics.plan.formulas import Costs, Restarts, efficiency, meta_ettr, optimum_s
from metrics.plan.measured import DOWN, Measured
from metrics.plan.presets import PRESETS, preset
from metrics.plan.simulate import Outcome
from metrics.plan.sizing import Sizing, Strategy
from scenarios.cli import cli
from scenarios.plan_request import PlanRecord, Simulated
from scenarios.planning import plan
from tests.docs.pages import bare, blocks, page, quoted, section, tables
from tests.metrics.plan.runs import write

TEXT = page("planning.md")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")

SHOWN = [block for block in blocks(TEXT, "console") if block.startswith("$ aftershock plan")]


def printed(line: str) -> str:
    """What the command prints for a line of the page, without blanks at the ends of lines."""
    assert line.startswith("$ aftershock ")
    result = CliRunner().invoke(cli, line.removeprefix("$ aftershock ").split(), prog_name="aftershock")
    assert result.exit_code == 0, result.output
    return "".join(f"{text.rstrip()}\n" for text in result.output.splitlines())


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.splitlines()[0].removeprefix("$ aftershock "))
def test_what_the_page_shows_is_what_the_command_prints(block, tmp_path, monkeypatch):
    """Random numbers may change with the version of numpy: a simulation is compared within 5 per cent."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    line, _, told = block.partition("\n")
    exact, _, random = told.partition("simulate ")
    exact_seen, _, random_seen = printed(line).partition("simulate ")
    assert exact_seen == exact
    assert NUMBER.sub("#", random_seen).split() == NUMBER.sub("#", random).split()
    numbers = [[float(found.replace(",", "")) for found in NUMBER.findall(text)] for text in (random_seen, random)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.05, abs=0.1)


def test_each_part_of_the_command_is_shown():
    assert len(SHOWN) == 4
    assert sum("--simulate" in block.splitlines()[0] for block in SHOWN) == 1


def test_the_presets_are_those_of_the_code():
    rows = tables(section(TEXT, "How often the job fails"), "preset")
    told = [(bare(row["preset"]), row["failures of a machine in 1000 days"], row["source"]) for row in rows]
    assert told == [(p.name, f"{1000 * p.per_machine_day:.2f}", p.source) for p in PRESETS.values()]


def test_the_rules_for_the_period_are_those_of_the_code():
    rows = {row["name"]: row["formula"] for row in tables(section(TEXT, "The formulas"), "name")}
    told = {name: meaning for name, (_, meaning) in RULES.items() if "series" not in meaning}
    assert {name: rows[name] for name in told} == told
    assert set(RULES) <= set(rows)


def test_the_phases_that_are_downtime_are_those_of_the_code():
    rows = {row["taken"]: row["from"] for row in tables(section(TEXT, "What was measured"), "taken")}
    assert tuple(quoted(rows["downtime"])) == DOWN


def test_every_option_of_the_command_is_told():
    options = {option for parameter in plan.params for option in parameter.opts} - {"--gpus"}
    assert {option for option in options if f"`{option}" not in TEXT} == set()


def test_the_optimum_is_as_flat_as_told():
    costs = Costs(checkpoint_s=300, restore_s=300, downtime_s=600, mtbf_s=mtbf_s("llama3", 16384))
    best = optimum_s(costs)
    lost = {factor: efficiency(costs, best) - efficiency(costs, best * factor) for factor in (0.9, 1.1, 3, 1 / 3)}
    told = re.search(r"ten per cent beside the best period costs less than ([\d.]+) points.* three costs (\d+)", flat())
    assert told
    assert 100 * max(lost[0.9], lost[1.1]) < float(told[1])
    assert 100 * min(lost[3], lost[1 / 3]) > float(told[2])


def flat() -> str:
    return " ".join(TEXT.split())


# Published results


def mtbf_s(name: str, gpus: int) -> float:
    return job_mtbf_s(gpus, preset(name).per_machine_day)


def best(checkpoint_s: float, downtime_s: float, restore_s: float, mtbf: float) -> float:
    costs = Costs(checkpoint_s=checkpoint_s, downtime_s=downtime_s, restore_s=restore_s, mtbf_s=mtbf)
    return efficiency(costs, optimum_s(costs))


def rsc(machines: int, rate: float, overhead_min: float, interval_min: float, stall_s: float, queue_min: float) -> str:
    """Meta's own formula, and the exact one with the overhead and the queue as downtime."""
    job = Restarts(
        machines=machines, per_machine_day=rate, overhead_s=60 * overhead_min, interval_s=60 * interval_min,
        stall_s=stall_s, queue_s=60 * queue_min,
    )  # fmt: skip
    stall = max(stall_s, 1e-6)
    downtime = 60 * (overhead_min + queue_min)
    costs = Costs(checkpoint_s=stall, downtime_s=downtime, restore_s=0, mtbf_s=86400 / (machines * rate))
    return f"{meta_ettr(job).ettr:.3f} by Meta's formula, {efficiency(costs, 60 * interval_min + stall):.3f} exactly"


def stalled(minutes: float) -> str:
    """FT-HSDP's own reckoning, and the exact one, in which the job runs 18 minutes less the stall between failures."""
    exact = best(1, 60 * minutes, 0, 60 * (18 - minutes))
    return f"{(18 - minutes) / 18:.1%} as (18 - {minutes:g}) / 18; {exact:.1%} exactly, with checkpoints of 1 s"


LLAMA3, RSC1_9600 = mtbf_s("llama3", 16384), mtbf_s("rsc1", 9600)

RSC1 = preset("rsc1").per_machine_day

COMPUTED = {
    "Llama 3, 16,384 GPUs, 54 days": f"{best(30, 180, 120, LLAMA3):.1%} at C = 30 s, D = 180 s, R = 120 s",
    "Llama 3, failures": f"every {LLAMA3 / 3600:.2f} h",
    "RSC-1, 16,384 GPUs": f"a failure every {mtbf_s('rsc1', 16384) / 3600:.2f} h",
    "RSC-1, 131,072 GPUs": f"a failure every {mtbf_s('rsc1', 131072) / 3600:.3f} h",
    "RSC-1, 1,024 GPUs": f"a failure every {mtbf_s('rsc1', 1024) / 3600:.2f} h",
    "RSC-1, 2,000 machines, a save an hour": rsc(2000, RSC1, 5, 60, 0, 0),
    "RSC-1, 2,000 machines, a save every 5 min": rsc(2000, RSC1, 5, 5, 0, 0),
    "RSC-1, 1,000 machines, every 30 min, 1 min of queue": rsc(1000, RSC1, 5, 30, 0, 1),
    "RSC-2's rate, 12,500 machines, every 2 min": rsc(12500, 2.34e-3, 2, 2, 0, 0),
    "RSC-1, 1,500 machines, stalls of 10 s": rsc(1500, RSC1, 5, 7.016, 10, 0),
    "FT-HSDP, 100,000 GPUs, stalls of 10 min": stalled(10),
    "FT-HSDP, 100,000 GPUs, stalls of 3 min": stalled(3),
    "ByteRobust, 9,600 GPUs, 3 months": f"{best(1, 60, 60, RSC1_9600):.1%} at RSC-1's rate, C = 1 s, D = R = 60 s",
}


def test_the_published_results_are_compared_with_what_the_formulas_give():
    rows = tables(section(TEXT, "Beside published results"), "case")
    assert {row["case"]: row["computed"] for row in rows} == COMPUTED
    assert all(row["why they differ"] for row in rows)


# The record


def test_the_fields_of_the_record_are_documented():
    rows = tables(section(TEXT, "The record"), "field")
    fields = [field.name for record in (PlanRecord, FleetPlan) for field in msgspec.structs.fields(record)]
    told = {bare(row["field"]): quoted(row["meaning"]) for row in rows}
    assert list(told) == fields
    parts = {
        "sizing": (Sizing, Strategy), "measured": (Measured,), "simulation": (Simulated, Outcome), "inputs": (Input,),
        "periods": (Choice,), "knobs": (Knob,), "budget": (Budget,), "reserve": (Reserve,),
    }  # fmt: skip
    for name, records in parts.items():
        wanted = {field.name for record in records for field in msgspec.structs.fields(record)}
        assert wanted - set(told[name]) == set(), name
