"""The documentation's facts, compared with the code that they describe."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.exits import PRECEDENCE, ExitCode
from chaos.history import SCHEMA as HISTORY_SCHEMA
from chaos.history import Event
from chaos.ledger import SCHEMA as LEDGER_SCHEMA
from metrics import prometheus
from metrics.publish import CHECKS
from metrics.recovery import PHASES
from metrics.summary import SCHEMA as SUMMARY_SCHEMA
from metrics.summary import CheckRecord, PhaseTime, RecoveryRecord, Summary, TimeRecord
from metrics.verdict import Record
from scenarios.scenario import Scenario, Shape
from trainer.config import TrainerConfig

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))

EMIT = re.compile(r"\b_?emit\w*\(\s*\"([a-z][a-z_.]*)\"")
QUOTED = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^\]]+\]\(([^)]+)\)")
REGISTRY = re.compile(
    r"\b(pypi\.|pythonhosted\.|pytorch\.org|anaconda\.|conda\.|npmjs\.|crates\.io|docker\.(io|com)|ghcr\.|quay\.)", re.I
)
HOME = re.compile(r"(?<![\w.~<>])/(home|root|Users)\b")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """The part of a page below a heading of the second level."""
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def tables(text: str, first: str) -> list[dict[str, str]]:
    """The rows of every table whose first column is called ``first``, each by column."""
    rows: list[dict[str, str]] = []
    columns: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not columns:
            columns = cells
        elif columns[0] == first and not set(line) <= set("|- "):
            assert len(cells) == len(columns), line
            rows.append(dict(zip(columns, cells, strict=True)))
    return rows


def bare(cell: str) -> str:
    return cell.strip("`")


def emitted() -> set[str]:
    """Every event kind that the sources emit."""
    files = [file for room in ("chaos", "scenarios", "metrics") for file in (ROOT / room).rglob("*.py")]
    return {kind for file in files for kind in EMIT.findall(file.read_text(encoding="utf-8"))}


def summary(**changes: Any) -> Summary:
    """A small run that passed, with one recovery and one check."""
    recovery = RecoveryRecord(
        injection="kill-0", fault="kill", rank=1, step=5, total_s=9.0, missing="", step_before=5, resume_step=4,
        lost_steps=1, lost_samples=8, phases=[PhaseTime(name, 1.0, "1 ms") for name in PHASES],
    )  # fmt: skip
    check = CheckRecord(name="steps", verdict="pass", expected="a", seen="b", where="c", evidence={})
    time = TimeRecord(wall_s=10.0, cluster_start_s=1.0, workload_s=5.0, control_s=3.0, harness_s=1.0)
    values: dict[str, Any] = dict(
        schema=1, run="r", scenario="kill-worker", title="t", verdict="pass", exit_code=0, reason="r", seed=0,
        workers=2, steps=10, restarts=1, recoveries=[recovery], checks=[check], time=time, repeat="c", versions={},
    )  # fmt: skip
    return Summary(**{**values, **changes})


def samples() -> list[Any]:
    return [s for family in prometheus.registry(summary(), 1.0).collect() for s in family.samples]


# Exit codes


def test_the_table_of_exit_codes_names_every_code_and_no_other() -> None:
    rows = tables(page("exit-codes.md"), "code")
    assert {int(row["code"]): bare(row["name"]) for row in rows} == {int(code): code.name for code in ExitCode}


def test_the_ranks_of_exit_codes_are_the_precedence() -> None:
    ranked = {row["rank"]: bare(row["name"]) for row in tables(page("exit-codes.md"), "code")}
    unranked = {code.name for code in ExitCode} - {code.name for code in PRECEDENCE}
    wanted = {str(place): code.name for place, code in enumerate(PRECEDENCE, 1)}
    assert {rank: name for rank, name in ranked.items() if rank != "-"} == wanted
    assert {bare(row["name"]) for row in tables(page("exit-codes.md"), "code") if row["rank"] == "-"} == unranked


def test_the_meaning_of_each_exit_code_is_the_one_in_the_source() -> None:
    members = next(
        node for node in ast.parse((ROOT / "chaos/exits.py").read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "ExitCode"
    ).body  # fmt: skip
    meanings = {}
    for member, text in itertools.pairwise(members):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            meanings[getattr(member.targets[0], "id", "")] = text.value.value
    assert {bare(row["name"]): row["meaning"] for row in tables(page("exit-codes.md"), "code")} == meanings


# Events


def test_every_event_kind_in_the_sources_is_documented() -> None:
    documented = {bare(row["kind"]) for row in tables(page("events.md"), "kind")}
    assert emitted() - documented == set()


def test_every_documented_event_kind_is_emitted_somewhere() -> None:
    documented = {bare(row["kind"]) for row in tables(page("events.md"), "kind")}
    assert documented - emitted() == set()


def test_no_event_kind_is_documented_twice() -> None:
    kinds = [bare(row["kind"]) for row in tables(page("events.md"), "kind")]
    assert len(kinds) == len(set(kinds))


def test_the_fields_of_an_event_are_those_of_the_record() -> None:
    text = page("events.md").split("\n## ", 1)[0]
    assert [bare(row["field"]) for row in tables(text, "field")] == [f.name for f in msgspec.structs.fields(Event)]


@pytest.mark.parametrize("name", [p.name for p in PAGES])
def test_every_event_that_a_page_mentions_exists(name: str) -> None:
    kinds = emitted()
    families = {kind.split(".")[0] for kind in kinds if "." in kind} - {"data", "control"}
    mentioned = {word for word in QUOTED.findall(page(name)) if re.fullmatch(r"[a-z]+(\.[a-z]+)+", word)}
    files = ("jsonl", "json", "log", "prom", "html", "xml", "md")
    odd = {w for w in mentioned - kinds if w.split(".")[0] in families and w.rsplit(".")[-1] not in files}
    assert odd - {"fault.base"} == set()


# Metrics


def test_the_metrics_are_those_of_the_registry_with_their_types() -> None:
    rows = tables(page("metrics.md"), "name")
    families = {family.name: family.type for family in prometheus.registry(summary(), 1.0).collect()}
    assert {bare(row["name"]): row["type"] for row in rows} == families


def test_the_labels_of_each_metric_are_those_of_the_registry() -> None:
    documented = {bare(r["name"]): set(QUOTED.findall(r["labels"])) for r in tables(page("metrics.md"), "name")}
    assert {s.name: set(s.labels) for s in samples()} == documented


@pytest.mark.parametrize("label", ["verdict", "phase", "part"])
def test_the_values_of_a_bounded_label_are_all_documented(label: str) -> None:
    row = next(row for row in tables(page("metrics.md"), "label") if bare(row["label"]) == label)
    assert set(QUOTED.findall(row["values"])) == {s.labels[label] for s in samples() if label in s.labels}


# Checks and recovery


def test_the_page_of_checks_has_one_section_for_each_check_in_order() -> None:
    headings = re.findall(r"^## `(.+)`$", page("checks.md"), re.M)
    assert headings == [name for name, _ in CHECKS]


@pytest.mark.parametrize("name", [name for name, _ in CHECKS])
def test_each_check_tells_expectation_evidence_and_when_it_is_unknown(name: str) -> None:
    text = section(page("checks.md"), f"`{name}`")
    assert all(f"- {word}: " in text for word in ("Expects", "Evidence", "Unknown"))


def test_the_table_of_phases_has_the_nine_phases_in_order() -> None:
    assert [bare(row["phase"]) for row in tables(page("how-it-works.md"), "phase")] == list(PHASES)


# Records


def test_the_fields_of_the_scenario_record_are_documented() -> None:
    rows = tables(section(page("run-directory.md"), "scenario.json"), "field")
    assert [bare(row["field"]) for row in rows] == [f.name for f in msgspec.structs.fields(Record)]


def test_the_fields_of_the_verdict_and_its_recoveries_are_documented() -> None:
    rows = [bare(row["field"]) for row in tables(section(page("run-directory.md"), "verdict.json"), "field")]
    fields = [f.name for record in (Summary, RecoveryRecord) for f in msgspec.structs.fields(record)]
    assert rows == fields


@pytest.mark.parametrize(
    ("field", "record"), [("checks", CheckRecord), ("time", TimeRecord), ("phases", PhaseTime)], ids=lambda v: str(v)
)
def test_the_parts_of_the_verdict_are_documented(field: str, record: type[msgspec.Struct]) -> None:
    rows = tables(section(page("run-directory.md"), "verdict.json"), "field")
    told = next(row["meaning"] for row in rows if bare(row["field"]) == field)
    assert QUOTED.findall(told) == [f.name for f in msgspec.structs.fields(record)]


def test_the_schema_versions_are_those_of_the_code() -> None:
    told = {bare(row["path"]): row["schema version"] for row in tables(page("run-directory.md"), "path")}
    versions = {"history.jsonl": HISTORY_SCHEMA, "ledger.jsonl": LEDGER_SCHEMA, "verdict.json": SUMMARY_SCHEMA}
    for file, version in versions.items():
        assert told[file].startswith(f"{version}, "), file


@pytest.mark.parametrize(
    "file", ["scenario.json", "history.jsonl", "ledger.jsonl", "plan.json", "verdict.json", "junit.xml", "metrics.prom",
             "report.html", "board/", "logs/", "storage/", "control/"],
)  # fmt: skip
def test_every_file_of_a_run_directory_has_a_section_of_its_own(file: str) -> None:
    assert f"\n## {file}\n" in page("run-directory.md")
    assert file in {bare(row["path"]) for row in tables(page("run-directory.md"), "path")}


# Settings, and the examples of the two guides


def _shown(value: object) -> str:
    return f"`{value}`" if value != "" else "(empty)"


def test_the_settings_of_the_trainer_are_its_fields_with_their_types_and_defaults() -> None:
    rows = tables(section(page("reference-trainer.md"), "Settings"), "setting")
    fields = dataclasses.fields(TrainerConfig)
    told = [(bare(row["setting"]), row["type"], row["default"]) for row in rows]
    assert told == [(f.name, type(f.default).__name__, _shown(f.default)) for f in fields]


def test_the_shape_of_a_scenario_is_documented_with_its_defaults() -> None:
    rows = tables(section(page("writing-a-scenario.md"), "Shape"), "field")
    told = [(bare(row["field"]), row["type"], row["default"]) for row in rows]
    wanted = [(f.name, type(f.default).__name__, _shown(f.default)) for f in dataclasses.fields(Shape)]
    assert told == wanted


def test_the_fields_of_a_scenario_are_documented() -> None:
    rows = tables(section(page("writing-a-scenario.md"), "Scenario"), "field")
    assert [bare(row["field"]) for row in rows] == [f.name for f in dataclasses.fields(Scenario)]


@pytest.mark.parametrize(
    ("guide", "source"),
    [("writing-a-fault.md", "chaos/faults/kill.py"), ("writing-a-scenario.md", "scenarios/library/workers.py")],
)
def test_the_examples_of_a_guide_stand_in_the_source_word_for_word(guide: str, source: str) -> None:
    examples = re.findall(r"```python\n(.*?)```", page(guide), re.S)
    text = (ROOT / source).read_text(encoding="utf-8")
    assert examples
    assert [example for example in examples if example.strip() not in text] == []


# Every page


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", [p.name for p in PAGES])
def test_the_internal_links_of_a_page_resolve(name: str) -> None:
    for target in LINK.findall(page(name)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        there = (DOCS / file).resolve() if file else DOCS / name
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            assert anchor in _anchors(there.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("name", [p.name for p in PAGES])
def test_no_line_names_a_package_registry_or_a_path_of_one_machine(name: str) -> None:
    odd = [
        line
        for line in page(name).splitlines()
        if REGISTRY.search(line) or HOME.search(line) or str(ROOT) in line or f"{Path.home()}/" in line
    ]
    assert odd == []


def test_there_are_pages_to_look_at() -> None:
    assert len(PAGES) >= 10
