"""What a suite tells: a line for each member, where the time went, a table, one file for CI systems."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from chaos.watch import Interrupted
from scenarios import suite
from scenarios.suite import Spent
from scenarios.testbed import StillStanding
from tests.docs.pages import bare, blocks, page, quoted, section, tables
from tests.scenarios.members import ABORTED, FAIL, NAMES, PASS, UNKNOWN, Runner, junit, recovery, summary

# Its lines


def test_a_member_tells_the_worst_of_its_whole_recoveries_and_the_time_of_all():
    told = suite.member(
        summary("s", PASS, [recovery(3.0, 2), recovery(8.0, 1), recovery(99.0, 50, "restore")]), Path("d")
    )
    assert (told.recovery_s, told.lost_steps) == (8.0, 2)
    assert (told.scenario, told.verdict, told.restarts, told.directory) == ("s", "pass", 1, "d")
    assert told.spent == Spent(
        wall_s=60.0, cluster_start_s=1.0, workload_s=50.0, control_s=5.0, recovery_s=11.0, harness_s=4.0
    )


def test_a_member_that_did_not_recover_tells_no_time():
    told = suite.member(summary("s", FAIL, [recovery(missing="detect")]), Path("d"))
    assert (told.recovery_s, told.lost_steps, told.verdict) == (None, None, "fail")
    assert told.spent.recovery_s == 0


seconds = st.floats(0, 1e4)


@given(st.lists(st.tuples(seconds, seconds, seconds, seconds, seconds)), seconds)
def test_the_suites_times_are_the_sums_of_its_members_and_its_own(parts, overhead):
    names = ("cluster_start_s", "workload_s", "control_s", "recovery_s", "harness_s")
    members = [
        suite.Member(
            scenario="s", verdict="pass", exit_code=0, reason="", directory="", recovery_s=None, lost_steps=None,
            restarts=0, spent=Spent(wall_s=sum(part) - part[3], **dict(zip(names, part, strict=True))),
        )
        for part in parts
    ]  # fmt: skip
    wall_s = sum(member.spent.wall_s for member in members) + overhead
    spent = made(members=members, wall_s=wall_s).spent
    for i, name in enumerate(names[:4]):
        assert getattr(spent, name) == pytest.approx(sum(part[i] for part in parts))
    assert spent.wall_s == wall_s
    assert spent.harness_s == pytest.approx(sum(part[4] for part in parts) + overhead, abs=1e-6)
    assert spent.cluster_start_s + spent.workload_s + spent.control_s + spent.harness_s == pytest.approx(wall_s)


def made(**changes):
    values = dict(
        schema=2, suite="s", exit_code=0, asked=["s"], options={}, members=[], controls={}, clusters=0, left=[],
        wall_s=0.0,
    )  # fmt: skip
    return suite.SuiteRecord(**{**values, **changes})


def shown(record, directory=Path("suite")):
    screen = io.StringIO()
    suite.show(record, directory, Console(file=screen, width=100))
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 100
    return lines


def test_the_table_has_a_row_for_each_member_and_says_why_one_did_not_pass(run, place):
    lines = shown(run(Runner(PASS, FAIL, UNKNOWN)), place / "suite")
    rows = {line.split()[0]: line for line in lines}
    assert all(name in rows for name in NAMES)
    assert rows["kill-worker"].split() == ["kill-worker", "pass", "1", "9.0", "s", "4", "60", "s"]
    assert "fail" in rows["kill-rank-zero"]
    assert rows["kill-rank-zero"].rstrip().endswith("because of FAIL")
    assert lines[-1] == f"1 of 3 passed; exit code 1; {Path('suite', 'suite.json')}"


def test_below_the_table_stands_where_the_time_went(run, place, monkeypatch):
    later = time.monotonic() + 350
    monkeypatch.setattr(suite, "time", SimpleNamespace(monotonic=lambda: later, time=time.time))
    told = "350 s: cluster starts (3) 3, training 150 (recoveries 27), control runs (3) 15, harness 182"
    assert told in shown(run(Runner()), place / "suite")


def test_only_members_that_started_a_cluster_or_made_a_control_run_are_counted_for_it():
    first = suite.member(summary("kill-worker"), Path("a"))
    shares = suite.member(summary("segfault", cluster_start_s=0.0, control_s=0.0), Path("b"))
    lines = shown(made(members=[first, shares], asked=["kill-worker", "segfault"], wall_s=130.0))
    assert "130 s: cluster starts (1) 1, training 100 (recoveries 18), control runs (1) 5, harness 24" in lines


def test_the_table_fits_100_columns_with_long_names_reasons_and_times():
    member = suite.member(summary("drop-node-during-recovery", FAIL, [recovery(1234.5, 99999)]), Path("d"))
    wordy = msgspec.structs.replace(member, reason="a reason that goes on and on " * 9)
    long = Spent(wall_s=86400, cluster_start_s=12345, workload_s=54321, control_s=23456, recovery_s=34567, harness_s=1)
    record = made(
        members=[wordy, msgspec.structs.replace(member, spent=long)], asked=["a", "b", "c"], wall_s=1e5,
        left=[f"processes 1: still alive after SIGKILL: {', '.join(map(str, range(100000, 100060)))}"],
    )  # fmt: skip
    text = " ".join(line.strip() for line in shown(record))
    assert "could not be undone: processes 1" in text
    assert "100059" in text


@pytest.mark.parametrize(
    ("codes", "missing"),
    [((PASS, PASS, PASS), 0), ((PASS, ABORTED), 2), ((PASS, PASS, ABORTED), 1), ((Interrupted("SIGINT"),), 3)],
    ids=str,
)
def test_how_many_were_not_run_is_told_with_the_way_to_go_on(run, place, codes, missing):
    lines = shown(run(Runner(*codes)), place / "suite")
    told = f"{missing} not run to the end: the same command with --resume goes on"
    assert (told in lines) == bool(missing)
    assert any("--resume" in line for line in lines) == bool(missing)


def test_skipped_members_are_counted_and_shown(run, place):
    lines = shown(run(Runner(), skipped={"segfault": "no ptrace"}), place / "suite")
    assert lines[-1].startswith("2 of 3 passed, 1 skipped; exit code 0; ")
    assert next(line for line in lines if line.startswith("segfault ")).split()[1] == "skipped"


# One file for CI systems


def test_the_merged_junit_file_holds_every_member_that_was_asked_for(run, place):
    class Writes(Runner):
        def __call__(self, request, pool=None):
            found, directory = super().__call__(request, pool)
            (directory / "junit.xml").write_text(f'<testsuites><testsuite name="{found.scenario}"/></testsuites>')
            return found, directory

    run(Writes(PASS, ABORTED))
    assert junit(place) == {"kill-worker": [], "kill-rank-zero": [], "segfault": ["error"]}
    run(Writes())
    assert junit(place) == {name: [] for name in NAMES}


def test_a_member_without_a_run_is_an_error_there_with_its_reason(run, place):
    run(Runner(PASS, StillStanding("processes 7")))
    root = ET.parse(place / "suite" / "junit.xml").getroot()
    (found,) = [found for found in root if found.attrib["name"] == "kill-rank-zero"]
    assert (found.attrib["tests"], found.attrib["errors"]) == ("1", "1")
    error = found.find("testcase/error")
    assert error is not None
    assert error.attrib["message"] == "processes 7"


# The pages


def test_the_page_of_scenarios_shows_the_line_of_the_times_as_it_is_written():
    (shown_there,) = [block for block in blocks(page("scenarios.md"), "") if "cluster starts" in block]
    numbers = re.findall(r"\d+", shown_there)
    wall, starts, cluster_s, training, recoveries, controls, control_s, harness = map(int, numbers)
    assert cluster_s + training + control_s + harness == wall
    assert starts >= controls
    assert recoveries < training
    told = suite._told(made(members=[suite.member(summary("s"), Path("d"))], wall_s=60.0))
    assert re.sub(r"\d+", "N", shown_there.strip()) == re.sub(r"\d+", "N", told)


def test_the_parts_of_the_time_are_told_on_the_page_of_the_run_directory():
    rows = tables(section(page("run-directory.md"), "suite.json"), "field")
    row = next(row for row in rows if bare(row["field"]) == "spent")
    assert quoted(row["meaning"].split(":")[0]) == list(Spent.__struct_fields__)
    assert next(row for row in rows if bare(row["field"]) == "verdict")["meaning"].count("`") == 2 * 4
