"""What the page of sweeps says, compared with the code."""

from __future__ import annotations

import msgspec
import pytest

from chaos.exits import ExitCode
from metrics.crashes import GOOD, Aftermath, Fate
from metrics.verdict import RECORD
from scenarios import prune, sweep, sweep_record
from scenarios.cli import STAGES
from scenarios.crashpoints import Point
from scenarios.sweep import SCENARIO, first_deleted
from scenarios.sweep_record import KNOWN_ISSUE, Crash, SweepRecord
from tests.docs.pages import bare, docstrings_of, page, quoted, section, tables

TEXT = page("sweeping-checkpoints.md")


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_stages_are_those_of_the_command_in_order() -> None:
    rows = tables(section(TEXT, "Stages and points"), "stage")
    assert [bare(row["stage"]) for row in rows] == list(STAGES)


def test_the_fates_are_told_as_the_source_tells_them() -> None:
    rows = tables(section(TEXT, "Fates"), "fate")
    meanings = docstrings_of("metrics/crashes.py", "Fate")
    assert [(row["fate"], bare(row["name"]), row["meaning"]) for row in rows] == [
        (str(fate), fate.name, meanings[fate.name]) for fate in Fate
    ]
    good = {row["fate"]: row["good"] for row in rows}
    assert good == {str(f): "yes" if f in GOOD else "-" if f is Fate.UNKNOWN else "no" for f in Fate}


def test_the_fields_of_the_record_are_documented() -> None:
    rows = tables(section(TEXT, "Its files"), "field")
    fields = [field.name for record in (SweepRecord, Crash) for field in msgspec.structs.fields(record)]
    assert [bare(row["field"]) for row in rows] == fields
    told = {bare(row["field"]): row["meaning"] for row in rows}
    assert told["schema"] == str(sweep_record.SCHEMA)
    assert quoted(told["point"]) == [field.name for field in msgspec.structs.fields(Point)]
    assert quoted(told["aftermath"]) == [field.name for field in msgspec.structs.fields(Aftermath)]


@pytest.mark.parametrize(
    "name",
    [sweep_record.NAME, sweep_record.CRASHES, f"{sweep_record.UNDISTURBED}/", f"{sweep.STORAGE}/", f"{sweep.SPARE}/"],
)
def test_the_files_of_a_sweep_are_told(name: str) -> None:
    assert name in {path for row in tables(section(TEXT, "Its files"), "path") for path in quoted(row["path"])}


def test_the_steps_at_which_a_job_is_crashed_are_those_of_the_code() -> None:
    shape = SCENARIO.shape
    assert f"in the save of step {2 * shape.checkpoint_every}," in flat(TEXT)
    assert f"in the commit of step {first_deleted(shape)}," in flat(TEXT)


def test_every_exit_code_of_a_sweep_is_told() -> None:
    told = ", ".join(row["code"] for row in tables(section(TEXT, "Exit codes"), "code"))
    assert {int(code) for code in told.split(", ")} == set(ExitCode) - {ExitCode.NOT_INJECTED}


def test_what_judges_a_sweep_again_or_removes_it_is_told_with_what_it_reads() -> None:
    told = flat(section(TEXT, "Its files"))
    assert f"judges the sweep again from `{RECORD}`, `{sweep_record.CRASHES}` and the histories" in told
    assert f"`aftershock prune` reads `exit_code` of `{prune.SWEEP}`" in told
    rows = tables(section(page("run-directory.md"), "Removing old runs"), "kept in any case")
    assert prune.SWEEP in quoted(rows[0]["where that is read"])


def test_the_known_issue_is_told_as_the_command_tells_it() -> None:
    told = flat(section(TEXT, "Exit codes"))
    assert all(part in told for part in KNOWN_ISSUE.replace("a controller", "A controller").split(": "))
