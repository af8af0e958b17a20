"""The table of outcomes: right, wrong, missed, as declared or not, green or a false positive; and what is resumed."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from chaos.exits import ExitCode
from tests.mutants.outcome import RESULTS, WIDTH, Outcome, keep, kept, show


def mutant(*red, also=("trajectory",), code=ExitCode.FAIL, **told):
    return Outcome(name="m", caught_by="samples", also=list(also), red=list(red), exit_code=code, **told)


def variant(*red, code=ExitCode.PASS, unknown=()):
    return Outcome(name="v", red=list(red), unknown=list(unknown), exit_code=code)


def printed(*outcomes, mutants=1, variants=0):
    console = Console(width=WIDTH, file=io.StringIO())
    good = show(outcomes, mutants, variants, console)
    return good, console.file.getvalue()


@pytest.mark.parametrize(
    ("outcome", "verdict", "rest", "good"),
    [
        (mutant("samples", "trajectory"), "right: samples", "as declared", True),
        (mutant("samples", "trajectory", "steps"), "right: samples", "+steps", False),
        (mutant("samples"), "right: samples", "-trajectory", False),
        (mutant("trajectory"), "wrong: trajectory", "as declared", False),
        (mutant(code=ExitCode.PASS), "missed: exit code 0", "-trajectory", False),
        (mutant(code=ExitCode.UNKNOWN), "missed: exit code 2", "-trajectory", False),
        (mutant("samples", "trajectory", code=ExitCode.NOT_INJECTED), "missed: exit code 4", "as declared", False),
        (mutant(error="ClusterFailed()"), "no verdict: ClusterFailed()", "", False),
        (variant(), "green", "", True),
        (variant("steps", code=ExitCode.FAIL), "exit code 1: steps", "", False),
        (variant(code=ExitCode.UNKNOWN, unknown=["residue"]), "exit code 2: residue unknown", "", False),
        (variant(code=ExitCode.NOT_INJECTED), "exit code 4: no check", "", False),
    ],
)
def test_each_outcome_is_told_in_words(outcome, verdict, rest, good):
    assert (outcome.verdict, outcome.rest, outcome.good) == (verdict, rest, good)
    assert (outcome.error != "") or printed(outcome, mutants=1)[0] == good


def test_the_last_lines_count_mutants_and_false_positives():
    good, text = printed(mutant("samples", "trajectory"), variant(), mutants=1, variants=1)
    assert good
    assert text.splitlines()[-2:] == ["caught 1 of 1", "false positives 0 of 1"]
    good, text = printed(mutant("trajectory"), variant("steps", code=ExitCode.FAIL), mutants=1, variants=1)
    assert not good
    assert text.splitlines()[-2:] == ["caught 0 of 1", "false positives 1 of 1"]


def test_what_was_not_tried_is_no_success():
    good, text = printed(mutant("samples", "trajectory"), mutants=2)
    assert not good
    assert "1 not tried" in text
    assert "caught 1 of 2" in text


def test_a_caught_mutant_with_another_red_check_counts_as_caught_and_is_no_success():
    good, text = printed(mutant("samples", "trajectory", "steps"))
    assert not good
    assert "exactly the declared checks red in 0 of 1" in text
    assert "caught 1 of 1" in text


def test_the_table_fits_and_puts_mutants_first():
    long = mutant(*[f"check-number-{i}" for i in range(20)], seconds=81.4)
    _, text = printed(variant(), long, variants=1)
    assert max(map(len, text.splitlines())) <= WIDTH
    lines = [line.split()[0] for line in text.splitlines() if line.startswith(("m ", "v "))]
    assert lines == ["m", "v"]


def test_results_are_kept_line_by_line_and_those_without_a_verdict_are_tried_again(tmp_path):
    assert kept(tmp_path) == {}
    for outcome in (variant(), mutant("samples"), Outcome(name="e", error="boom")):
        keep(outcome, tmp_path)
    with (tmp_path / RESULTS).open("ab") as file:
        file.write(b'{"name": "cut')
    assert kept(tmp_path) == {"v": variant(), "m": mutant("samples")}
