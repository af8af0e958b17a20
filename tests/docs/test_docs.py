"""The documentation's facts, compared with the code that they describe: codes, events, records, guides, every page."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos import healing, watcher
from chaos.agent.plan import Injection, Plan
from chaos.exits import PRECEDENCE, ExitCode
from chaos.history import SCHEMA as HISTORY_SCHEMA
from chaos.history import Event
from chaos.ledger import SCHEMA as LEDGER_SCHEMA
from chaos.schedule import Arming
from chaos.timeouts import TIMEOUTS
from chaos.triggers import Trigger
from metrics import observability, prometheus
from metrics.expectations import HEALTHY, UNDISTURBED
from metrics.goodput import BUCKETS
from metrics.prometheus import Facts, SuiteFacts, pushing, serving
from metrics.prometheus.board import Board
from metrics.prometheus.catalogue import ALL
from metrics.prometheus.live import LiveRun
from metrics.publish import ALWAYS
from metrics.recovery import PHASES
from metrics.summary import SCHEMA as SUMMARY_SCHEMA
from metrics.summary import (
    BudgetRecord,
    CheckRecord,
    GoodputRecord,
    InjectionRecord,
    PhaseTime,
    RecoveryRecord,
    Summary,
    TimeRecord,
)
from metrics.verdict import Record
from scenarios import suite
from scenarios.execute import TTL_MARGIN_S, record
from scenarios.request import SHARED
from scenarios.scenario import Scenario, Shape, Suite, all_scenarios
from scenarios.starting import KINDS, starting_point
from tests.docs.pages import (
    DOCS,
    PAGES,
    QUOTED,
    ROOT,
    bare,
    blocks,
    commands,
    docstrings_of,
    page,
    quoted,
    requested,
    scenarios,
    section,
    tables,
    words,
)
from tests.promql import recorded, rules
from trainer.config import TrainerConfig

EMIT = re.compile(r"(?:\b_?emit\w*|\.tell)\(\s*\"([a-z][a-z_.]*)\"")
LINK = re.compile(r"\[[^\]]+\]\(([^)]+)\)")
REGISTRY = re.compile(
    r"\b(pypi\.|pythonhosted\.|pytorch\.org|anaconda\.|conda\.|npmjs\.|crates\.io|docker\.(io|com)|ghcr\.|quay\.)", re.I
)
HOME = re.compile(r"(?<![\w.~<>])/(home|root|Users)\b")


def emitted() -> set[str]:
    """Every event kind that the sources emit."""
    files = [file for room in ("chaos", "scenarios", "metrics") for file in (ROOT / room).rglob("*.py")]
    return {kind for file in files for kind in EMIT.findall(file.read_text(encoding="utf-8"))}


def summary(**changes: Any) -> Summary:
    """A small run that passed, with one recovery and one check."""
    recovery = RecoveryRecord(
        injection="kill-0", fault="kill", rank=1, step=5, phase="step", total_s=9.0, missing="", step_before=5,
        resume_step=4, lost_steps=1, lost_samples=8, phases=[PhaseTime(name, 1.0, "1 ms") for name in PHASES],
    )  # fmt: skip
    check = CheckRecord(name="steps", verdict="pass", expected="a", seen="b", where="c", evidence={})
    time = TimeRecord(wall_s=10.0, cluster_start_s=1.0, workload_s=5.0, control_s=3.0, harness_s=1.0)
    job = GoodputRecord(wall_s=9.0, share=0.5, rank_seconds_lost=9.0, seconds=dict.fromkeys(BUCKETS, 1.0))
    values: dict[str, Any] = dict(
        schema=1, run="r", scenario="kill-worker", title="t", verdict="pass", exit_code=0, reason="r", seed=0,
        workers=2, steps=10, expect="recovers()", restarts=1, injections=[], recoveries=[recovery], checks=[check],
        time=time, goodput=job, budgets=[BudgetRecord("max_failures", 1, 3)], repeat="c", known_issue="", versions={},
    )  # fmt: skip
    return Summary(**{**values, **changes})


def told() -> Facts:
    """All that can be told of a run."""
    return Facts(
        summary=summary(), finished_s=1.0, faults={"kill": {"armed": 1}}, detections=(("kill", 0.1),),
        restarts=dict.fromkeys(("worker", "preemption", "controller"), 0), saves=(0.1,), commits=(0.2,),
        verifying_s=0.3, checkpoint_bytes=1, budget_s=120.0, heal_errors=0,
    )  # fmt: skip


def families() -> list[Any]:
    """Everything that is ever exported: a finished run, a suite with a skipped member, another run that goes on."""
    board = Board()
    board.finish(told())
    verdicts = dict.fromkeys((*prometheus.VERDICTS, suite.SKIPPED), 0)
    board.finish_suite(SuiteFacts(suite="s", exit_code=0, finished_s=1.0, verdicts=verdicts, skipped=("oom",)))
    board.begin(LiveRun("segfault", 40))
    return list(board.registry.collect())


def samples() -> list[Any]:
    return [sample for family in families() for sample in family.samples]


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
    meanings = docstrings_of("chaos/exits.py", "ExitCode")
    assert {bare(row["name"]): row["meaning"] for row in tables(page("exit-codes.md"), "code")} == meanings


def test_every_command_but_run_has_its_exit_code_told() -> None:
    told = " ".join(row["command"] for row in tables(page("exit-codes.md"), "command"))
    assert [name for name in commands() if f"`aftershock {name}" not in told] == []


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


def metric_rows() -> list[dict[str, str]]:
    """The rows of the tables of metrics, but of what the rules record."""
    return [row for row in tables(page("metrics.md"), "name") if "type" in row]


def test_the_metrics_are_those_of_the_registry_with_their_types_and_labels_in_order() -> None:
    rows = [(bare(row["name"]), row["type"], tuple(quoted(row["labels"]))) for row in metric_rows()]
    assert sorted(rows) == sorted((metric.name, str(metric.kind), metric.labels) for metric in ALL)


def test_every_metric_can_be_exported_as_it_is_documented() -> None:
    documented = {bare(row["name"]).removesuffix("_total"): row["type"] for row in metric_rows()}
    assert {family.name: family.type for family in families()} == documented
    labels = {bare(row["name"]): set(quoted(row["labels"])) for row in metric_rows()}
    odd = {s.name: s.labels for s in samples() if s.name in labels and set(s.labels) != labels[s.name]}
    assert odd == {}


def test_every_metric_has_a_unit_and_says_when_it_is_absent() -> None:
    assert [row["name"] for row in metric_rows() if not (row["unit"] and row["meaning"] and row["absent when"])] == []


def test_what_the_rules_record_is_documented() -> None:
    assert [bare(row["name"]) for row in tables(page("metrics.md"), "name") if "type" not in row] == recorded()


def test_the_alerts_are_documented_with_their_severity() -> None:
    rows = {bare(row["alert"]): row["severity"] for row in tables(page("observability.md"), "alert")}
    assert rows == {rule["alert"]: rule["labels"]["severity"] for rule in rules() if "alert" in rule}


def test_the_bounds_of_a_push_and_of_the_wait_for_a_last_scrape_are_those_of_the_code() -> None:
    text = page("observability.md").replace("\n", " ")
    assert pushing.TRIES == 3
    assert f"tried three times, {pushing.TIMEOUT_S:g} s each at most" in text
    assert serving.SLACK == 1.5
    assert f"for the usual pause between scrapes and half of it again, and {serving.LAST_SCRAPE_S:g} s at most" in text


def test_the_files_for_monitoring_are_documented_as_the_command_lists_them() -> None:
    rows = {bare(row["file"]): row["what it is"] for row in tables(page("observability.md"), "file")}
    assert rows == observability.FILES


@pytest.mark.parametrize("label", ["verdict", "phase", "part", "bucket", "class"])
def test_the_values_of_a_bounded_label_are_all_documented(label: str) -> None:
    row = next(row for row in tables(page("metrics.md"), "label") if bare(row["label"]) == label)
    assert set(QUOTED.findall(row["values"])) == {s.labels[label] for s in samples() if label in s.labels}


# Checks and recovery


def checks() -> dict[str, str]:
    """Every check there is, with the word that asks for it; ``none`` where none does."""
    found = {name: "none" for name, _ in ALWAYS}
    found |= {name: word for word, expectation in words().items() for name, _ in expectation.checks}
    return found | {name: "the sign" for name, _ in (HEALTHY | UNDISTURBED).checks}


def test_the_page_of_checks_has_one_section_for_each_check_in_order() -> None:
    assert re.findall(r"^## `(.+)`$", page("checks.md"), re.M) == list(checks())


@pytest.mark.parametrize("name", list(checks()))
def test_each_check_tells_its_word_expectation_evidence_and_when_it_is_unknown(name: str) -> None:
    text = section(page("checks.md"), f"`{name}`")
    assert all(f"- {word}: " in text for word in ("Word", "Expects", "Evidence", "Unknown"))
    told = re.search(r"- Word: `?(none|the sign|[a-z_]+)", text)
    assert told
    assert told[1] == checks()[name]


def test_the_checks_of_every_run_are_named_where_expectations_are_explained() -> None:
    line = re.search(r"checks judge every run: (.+)\.", page("expectations.md"))
    assert line
    assert quoted(line[1]) == [name for name, _ in ALWAYS]


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
    ("field", "record"),
    [("checks", CheckRecord), ("time", TimeRecord), ("phases", PhaseTime), ("injections", InjectionRecord)],
    ids=lambda v: str(v),
)
def test_the_parts_of_the_verdict_are_documented(field: str, record: type[msgspec.Struct]) -> None:
    rows = tables(section(page("run-directory.md"), "verdict.json"), "field")
    told = next(row["meaning"] for row in rows if bare(row["field"]) == field)
    assert QUOTED.findall(told) == [f.name for f in msgspec.structs.fields(record)]


def test_the_fields_of_a_suites_record_are_documented() -> None:
    rows = [bare(row["field"]) for row in tables(section(page("run-directory.md"), "suite.json"), "field")]
    assert rows == [f.name for found in (suite.SuiteRecord, suite.Member) for f in msgspec.structs.fields(found)]


def test_the_fields_of_the_plan_its_injections_and_their_triggers_are_documented() -> None:
    text = section(page("run-directory.md"), "plan.json")
    rows = {bare(row["field"]): row["meaning"] for row in tables(text, "field")}
    fields = [f.name for f in dataclasses.fields(Injection)]
    assert sorted(rows) == sorted(fields)
    assert quoted(rows["trigger"]) == [f.name for f in dataclasses.fields(Trigger)]
    assert set(quoted(text.split("|")[0])) == {f.name for f in dataclasses.fields(Plan)}
    record_rows = tables(section(page("run-directory.md"), "scenario.json"), "field")
    told = {bare(row["field"]): row["meaning"] for row in record_rows}
    assert sorted(quoted(told["injections"])) == sorted(fields)
    assert quoted(told["timeouts"]) == list(TIMEOUTS)


def test_the_kinds_of_entries_in_the_ledger_are_those_that_can_be_undone() -> None:
    rows = tables(section(page("run-directory.md"), "ledger.jsonl"), "kind")
    assert {bare(row["kind"]) for row in rows} == set(healing.RECIPES)


def test_the_names_on_the_board_are_those_that_the_sources_claim() -> None:
    rows = tables(section(page("run-directory.md"), "board/"), "name")
    told = {bare(row["name"]).split("-")[0] for row in rows}
    text = "".join(file.read_text() for file in (ROOT / "chaos").rglob("*.py"))
    claimed = set(re.findall(r'(?:claim\(|read\(|has\(|board / |marks = \[)f"([a-z]+)-\{', text))
    assert told == claimed


def test_the_times_of_the_watcher_are_those_of_the_code() -> None:
    text = section(page("run-directory.md"), "ledger.jsonl")
    assert f"It heals {watcher.ORPHAN_S:g} s after the harness has died" in text
    assert f"twice the deadline of a training script plus {TTL_MARGIN_S:g} s" in text
    assert f"watcher {watcher.ORPHAN_S:g} s later" in page("how-it-works.md").replace("\n", " ")


def test_the_schema_versions_are_those_of_the_code() -> None:
    text = page("run-directory.md")
    told = {bare(row["path"]): row["schema version"] for row in tables(text, "path")}
    stored = record(requested(scenarios()["kill-worker"]), "id")
    versions = {
        "history.jsonl": HISTORY_SCHEMA,
        "ledger.jsonl": LEDGER_SCHEMA,
        "verdict.json": SUMMARY_SCHEMA,
        "scenario.json": stored.schema,
    }
    for file, version in versions.items():
        assert told[file].startswith(f"{version}, "), file
    for file, version in {"scenario.json": stored.schema, "suite.json": suite.SCHEMA}.items():
        row = next(row for row in tables(section(text, file), "field") if bare(row["field"]) == "schema")
        assert row["meaning"] == str(version), file


@pytest.mark.parametrize(
    "file", ["scenario.json", "history.jsonl", "ledger.jsonl", "plan.json", "verdict.json", "junit.xml", "metrics.prom",
             "report.html", "board/", "stacks/", "logs/", "storage/", "control/"],
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


def test_the_numbers_that_scenario_and_trainer_share_are_named() -> None:
    told = page("reference-trainer.md").rsplit("`--seed`.", 1)[1].replace("\n", " ").split(" are also numbers")[0]
    assert quoted(told) == list(SHARED)


def test_the_shape_of_a_scenario_is_documented_with_its_defaults() -> None:
    rows = tables(section(page("writing-a-scenario.md"), "Shape"), "field")
    told = [(bare(row["field"]), row["type"], row["default"]) for row in rows]
    wanted = [(f.name, type(f.default).__name__, _shown(f.default)) for f in dataclasses.fields(Shape)]
    assert told == wanted


@pytest.mark.parametrize("record", [Scenario, Arming, Suite], ids=lambda v: v.__name__)
def test_the_fields_of_what_scenarios_are_made_of_are_documented(record: type[Any]) -> None:
    rows = tables(section(page("writing-a-scenario.md"), record.__name__), "field")
    assert [bare(row["field"]) for row in rows] == [f.name for f in dataclasses.fields(record)]


def test_the_defaults_of_a_scenario_are_documented() -> None:
    rows = tables(section(page("writing-a-scenario.md"), "Scenario"), "field")
    told = {bare(row["field"]): bare(row["default"]) for row in rows}
    fields = {f.name: f for f in dataclasses.fields(Scenario)}
    needed = {n for n, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING}
    assert {name for name, default in told.items() if default == "-"} == needed
    assert all(told[name] == str(fields[name].default) for name in ("recovers", "control"))
    assert fields["expects"].default is HEALTHY
    assert (told["expects"], told["shape"]) == ("HEALTHY", "Shape()")


@pytest.mark.parametrize(
    ("guide", "sources"),
    [
        ("writing-a-fault.md", ("chaos/faults/kill.py", "chaos/faults/hang.py", "chaos/faults/freeze.py")),
        ("writing-a-scenario.md", ("scenarios/library/workers.py", "scenarios/library/phases.py")),
        ("triggers.md", ("chaos/triggers.py",)),
        ("writing-a-check.md", ()),
        ("in-pytest.md", ("examples/test_my_job.py",)),
    ],
)
def test_the_examples_of_a_guide_stand_in_the_source_word_for_word(guide: str, sources: tuple[str, ...]) -> None:
    examples = blocks(page(guide), "python") + blocks(page(guide), "") * (guide == "triggers.md")
    texts = [(ROOT / source).read_text(encoding="utf-8") for source in sources]
    texts += [text for kind in KINDS for text in starting_point(kind, Path(f"my_{kind}.py")).values()]
    assert len(examples) >= len(sources)
    assert [example for example in examples if not any(example.strip("\n") in text for text in texts)] == []
    assert all(f"`{source}`" in page(guide) for source in sources if guide.startswith("writing"))


# Every page


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", [*(p.name for p in PAGES), "../README.md", "../CHANGELOG.md"])
def test_the_internal_links_of_a_page_resolve(name: str) -> None:
    for target in LINK.findall(page(name)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        there = ((DOCS / name).parent / file).resolve() if file else DOCS / name
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            assert anchor in _anchors(there.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("name", [*(p.name for p in PAGES), "../README.md", "../CHANGELOG.md"])
def test_no_line_names_a_package_registry_or_a_path_of_one_machine(name: str) -> None:
    odd = [
        line
        for line in page(name).splitlines()
        if REGISTRY.search(line) or HOME.search(line) or str(ROOT) in line or f"{Path.home()}/" in line
    ]
    assert odd == []


def test_there_are_pages_to_look_at() -> None:
    assert len(PAGES) >= 15


def test_the_readme_leads_to_every_page() -> None:
    linked = set(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    assert {f"docs/{p.name}" for p in PAGES} - linked == set()


@pytest.mark.parametrize("name", [*(p.name for p in PAGES), "../README.md", "../CHANGELOG.md"])
def test_every_command_that_a_page_shows_exists(name: str) -> None:
    shown = re.findall(r"^aftershock (\w+)(?: ([\w-]+))?(.*)$|`aftershock (\w+)", page(name), re.M)
    for command, argument, options, inline in shown:
        assert (command or inline) in commands()
        known = {option for p in commands()[command or inline].params for option in (*p.opts, *p.secondary_opts)}
        assert set(re.findall(r"(?<= )--[a-z-]+", re.split("#| -- ", options)[0])) <= known
        assert command != "run" or (argument or "-").startswith("-") or argument in all_scenarios()
